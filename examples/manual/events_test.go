package manual

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// E-05: wait for asynchronous events, print them and acknowledge them. Here the first packet for a QP in RTR causes
// one.
func Example_e05AsyncEvents() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	defer closeAll(pd)
	stop := causeCommEst(vctx, pd)
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // a program would wait without a limit
	defer cancel()
	ev := must(vctx.GetAsyncEvent(ctx))
	fmt.Println(ev.Type, "of a", ev.QP.Type(), "QP")
	ev.Ack() // otherwise qp.Close would wait for ever
	// Output: communication established of a RC QP
}

// causeCommEst sends a message to a QP in RTR, which causes the event "communication established".
func causeCommEst(vctx *verbs.Context, pd *verbs.PD) (stop func()) {
	cq := must(vctx.CreateCQ(8, nil))
	mr := must(pd.RegMR(make([]byte, 8), verbs.AccessLocalWrite))
	init := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}
	a, b := must(pd.CreateQP(&init)), must(pd.CreateQP(&init))
	toRTS(a, b.QPN())
	toRTR(b, a.QPN())
	check(b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 8)}}))
	check(a.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(0, 8)}}))
	return func() { closeAll(a, b, mr, cq) }
}

// closeAll closes objects in this order.
func closeAll(objects ...interface{ Close() error }) {
	for _, o := range objects {
		check(o.Close())
	}
}

// E-07: a completion channel.
func Example_e07CompletionChannel() {
	vctx, done := open()
	defer done()
	ch := must(vctx.CreateCompChannel())
	fmt.Println(ch.Context().Device().Name())
	check(ch.Close())
	// Output: vrb_a
}

// E-19, first part: wait for a completion event, as C programs do. Arm the CQ, wait for the event, acknowledge it, arm
// again, and poll until the CQ is empty, because a completion from before the arming causes no event. CQ.Wait and
// CQ.All do all of that.
func Example_e19CompletionEvents() {
	vctx, done := open()
	defer done()
	ch := must(vctx.CreateCompChannel())
	cq := must(vctx.CreateCQ(1, &verbs.CQOptions{Channel: ch, Context: "of the receives"}))
	defer closeAll(cq, ch)
	check(cq.ReqNotify(false)) // before any completion can come
	defer receive(vctx, cq)()

	ready := must(ch.GetEvent(context.Background()))
	fmt.Println("event of the CQ", ready.CQContext())
	ready.AckEvents(1) // takes a lock; a busy program acknowledges many events at once
	check(ready.ReqNotify(false))
	empty(ready)
	// Output:
	// event of the CQ of the receives
	// RECV of 5 bytes, request 1
}

// receive sends a message to a QP whose receives complete in cq.
func receive(vctx *verbs.Context, cq *verbs.CQ) (stop func()) {
	pd, sent := must(vctx.AllocPD()), must(vctx.CreateCQ(1, nil))
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
	a := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: sent, RecvCQ: sent, Cap: sizes}))
	b := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: sent, RecvCQ: cq, Cap: sizes}))
	connect(a, b)
	check(b.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{mr.SGE(0, 32)}}))
	check(a.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(32, 5)}}))
	return func() { closeAll(a, b, mr, sent, pd) }
}

// empty polls the completions of a CQ one at a time. There may be none, after an event for one that was polled before.
func empty(cq *verbs.CQ) {
	var wc [1]verbs.WC
	for must(cq.Poll(wc[:])) != 0 {
		if wc[0].Status != verbs.WCSuccess {
			log.Fatalf("completion with status %v", wc[0].Status)
		}
		fmt.Printf("%v of %d bytes, request %d\n", wc[0].Opcode, wc[0].ByteLen, wc[0].WRID)
	}
}
