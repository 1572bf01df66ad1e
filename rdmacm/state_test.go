package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

func (w *world) errno(err error, want syscall.Errno) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("got %v, want %v", err, want)
	}
}

func TestC_PS_01_UnknownPortSpace(t *testing.T) {
	in(t, func(w *world) {
		_, err := w.a.CreateID(nil, 0x0107, nil)
		w.errno(err, syscall.EINVAL)
	})
}

func TestC_ID_03_ContextAndTypes(t *testing.T) {
	in(t, func(w *world) {
		for ps, typ := range map[rdmacm.PortSpace]verbs.QPType{
			rdmacm.PSTCP: verbs.QPTypeRC, rdmacm.PSUDP: verbs.QPTypeUD, rdmacm.PSIPoIB: verbs.QPTypeUD,
			rdmacm.PSIB: verbs.QPTypeRC,
		} {
			id := must(w.a.CreateID(nil, ps, "mine"))(w)                     // C-ID-02
			if id.Context != "mine" || id.PS() != ps || id.QPType() != typ { // C-ID-01, C-ID-04
				t.Errorf("%v %v %v", id.Context, id.PS(), id.QPType())
			}
			if id.Verbs() != nil || id.PD() != nil || id.QP() != nil || id.Event() != nil || id.LocalAddr().IsValid() ||
				id.SrcPort() != 0 || id.DstPort() != 0 {
				t.Error("a new ID has something already") // C-ID-05, C-QRY-01 to 04
			}
			w.ok(id.Close())
			w.errno(id.Close(), syscall.EINVAL)
			if !errors.Is(id.Close(), rdmacm.ErrClosed) {
				t.Error("a closed ID does not say so")
			}
		}
	})
}

// Every call in a state that does not allow it is EINVAL, and leaves the ID usable.
func TestC_ID_21_WrongState(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		e := w.newEnd(w.a, rdmacm.PSTCP)
		calls := map[string]func() error{
			"route":      func() error { return e.ResolveRoute(bg, timeout) },
			"connect":    func() error { return e.Connect(bg, &rdmacm.ConnParam{QPNum: 1}) },
			"accept":     func() error { return e.Accept(bg, &rdmacm.ConnParam{QPNum: 1}) },
			"reject":     func() error { return e.Reject(nil) },
			"disconnect": func() error { return e.Disconnect(bg) },
			"establish":  e.Establish,
			"notify":     func() error { return e.Notify(verbs.EventCommEst) },
			"bind":       func() error { return e.BindAddr(at(addrA, 0)) },
			"addr":       func() error { return e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout) },
			"listen":     func() error { return e.Listen(1) },
			"request":    func() error { _, err := e.GetRequest(bg); return err },
			"destroy qp": e.DestroyQP,
			"join":       func() error { return e.JoinMulticast(bg, at(group4, 0), nil) },
		}
		wrong := func(allowed ...string) {
			t.Helper()
			for name, call := range calls {
				ok := false
				for _, a := range allowed {
					ok = ok || a == name
				}
				if ok {
					continue
				}
				if err := call(); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("%s: %v", name, err)
				}
			}
			e.none()
		}
		wrong("bind", "addr", "listen") // C-ROUTE-01
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		e.expect(rdmacm.EventAddrResolved)
		wrong("route") // C-CONN-03
		w.ok(e.ResolveRoute(bg, timeout))
		e.expect(rdmacm.EventRouteResolved)
		wrong("connect")
		w.errno(e.Connect(bg, nil), syscall.EINVAL) // C-PARM-18
		w.ok(e.CreateQP(nil, qpInit()))
		w.ok(e.Connect(bg, nil))
		req := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(req.Ack())
		wrong("destroy qp")
		w.errno(req.ID.Accept(bg, nil), syscall.EINVAL) // C-ACC-05 with D-16: no QP
		w.ok(req.ID.CreateQP(nil, qpInit()))
		w.ok(req.ID.Accept(bg, nil))
		e.expect(rdmacm.EventEstablished)
		(&end{req.ID, w, l.ch}).expect(rdmacm.EventEstablished)
		wrong("destroy qp", "disconnect", "notify")            // C-EST-04, C-ACC-02
		w.errno(e.Notify(verbs.EventCommEst), syscall.EISCONN) // C-NTF-02
		w.errno(e.Notify(verbs.EventQPFatal), syscall.EINVAL)  // C-NTF-05
		(&end{req.ID, w, l.ch}).closeID()
		e.expect(rdmacm.EventDisconnected)
		w.ok(e.Disconnect(bg))
		e.expect(rdmacm.EventTimewaitExit)
		wrong("destroy qp", "disconnect") // C-ID-22
		e.close()
		l.close()
	})
}

