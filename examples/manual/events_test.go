package manual

import (
	"context"
	"errors"
	"fmt"
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

// E-06: the same without blocking. AsyncFD is a descriptor for poll or epoll. In Go, a goroutine that blocks in
// GetAsyncEvent is simpler.
func Example_e06AsyncEventsNonBlocking() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	defer closeAll(pd)
	if _, err := vctx.TryGetAsyncEvent(); errors.Is(err, verbs.EAGAIN) {
		fmt.Println("no event")
	}
	stop := causeCommEst(vctx, pd)
	defer stop()
	for {
		ev, err := vctx.TryGetAsyncEvent()
		if errors.Is(err, verbs.EAGAIN) {
			time.Sleep(time.Millisecond) // or poll(AsyncFD), with other descriptors
			continue
		}
		check(err)
		fmt.Println(ev.Type)
		ev.Ack()
		return
	}
	// Output:
	// no event
	// communication established
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

// E-19: wait for completions with a completion channel, as C programs do: arm the CQ, wait for the event, acknowledge
// it, arm again, and poll until the CQ is empty, because a completion from before the arming causes no event. CQ.Wait
// and CQ.All do all of that.
func Example_e19CompletionEvents() {
	vctx, done := open()
	defer done()
	ch := must(vctx.CreateCompChannel())
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(16, &verbs.CQOptions{Channel: ch}))
	a, b := pair(pd, cq)
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
	defer closeAll(a, b, mr, cq, pd, ch)

	check(cq.ReqNotify(false))
	check(b.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{mr.SGE(0, 32)}}))
	check(a.PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(32, 5)}})) // not signaled

	for received := false; !received; {
		ready := must(ch.GetEvent(context.Background()))
		ready.AckEvents(1) // takes a lock; a busy program acknowledges many events at once
		check(ready.ReqNotify(false))
		var wcs [4]verbs.WC
		for n := -1; n != 0; {
			n = must(ready.Poll(wcs[:]))
			for _, wc := range wcs[:n] {
				fmt.Printf("%v of %d bytes, request %d: %v\n", wc.Opcode, wc.ByteLen, wc.WRID, wc.Status)
				received = true
			}
		}
	}
	// TryGetEvent is the non-blocking form; FD is for poll and epoll.
	_, err := ch.TryGetEvent()
	fmt.Println(errors.Is(err, verbs.EAGAIN))
	// Output:
	// RECV of 5 bytes, request 1: success
	// true
}
