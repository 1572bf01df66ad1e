package manual

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// E-05: wait for asynchronous events, print them and acknowledge them. Here the cause is the first packet for a QP in RTR.
func Example_e05AsyncEvents() {
	ctx, done := open()
	defer done()
	pd := must(ctx.AllocPD())
	defer closeAll(pd)
	stop := causeCommEst(ctx, pd)
	defer stop()

	c, cancel := context.WithTimeout(context.Background(), 10*time.Second) // a program waits as long as it runs
	defer cancel()
	ev := must(ctx.GetAsyncEvent(c))
	fmt.Println(ev.Type, "of a", ev.QP.Type(), "QP")
	ev.Ack() // or closing the QP would wait for it for ever
	// Output: communication established of a RC QP
}

// E-06: the same without waiting: look, and do something else when there is nothing. AsyncFD is a descriptor for poll or epoll; in
// Go a goroutine that blocks is simpler.
func Example_e06AsyncEventsNonBlocking() {
	ctx, done := open()
	defer done()
	pd := must(ctx.AllocPD())
	defer closeAll(pd)
	if _, err := ctx.TryGetAsyncEvent(); errors.Is(err, verbs.EAGAIN) {
		fmt.Println("nothing yet")
	}
	stop := causeCommEst(ctx, pd)
	defer stop()
	for {
		ev, err := ctx.TryGetAsyncEvent()
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
	// nothing yet
	// communication established
}

// causeCommEst lets a QP send to one that is in RTR still.
func causeCommEst(ctx *verbs.Context, pd *verbs.PD) (stop func()) {
	cq := must(ctx.CreateCQ(8, nil))
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
	ctx, done := open()
	defer done()
	ch := must(ctx.CreateCompChannel())
	fmt.Println(ch.Context().Device().Name())
	check(ch.Close())
	// Output: vrb_a
}

// E-19: sleep until there are completions, then take them all: ask for the notification, wait, acknowledge, ask again, and
// poll until the CQ is empty, since what came before the asking causes no event.
func Example_e19CompletionEvents() {
	ctx, done := open()
	defer done()
	ch := must(ctx.CreateCompChannel())
	pd := must(ctx.AllocPD())
	cq := must(ctx.CreateCQ(16, &verbs.CQOptions{Channel: ch}))
	a, b := pair(pd, cq)
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
	defer closeAll(a, b, mr, cq, pd, ch)

	check(cq.ReqNotify(false))
	check(b.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{mr.SGE(0, 32)}}))
	check(a.PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(32, 5)}})) // not signaled

	for received := false; !received; {
		ready := must(ch.GetEvent(context.Background()))
		ready.AckEvents(1) // in a loop, acknowledge many at once: it is not free
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
