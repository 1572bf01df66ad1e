//go:build unix

package manual

import (
	"errors"
	"fmt"
	"log"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/verbs"
)

// wait calls poll until a descriptor is readable, with a time-out of 100 ms each time.
func wait(fd int) {
	const timeout = 100 // ms
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, timeout)
		switch {
		case n > 0:
			return
		case err != nil && !errors.Is(err, unix.EINTR):
			log.Fatal("poll: ", err)
		}
	}
}

// E-06: asynchronous events without blocking: poll waits for AsyncFD, with other descriptors if a program has them. In
// Go the descriptor has no mode that would have to be changed: TryGetAsyncEvent does not block. A goroutine that blocks
// in GetAsyncEvent is simpler.
func Example_e06AsyncEventsNonBlocking() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	defer closeAll(pd)
	defer causeCommEst(vctx, pd)()
	fd := must(vctx.AsyncFD())
	for range 1 { // a program would do it for ever
		wait(fd)
		ev := must(vctx.TryGetAsyncEvent())
		fmt.Println(ev.Type, "of a", ev.QP.Type(), "QP")
		ev.Ack()
	}
	// Output: communication established of a RC QP
}

// E-19, second part: the same without blocking: poll waits for the descriptor of the channel. TryGetEvent returns
// EAGAIN if there is no event.
func Example_e19CompletionEventsNonBlocking() {
	vctx, done := open()
	defer done()
	ch := must(vctx.CreateCompChannel())
	cq := must(vctx.CreateCQ(1, &verbs.CQOptions{Channel: ch}))
	defer closeAll(cq, ch)
	check(cq.ReqNotify(false))
	_, err := ch.TryGetEvent()
	fmt.Println("no event yet:", errors.Is(err, verbs.EAGAIN))
	defer receive(vctx, cq)()

	wait(must(ch.FD()))
	ready := must(ch.TryGetEvent())
	ready.AckEvents(1)
	check(ready.ReqNotify(false))
	empty(ready)
	// Output:
	// no event yet: true
	// RECV of 5 bytes, request 1
}
