package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// soon is a context for calls that wait for the peer's program only.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(bg, 10*time.Second)
	w.Cleanup(cancel)
	return ctx
}

// syncReady makes a synchronous ID of host a that may Connect, with a QP.
func (w *world) syncReady() *rdmacm.ID {
	w.Helper()
	id := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
	w.ok(id.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
	w.ok(id.ResolveRoute(bg, timeout))
	w.ok(id.CreateQP(nil, qpInit()))
	return id
}

func (w *world) destroy(ids ...*rdmacm.ID) {
	w.Helper()
	for _, id := range ids {
		if id.QP() != nil {
			w.ok(id.DestroyQP())
		}
		w.ok(id.Close())
	}
}

// A connection that has ended in any way, or never began, has no event to wait for: Disconnect of a synchronous ID
// returns.
func TestC_DISC_08_NothingToWaitFor(t *testing.T) {
	in(t, func(w *world) {
		l := must(w.b.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0))
		connect := func(answer func(*rdmacm.ID)) (c *rdmacm.ID, err error) {
			done := make(chan struct{})
			go func() {
				answer(must(l.GetRequest(bg))(w))
				close(done)
			}()
			c = w.syncReady()
			err = c.Connect(bg, nil)
			<-done
			return c, err
		}
		again := func(who string, id *rdmacm.ID) {
			t.Helper()
			if err := id.Disconnect(w.soon()); err != nil {
				t.Errorf("Disconnect of the %s: %v", who, err)
			}
		}
		c, err := connect(func(s *rdmacm.ID) { // refused
			w.ok(s.Reject(nil))
			again("end that has refused", s)
			w.destroy(s)
		})
		w.errno(err, syscall.ECONNREFUSED)
		again("refused end", c)
		w.destroy(c)
		c, err = connect(func(s *rdmacm.ID) { // the QP cannot be connected
			w.ok(s.CreateQP(nil, qpInit()))
			w.ok(s.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
			w.errno(s.Accept(bg, nil), syscall.EINVAL)
			again("end that could not accept", s)
			w.destroy(s)
		})
		w.errno(err, syscall.ECONNREFUSED)
		w.destroy(c)
		var s *rdmacm.ID
		c, err = connect(func(id *rdmacm.ID) { // connected
			w.ok(id.CreateQP(nil, qpInit()))
			w.ok(id.Accept(bg, nil))
			s = id
		})
		w.ok(err)
		go func() { w.ok(c.Disconnect(bg)) }()
		synctest.Wait()
		w.ok(s.Disconnect(bg))
		time.Sleep(time.Minute) // timewait is over
		again("client", c)
		again("server", s)
		w.destroy(c, s)
		w.fab.Cut(addrA, addrB)
		c = w.syncReady()
		w.errno(c.Connect(bg, nil), syscall.ETIMEDOUT)
		again("end whose peer did not answer", c)
		w.destroy(c, l)
	})
}

// The result of a call whose context ended is not the result of the next call.
func TestC_SYNC_02_OldResults(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.syncReady()
		c.Channel().SetNonblock(true)
		w.errno(c.Connect(bg, nil), syscall.EAGAIN)
		c.Channel().SetNonblock(false)
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		s.expect(rdmacm.EventEstablished)
		go func() {
			s.expect(rdmacm.EventDisconnected)
			time.Sleep(time.Second)
			w.ok(s.Disconnect(bg))
		}()
		w.ok(c.Disconnect(bg))
		if ev := c.Event(); ev == nil || ev.Type != rdmacm.EventDisconnected {
			t.Errorf("Disconnect has returned with %+v", ev)
		}
		w.destroy(c)
		s.expect(rdmacm.EventTimewaitExit)
		s.closeID()

		// The same holds for the event of a route that the program has set.
		c = must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		w.ok(c.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, pathData()))
		w.ok(c.CreateQP(nil, qpInit()))
		go func() {
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			w.ok(ev.Ack())
			w.ok(ev.ID.Close())
		}()
		w.errno(c.Connect(bg, nil), syscall.ECONNREFUSED)
		w.destroy(c)
		l.close()
	})
}

// Requests that were not retrieved move with their listener, and so do their IDs.
func TestC_ID_15_RequestsMigrate(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		first, second := l.ch, must(w.b.CreateEventChannel())(w)
		connect := func() *end {
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			w.ok(c.Connect(bg, nil))
			synctest.Wait()
			return c
		}
		accept := func(c *end, s *rdmacm.ID) {
			t.Helper()
			w.ok(s.CreateQP(nil, qpInit()))
			w.ok(s.Accept(w.soon(), nil))
			c.expect(rdmacm.EventEstablished)
		}
		c1 := connect()
		w.ok(l.Migrate(second))
		w.ok(first.Close()) // it takes along who is on it
		ev := w.next(second, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		accept(c1, ev.ID)
		s1 := &end{ev.ID, w, second}
		s1.expect(rdmacm.EventEstablished)

		c2 := connect()
		w.ok(l.Migrate(nil))
		s2 := must(l.GetRequest(w.soon()))(w)
		accept(c2, s2) // it waits: the ID is synchronous
		if ev := s2.Event(); ev == nil || ev.Type != rdmacm.EventEstablished {
			t.Errorf("the ID of a synchronous listener has %+v", ev)
		}

		c3 := connect()
		w.ok(l.Migrate(second))
		ev = w.next(second, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		accept(c3, ev.ID)
		s3 := &end{ev.ID, w, second}
		s3.expect(rdmacm.EventEstablished)

		for _, s := range []*end{s1, {s2, w, nil}, s3} {
			s.closeID()
		}
		for _, c := range []*end{c1, c2, c3} {
			c.expect(rdmacm.EventDisconnected)
			c.close()
		}
		w.ok(l.Close())
		w.ok(second.Close())
	})
}

// A listener can be closed before the program answers its requests.
func TestC_REQ_04_ListenerGoesFirst(t *testing.T) {
	in(t, func(w *world) {
		l := must(w.b.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0))
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte("me")}))
		s := must(l.GetRequest(bg))(w)
		closed := make(chan struct{})
		go func() {
			w.ok(l.Close())
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Error("Close waits for the request's answer")
		}
		if ev := s.Event(); ev == nil || string(ev.Conn.PrivateData[:2]) != "me" {
			t.Errorf("the request is %+v", ev)
		}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		c.expect(rdmacm.EventEstablished)
		w.destroy(s)
		c.expect(rdmacm.EventDisconnected)
		c.close()
	})
}

// An endpoint whose QP the program still uses is busy, and works on.
func TestC_EP_12_BusyEndpoint(t *testing.T) {
	in(t, func(w *world) {
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", &rdmacm.AddrInfo{PortSpace: rdmacm.PSUDP}))(w)
		id := must(w.a.CreateEP(bg, res, nil, udInit()))(w)
		group := verbs.GIDFromAddr(group4)
		w.ok(id.QP().AttachMcast(group, 0)) // without the ID's knowing
		w.errno(id.Close(), syscall.EBUSY)
		if id.QP() == nil || id.QP().State() != verbs.QPSRTS {
			t.Fatal("the QP has gone all the same")
		}
		w.ok(id.QP().DetachMcast(group, 0))
		w.ok(id.Close())
		if !errors.Is(id.Close(), rdmacm.ErrClosed) {
			t.Error("the endpoint is still there")
		}
	})
}