// An error has the call, the object, what was wrong and what is allowed, once each.
func TestErrorTexts(t *testing.T) {
	in(t, func(w *world) {
		id := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		says := func(err error, want string) {
			t.Helper()
			if err == nil || err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
		says(id.Connect(bg, nil), "connect: the ID is in IDLE: must be in ROUTE_RESOLVED (EINVAL) [TCP ID]")
		w.ok(id.BindAddr(at(addrA, 4000)))
		other := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		says(other.BindAddr(at(addrA, 4000)),
			"bind_addr: port 4000 is in use at 198.18.0.1 by another ID of this process (EADDRINUSE); close that ID, or "+
				"choose another port; port 0 stands for any free one [TCP ID 198.18.0.1:4000]")
		says(other.BindAddr(at(netip.IPv4Unspecified(), 4000)),
			"bind_addr: port 4000 is in use at 198.18.0.1 by another ID of this process (EADDRNOTAVAIL); close that ID, or "+
				"choose another port; port 0 stands for any free one [TCP ID 0.0.0.0:4000]")
		w.ok(other.Close())
		w.ok(id.ResolveAddr(bg, netip.AddrPort{}, at(addrB, 9), timeout))
		w.ok(id.ResolveRoute(bg, timeout))
		w.ok(id.CreateQP(nil, qpInit()))
		id.Channel().SetNonblock(true)
		w.errno(id.Connect(bg, nil), syscall.EAGAIN)
		says(id.Accept(bg, nil),
			"accept: the connection is REQ_SENT: no request waits for an answer (EINVAL) "+
				"[TCP ID 198.18.0.1:4000 to 198.18.0.2:9]")
		says(id.Disconnect(bg),
			"disconnect: the connection is not established; Close withdraws the request (EINVAL) "+
				"[TCP ID 198.18.0.1:4000 to 198.18.0.2:9]")
		w.ok(id.DestroyQP())
		says(id.Establish(),
			"establish: the ID is REQ_SENT: must be REP_RCVD or MRA_REP_SENT (EINVAL) [TCP ID 198.18.0.1:4000 to 198.18.0.2:9]")
		w.ok(id.Close())
	})
}

func TestC_ID_07_RequestInherits(t *testing.T) {
	in(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSTCP)
		l.Context = 42
		w.ok(l.BindAddr(at(netip.IPv4Unspecified(), port)))
		if l.Verbs() != nil {
			t.Error("a wildcard binds to a device") // C-BIND-02
		}
		w.ok(l.Listen(0))
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte("me"), ResponderResources: 3, InitiatorDepth: 5,
			FlowControl: true, RetryCount: 9, RNRRetryCount: 3}))
		ev := w.next(l.ch, rdmacm.EventConnectRequest) // C-ACC-01, C-LIS-01
		id := ev.ID
		// C-ID-07, C-EVT-05, C-EVT-06, C-PS-02
		if id.Context != 42 || id.Channel() != l.ch || id.PS() != rdmacm.PSTCP || id.QPType() != verbs.QPTypeRC ||
			ev.ListenID != l.ID {
			t.Error("the new ID differs from the listener")
		}
		if id.Verbs() == nil || id.PortNum() != 1 { // C-LIS-09, C-ACC-03
			t.Error("the new ID is not bound to a device")
		}
		if id.LocalAddr() != at(addrB, port) || id.PeerAddr() != c.LocalAddr() || id.SrcPort() != port { // C-QRY-05
			t.Errorf("addresses %v %v", id.LocalAddr(), id.PeerAddr())
		}
		p := ev.Conn
		// C-PARM-06, C-PARM-14, W-CM-05, T-02, T-09: mirrored depths, clamped retries, padded private data.
		if len(p.PrivateData) != 56 || string(p.PrivateData[:3]) != "me\x00" || p.ResponderResources != 5 ||
			p.InitiatorDepth != 3 ||
			!p.FlowControl || p.RetryCount != 7 || p.RNRRetryCount != 3 || p.QPNum != c.QP().QPN() || p.SRQ {
			t.Errorf("parameters %+v", p)
		}
		w.ok(ev.Ack())
		w.ok(id.CreateQP(nil, qpInit())) // C-FLOW-07
		w.ok(id.Accept(bg, &p))          // C-ACC-04
		est := c.expect(rdmacm.EventEstablished)
		// C-PARM-02, C-PARM-11, C-EVT-09
		if len(est.Conn.PrivateData) != 196 || est.Conn.ResponderResources != 3 || est.Conn.InitiatorDepth != 5 ||
			est.Conn.QPNum != id.QP().QPN() {
			t.Errorf("the client's parameters %+v", est.Conn)
		}
		s := &end{id, w, l.ch}
		if est := s.expect(rdmacm.EventEstablished); est.Conn.PrivateData != nil { // C-PARM-22
			t.Error("the server's ESTABLISHED has private data")
		}
		ca, _, _ := c.QP().Query(0)
		sa, _, _ := s.QP().Query(0)
		// W-CM-04, W-CM-06, C-QP-19, C-QP-20, C-PARM-12, C-PARM-13, C-PARM-16, T-01.
		if ca.RQPSN != sa.SQPSN || ca.SQPSN != sa.RQPSN || ca.RetryCnt != 7 || sa.RetryCnt != 7 || sa.RNRRetry != 3 ||
			ca.RNRRetry != 3 ||
			ca.MaxRdAtomic != 5 || ca.MaxDestRdAtomic != 3 || sa.MaxRdAtomic != 3 || sa.MaxDestRdAtomic != 5 ||
			ca.MinRNRTimer != 0 ||
			ca.PathMTU != sa.PathMTU || ca.Timeout == 0 || sa.Timeout == 0 {
			t.Errorf("client %+v\nserver %+v", ca, sa)
		}
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()
	})
}

