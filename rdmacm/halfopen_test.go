package rdmacm_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm/cmtest"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// forge sends n REQs with forged sources to a listener of host b, at a rate for each second.
func (w *world) forge(f *cmtest.Flood, n, rate int) {
	for i := range n {
		from, b := f.Next()
		w.fab.Inject(from, f.To.Addr(), cmtest.SourcePort, b)
		if i%10 == 9 {
			time.Sleep(10 * time.Second / time.Duration(rate))
		}
	}
}

// server accepts until the listener is closed, and closes each connection when it ends. stopped is closed after the
// last.
func (w *world) server(l *rdmacm.Listener) (stopped chan struct{}) {
	stopped = make(chan struct{})
	go func() {
		defer close(stopped)
		var open sync.WaitGroup
		defer open.Wait()
		for {
			id, err := l.Accept(bg)
			if errors.Is(err, rdmacm.ErrClosed) {
				return
			}
			if err != nil {
				w.Errorf("Accept: %v", err)
				return
			}
			open.Go(func() {
				_, _ = id.GetRecvComp(bg) // fails when the client leaves
				w.ok(id.Disconnect(bg))
				w.ok(id.Close())
			})
		}
	}()
	return stopped
}

// visit connects and disconnects.
func (w *world) visit(l *rdmacm.Listener, limit time.Duration) error {
	c, cancel := context.WithTimeout(bg, limit)
	defer cancel()
	id, err := rdmacm.Dial(c, at(addrB, l.Addr().Port()).String(), &rdmacm.Options{Host: w.a})
	if err != nil {
		return err
	}
	err = id.Disconnect(bg)
	w.ok(id.Close())
	return err
}

// Handshakes that are never finished, more than a Listener does at a time, do not end it, whether they time out soon
// or late.
func TestAcceptAfterUnfinishedHandshakes(t *testing.T) {
	for name, f := range map[string]cmtest.Flood{"soon": {Timeout: 18}, "late": {Timeout: 31, Retries: 15}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				l := must(rdmacm.Listen(bg, at(addrB, 0).String(), &rdmacm.Options{Host: w.b}))(w)
				stopped := w.server(l)
				f.To = at(addrB, l.Addr().Port())
				w.forge(&f, 1100, 4000)
				synctest.Wait()
				if n := w.b.Counters(w.contexts(w.b)[0]).IDs; n < 1000 {
					t.Errorf("%d IDs; the test does not reach the limit", n)
				}
				time.Sleep(11 * time.Second)
				if n := w.b.Counters(w.contexts(w.b)[0]).IDs; n != 1 {
					t.Errorf("%d IDs 11 s later, want the listener", n)
				}
				for range 3 {
					w.ok(w.visit(l, time.Second))
				}
				w.ok(l.Close())
				<-stopped
			})
		})
	}
}

// A client that has connected before connects at the first attempt during a flood, and any client does a second after
// it.
func TestConnectInAFlood(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, at(addrB, 0).String(), &rdmacm.Options{Host: w.b}))(w)
		stopped := w.server(l)
		w.ok(w.visit(l, time.Second))
		f := cmtest.Flood{To: at(addrB, l.Addr().Port()), Timeout: 31, Retries: 15}
		over := make(chan struct{})
		go func() {
			defer close(over)
			w.forge(&f, 10_000, 10_000)
		}()
		n := 0
		for more := true; more; n++ {
			select {
			case <-over:
				more = false
			default:
			}
			if err := w.visit(l, time.Second); err != nil {
				t.Fatalf("connection %d: %v; %+v", n, err, w.b.Counters(w.contexts(w.b)[0]).CM)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if n < 20 {
			t.Errorf("%d connections", n)
		}
		time.Sleep(time.Second)
		w.ok(w.visit(l, time.Second))
		if n := w.b.Counters(w.contexts(w.b)[0]).IDs; n > 3000 {
			t.Errorf("%d IDs", n)
		}
		w.ok(l.Close())
		<-stopped
	})
}

// The limit of half-open handshakes is set before Listen.
func TestHalfOpenLimitOfAnID(t *testing.T) {
	in(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSTCP)
		w.errno(l.SetHalfOpenLimit(0), syscall.EINVAL)
		w.ok(l.SetHalfOpenLimit(1))
		w.ok(l.SetHalfOpenLimit(2))
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0))
		w.errno(l.SetHalfOpenLimit(3), syscall.EINVAL)
		f := cmtest.Flood{To: at(addrB, port), Timeout: 20, Retries: 15}
		w.forge(&f, 20, 100)
		synctest.Wait()
		for range 2 {
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			w.ok(ev.ID.CreateQP(nil, qpInit()))
			w.ok(ev.ID.Accept(bg, nil))
			w.ok(ev.Ack())
		}
		l.none()
		time.Sleep(3 * time.Second)
		w.forge(&f, 1, 1)
		ev := w.next(l.ch, rdmacm.EventUnreachable) // the oldest one makes room
		w.ok(ev.Ack())
		w.ok(ev.ID.DestroyQP())
		w.ok(ev.ID.Close())
		ev = w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		ev = w.next(l.ch, rdmacm.EventUnreachable) // 10 s after it was accepted
		w.ok(ev.Ack())
		w.ok(ev.ID.DestroyQP())
		w.ok(ev.ID.Close())
		l.close()
	})
}
