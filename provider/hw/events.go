//go:build linux && (amd64 || arm64)

package hw

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/verbs"
)

// watcher takes the events of a descriptor in a goroutine that waits in Go's network poller.
type watcher struct {
	file *os.File
	done chan struct{}
}

// watch makes a watcher of fd, which stays the caller's. take takes an event: EAGAIN if there is none. After another
// error the watcher ends and calls failed.
func watch(fd int, take func() error, failed func()) (*watcher, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	w := &watcher{file: os.NewFile(uintptr(dup), "RDMA events"), done: make(chan struct{})}
	conn, err := w.file.SyscallConn()
	if err != nil {
		w.file.Close()
		return nil, err
	}
	go w.run(conn, take, failed)
	return w, nil
}

func (w *watcher) run(conn syscall.RawConn, take func() error, failed func()) {
	defer close(w.done)
	err := conn.Read(func(uintptr) bool {
		for {
			switch err := take(); {
			case err == nil || errors.Is(err, syscall.EINTR):
			case errors.Is(err, syscall.EAGAIN):
				return false
			default:
				failed()
				return true
			}
		}
	})
	if err != nil && !errors.Is(err, os.ErrClosed) {
		failed()
	}
}

// stop ends the watcher. No event is taken afterwards.
func (w *watcher) stop() {
	if w != nil {
		w.file.Close()
		<-w.done
	}
}

// watchEvents begins to take the context's events.
func (c *devContext) watchEvents() error {
	var err error
	if c.channel, err = c.lib.object(c.lib.createCompChannel, c.ptr); err != nil {
		return explain(err, "a completion channel")
	}
	fd := int(*at[int32](c.channel + offChannelFD))
	if c.completions, err = watch(fd, c.completionTaker(), func() {}); err != nil {
		return explain(err, "the descriptor of completion events")
	}
	fd = int(*at[int32](c.ptr + offContextAsyncFD))
	if c.async, err = watch(fd, c.asyncTaker(), c.gone); err != nil {
		c.completions.stop()
		return explain(err, "the descriptor of asynchronous events")
	}
	return nil
}

// gone reports that the kernel has taken the device away.
func (c *devContext) gone() { c.up.DeviceEvent(verbs.EventDeviceFatal) }

// completionTaker returns a function that takes a completion event. The event is acknowledged at once: ibv_destroy_cq
// waits for that, and the object of Go counts the program's own acknowledgements.
func (c *devContext) completionTaker() func() error {
	type state struct {
		caller
		cq, context uintptr // set by C
	}
	s := new(state)
	return func() error {
		err := s.status(c.lib, c.lib.getCQEvent, c.channel, uintptr(unsafe.Pointer(&s.cq)),
			uintptr(unsafe.Pointer(&s.context)))
		if err != nil {
			return err
		}
		v, ok := c.cqs.Load(s.cq)
		s.do(c.lib.ackCQEvents, s.cq, 1, 0)
		if ok {
			v.(*cq).up.Completion()
		}
		return nil
	}
}

// asyncTaker returns a function that takes an asynchronous event.
func (c *devContext) asyncTaker() func() error {
	ev := new(cAsyncEvent)
	return func() error {
		if err := c.lib.status(c.lib.getAsyncEvent, c.ptr, uintptr(unsafe.Pointer(ev))); err != nil {
			return err
		}
		deliver := c.target(ev)
		call(c.lib.ackAsyncEvent, uintptr(unsafe.Pointer(ev)))
		deliver()
		return nil
	}
}

// target finds the object of an event. It is called before the event is acknowledged: until then the object exists.
func (c *devContext) target(ev *cAsyncEvent) (deliver func()) {
	none := func() {}
	switch t := verbs.EventType(ev.typ); t {
	case verbs.EventCQErr:
		if v, ok := c.cqs.Load(ev.element); ok {
			return v.(*cq).fail
		}
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr, verbs.EventCommEst, verbs.EventSQDrained,
		verbs.EventPathMig, verbs.EventPathMigErr, verbs.EventQPLastWQEReached:
		if v, ok := c.qps.Load(ev.element); ok {
			return func() { v.(*qp).event(t) }
		}
	case verbs.EventSRQErr, verbs.EventSRQLimitReached:
		if v, ok := c.srqs.Load(ev.element); ok {
			return func() { v.(*srq).up.Event(t) }
		}
	case verbs.EventWQFatal:
		if v, ok := c.wqs.Load(ev.element); ok {
			return func() { v.(*wq).failed(t) }
		}
	case verbs.EventDeviceFatal:
		return c.gone
	case verbs.EventPortActive, verbs.EventPortErr, verbs.EventLIDChange, verbs.EventPKeyChange, verbs.EventSMChange,
		verbs.EventClientReregister, verbs.EventGIDChange, verbs.EventDeviceSpeedChange:
		port := uint8(ev.element)
		return func() { c.up.PortEvent(t, port) }
	}
	return none
}