func TestC_ID_09_CloseWithQPIsBusy(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.BindAddr(at(addrA, 0)))
		w.ok(e.CreateQP(nil, qpInit()))
		w.errno(e.Close(), syscall.EBUSY) // C-QP-16
		w.errno(w.a.Close(), syscall.EBUSY)
		e.close()
	})
}

func TestC_ID_10_CloseWaitsForAcks(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		ev := w.next(e.ch, rdmacm.EventAddrResolved)
		acked := false
		go func() {
			time.Sleep(time.Second)
			acked = true
			w.ok(ev.Ack())
		}()
		w.ok(e.Close()) // C-ID-10, C-EVT-03, C-EVT-12, C-EVT-15, T-22
		if !acked {
			t.Error("Close returned before the Ack")
		}
		w.errno(ev.Ack(), syscall.EINVAL)                   // C-EVT-13
		w.errno((*rdmacm.Event)(nil).Ack(), syscall.EINVAL) // C-EVT-14
		w.errno(new(rdmacm.Event).Ack(), syscall.EINVAL)
		w.ok(e.ch.Close())
	})
}

func TestC_ID_08_NoEventsAfterClose(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		w.ok(e.Close())
		e.none()
		w.ok(e.ch.Close())
	})
}

// Requests that the program has not retrieved are refused when the listener is closed, and so are later ones.
func TestC_ID_13_ListenerGoes(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		var clients []*end
		for range 2 {
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			clients = append(clients, c)
		}
		w.ok(clients[0].Connect(bg, nil))
		time.Sleep(time.Second)
		l.close()
		if ev := clients[0].expect(rdmacm.EventRejected); ev.Status != 28 {
			t.Errorf("status %d", ev.Status)
		}
		w.ok(clients[1].Connect(bg, nil))
		ev := clients[1].expect(rdmacm.EventRejected)
		if ev.Status != 8 || !errors.Is(ev.Err(), syscall.ECONNREFUSED) { // C-LIS-08, C-EVT-20, C-CONN-08
			t.Errorf("status %d, %v", ev.Status, ev.Err())
		}
		if st := clients[1].QP().State(); st != verbs.QPSErr { // C-EVT-11
			t.Errorf("the QP is in %v", st)
		}
		for _, c := range clients {
			w.errno(c.Connect(bg, nil), syscall.EINVAL) // C-ID-22
			c.close()
		}
	})
}

