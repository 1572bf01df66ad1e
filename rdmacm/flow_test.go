package rdmacm_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// The manual's client against its server, over both families, with the listener at its address and at a wildcard.
func TestC_FLOW_01_AsyncClientAndServer(t *testing.T) {
	for _, c := range []struct{ listen, dst netip.AddrPort }{
		{at(addrB, port), at(addrB, port)}, {at(netip.IPv4Unspecified(), port), at(addrB, port)},
		{at(addrB6, port), at(addrB6, port)}, {at(netip.IPv6Unspecified(), port), at(addrB6, port)},
	} {
		t.Run(testName(c.listen), func(t *testing.T) {
			in(t, func(w *world) {
				l := w.listen(c.listen, 10)
				cl, s := w.connected(l, c.dst) // C-CONN-01, C-EVT-21, C-EVT-18
				for _, e := range []*end{cl, s} {
					if st := e.QP().State(); st != verbs.QPSRTS { // C-CONN-04, C-ACC-07, C-QP-03, W-CM-13
						t.Errorf("the QP is in %v", st)
					}
				}
				w.exchange(cl, s) // V-SND-01, V-CMP-02, C-OVR-01
				w.exchange(s, cl)
				w.ok(cl.Disconnect(bg))
				s.expect(rdmacm.EventDisconnected)
				w.ok(s.Disconnect(bg))
				cl.expect(rdmacm.EventDisconnected)
				for _, e := range []*end{cl, s} {
					if st := e.QP().State(); st != verbs.QPSErr { // C-DISC-01
						t.Errorf("the QP is in %v after the disconnect", st)
					}
					e.expect(rdmacm.EventTimewaitExit)
				}
				s.closeID()
				cl.close()
				l.close()
			})
		})
	}
}

// exchange sends a message.
func (w *world) exchange(from, to *end) {
	w.Helper()
	src, dst := []byte("hello, "+from.LocalAddr().String()), make([]byte, 64)
	mrTo := must(to.RegMsgs(dst))(w)
	w.ok(to.PostRecv(7, dst, mrTo))
	w.ok(from.PostSend(8, src, nil, verbs.SendInline|verbs.SendSignaled))
	if wc := must(from.GetSendComp(bg))(w); wc.Status != verbs.WCSuccess || wc.WRID != 8 {
		w.Fatalf("send: %+v", wc)
	}
	wc := must(to.GetRecvComp(bg))(w)
	if wc.Status != verbs.WCSuccess || wc.WRID != 7 || string(dst[:wc.ByteLen]) != string(src) {
		w.Fatalf("receive: %+v, %q", wc, dst)
	}
	w.ok(mrTo.Close())
}

func TestC_FLOW_02_Synchronous(t *testing.T) {
	in(t, func(w *world) {
		l := must(w.b.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0)) // C-SYNC-06
		done := make(chan struct{})
		go func() {
			defer close(done)
			s := must(l.GetRequest(bg))(w)
			if ev := s.Event(); ev == nil || ev.Type != rdmacm.EventConnectRequest ||
				string(ev.Conn.PrivateData[:5]) != "hello" {
				t.Errorf("the request's event is %+v", ev)
			}
			w.ok(s.CreateQP(nil, qpInit()))
			w.ok(s.Accept(bg, &rdmacm.ConnParam{PrivateData: []byte("welcome"), ResponderResources: 2, InitiatorDepth: 3}))
			if ev := s.Event(); ev == nil || ev.Type != rdmacm.EventEstablished {
				t.Errorf("the event after Accept is %+v", ev)
			}
			w.ok(s.Disconnect(bg))
			w.ok(s.DestroyQP())
			w.ok(s.Close())
		}()
		c := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w) // C-SYNC-05
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		w.ok(c.CreateQP(nil, qpInit())) // C-FLOW-06
		w.ok(c.ResolveRoute(bg, timeout))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte("hello"), ResponderResources: 5, InitiatorDepth: 6,
			RetryCount: 7}))
		if ev := c.Event(); ev.Type != rdmacm.EventEstablished || string(ev.Conn.PrivateData[:7]) != "welcome" ||
			ev.Conn.ResponderResources != 3 || ev.Conn.InitiatorDepth != 2 {
			t.Errorf("the event after Connect is %+v", ev)
		}
		w.ok(c.Disconnect(bg)) // C-DISC-08
		w.ok(c.DestroyQP())
		w.ok(c.Close()) // C-ID-11
		<-done
		w.ok(l.Close())
	})
}