func TestC_ID_14_CloseInEveryState(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		start := func() (c, s *end) {
			c = w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			w.ok(c.Connect(bg, nil))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			w.ok(ev.Ack())
			return c, &end{ev.ID, w, l.ch}
		}
		c, s := start() // while connecting: REJ 4
		c.close()
		if ev := s.expect(rdmacm.EventRejected); ev.Status != 4 {
			t.Errorf("status %d", ev.Status)
		}
		w.errno(s.Accept(bg, &rdmacm.ConnParam{QPNum: 5}), syscall.EINVAL) // C-ACC-11
		s.closeID()
		c, s = start() // unanswered: REJ 28
		s.closeID()
		if ev := c.expect(rdmacm.EventRejected); ev.Status != 28 {
			t.Errorf("status %d", ev.Status)
		}
		c.close()
		c, s = w.connected(l, at(addrB, port)) // established: DREQ
		c.close()
		s.expect(rdmacm.EventDisconnected)
		s.closeID()
		l.close()
	})
}

func TestC_ID_15_Migrate(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		old := e.ch
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		next := must(w.a.CreateEventChannel())(w)
		w.ok(e.Migrate(next)) // C-ID-20
		e.none()
		e.ch = next
		ev := w.next(e.ch, rdmacm.EventAddrResolved)
		acked := false
		go func() { time.Sleep(time.Second); acked = true; w.ok(ev.Ack()) }()
		w.ok(e.Migrate(nil)) // C-ID-16, C-ID-18
		if !acked {
			t.Error("Migrate did not wait for the Ack")
		}
		w.errno(e.Migrate(nil), syscall.EINVAL)
		w.ok(e.ResolveRoute(bg, timeout))
		if ev := e.Event(); ev == nil || ev.Type != rdmacm.EventRouteResolved { // C-SYNC-01, C-SYNC-02, C-OVR-04
			t.Error("the migrated ID is not synchronous")
		}
		w.ok(e.Migrate(old)) // C-ID-19
		if e.Event() != nil {
			t.Error("the event is still there")
		}
		w.ok(next.Close())
		e.ch = old
		e.close()
	})
}

func TestC_CHAN_05_Descriptor(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		fd, err := e.ch.FD() // C-CHAN-04
		descriptors := !errors.Is(err, syscall.EOPNOTSUPP)
		if descriptors && (err != nil || fd < 0) {
			t.Error(fd, err)
		}
		_, err = e.ch.TryGetEvent()
		w.errno(err, syscall.EAGAIN)
		e.ch.SetNonblock(true)
		_, err = e.ch.GetEvent(bg) // C-EVT-02
		w.errno(err, syscall.EAGAIN)
		e.ch.SetNonblock(false)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err = e.ch.GetEvent(ctx); !errors.Is(err, context.DeadlineExceeded) { // C-EVT-01
			t.Error(err)
		}
		e.close()
		_, err = e.ch.GetEvent(bg)
		w.errno(err, syscall.EINVAL)
		if descriptors {
			_, err = e.ch.FD() // C-CHAN-07
			w.errno(err, syscall.EINVAL)
		}
		_, err = w.a.CreateID(e.ch, rdmacm.PSTCP, nil)
		w.errno(err, syscall.EINVAL)
	})
}

// A channel that is closed closes its IDs.
func TestC_CHAN_08_ChannelGoes(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		_ = s
		w.ok(l.ch.Close())
		c.expect(rdmacm.EventDisconnected)
		c.close()
	})
}

func TestC_CHAN_03_RangeAndSelect(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		var got []rdmacm.EventType
		for ev := range e.ch.Events(bg) {
			if got = append(got, ev.Type); ev.Type == rdmacm.EventRouteResolved {
				break
			}
			w.ok(e.ResolveRoute(bg, timeout))
		}
		if len(got) != 2 || got[0] != rdmacm.EventAddrResolved { // C-CHAN-01, C-EVT-07
			t.Error(got)
		}
		o := must(w.a.CreateID(e.ch, rdmacm.PSTCP, nil))(w)
		w.ok(o.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		<-e.ch.Ready()
		ev := must(e.ch.TryGetEvent())(w)
		if ev.ID != o { // C-CHAN-02
			t.Error("another ID's event")
		}
		w.ok(ev.Ack())
		w.ok(o.Close())
		e.close()
	})
}

func TestC_EVT_16_17_Names(t *testing.T) {
	for i, want := range []string{
		"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
		"CONNECT_ERROR", "UNREACHABLE", "REJECTED",
		"ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
	} {
		if got := rdmacm.EventType(i).String(); got != "RDMA_CM_EVENT_"+want {
			t.Errorf("event %d is %s", i, got)
		}
	}
	if rdmacm.EventEstablished.String() != "RDMA_CM_EVENT_ESTABLISHED" || rdmacm.EventTimewaitExit != 15 ||
		rdmacm.EventTimewaitExit.String() != "RDMA_CM_EVENT_TIMEWAIT_EXIT" ||
		rdmacm.EventType(99).String() != "UNKNOWN EVENT" {
		t.Error("wrong names")
	}
}

func TestC_SYNC_07_NonblockingAndCancelled(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		w.ok(c.ResolveRoute(bg, timeout))
		w.ok(c.CreateQP(nil, qpInit()))
		c.Channel().SetNonblock(true)
		w.errno(c.Connect(bg, nil), syscall.EAGAIN)
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.ID.Reject([]byte("no")))
		w.ok(ev.Ack())
		w.ok(ev.ID.Close()) // C-REJ-07
		time.Sleep(time.Second)
		got := must(c.Channel().TryGetEvent())(w)
		if got.Type != rdmacm.EventRejected || string(got.Conn.PrivateData[:2]) != "no" ||
			len(got.Conn.PrivateData) != 148 || got.Status != 28 {
			t.Errorf("%+v", got) // C-REJ-03, C-REJ-04, C-PARM-05
		}
		w.ok(got.Ack())
		w.ok(c.DestroyQP())
		w.ok(c.Close())
		d := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(d.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		w.ok(d.ResolveRoute(bg, timeout))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := d.Connect(ctx, &rdmacm.ConnParam{QPNum: 77}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.ok(d.Close())
		l.close()
	})
}

// A synchronous call that fails leaves its event, with the peer's private data.
func TestC_SYNC_04_EventOfAFailure(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		go func() {
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			w.errno(ev.ID.Reject(make([]byte, 149)), syscall.EINVAL) // C-REJ-06
			w.ok(ev.ID.Reject([]byte("no")))                         // C-REJ-01, C-REJ-02
			w.ok(ev.Ack())
			w.ok(ev.ID.Close())
		}()
		c := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		w.ok(c.ResolveRoute(bg, timeout))
		// C-SYNC-03, C-OVR-06, C-EVT-08
		w.errno(c.Connect(bg, &rdmacm.ConnParam{QPNum: 77}), syscall.ECONNREFUSED)
		// C-SYNC-04, T-21
		if ev := c.Event(); ev == nil || ev.Type != rdmacm.EventRejected || string(ev.Conn.PrivateData[:2]) != "no" {
			t.Errorf("%+v", ev)
		}
		w.ok(c.Close())
		l.close()
	})
}

// A program logs an ID by %v: as errors name it, not as its fields, which other goroutines change.
func TestIDPrintsAsErrorsNameIt(t *testing.T) {
	in(t, func(w *world) {
		id := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(id.BindAddr(at(addrA, 7471)))
		if got, want := fmt.Sprint(id), "TCP ID "+at(addrA, 7471).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		w.ok(id.Close())
	})
}
