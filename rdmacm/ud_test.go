package rdmacm_test

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

var (
	group4 = netip.MustParseAddr("239.1.2.3")
	group6 = netip.MustParseAddr("ff0e::1:2:3")
)

// udInit has room for a GRH and a message.
func udInit() *verbs.QPInitAttr { return &verbs.QPInitAttr{Cap: caps} }

func TestC_FLOW_04_Datagrams(t *testing.T) {
	in(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(l.BindAddr(at(netip.IPv4Unspecified(), port)))
		w.ok(l.Listen(0))
		c := w.resolved(rdmacm.PSUDP, at(addrB, port))
		w.ok(c.CreateQP(nil, udInit()))
		if a, _, _ := c.QP().Query(0); c.QP().State() != verbs.QPSRTS || a.QKey != rdmacm.UDPQKey || a.SQPSN != 0 { // C-QP-05
			t.Errorf("%v %#x, PSN %d", c.QP().State(), a.QKey, a.SQPSN)
		}
		w.errno(c.Connect(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 181)}), syscall.EINVAL) // C-PARM-04
		w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte("who")}))                        // C-CONN-02
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		// C-PARM-21
		if len(ev.UD.PrivateData) != 180 || string(ev.UD.PrivateData[:3]) != "who" || ev.ID.PeerAddr() != c.LocalAddr() {
			t.Errorf("%+v", ev.UD)
		}
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, udInit()))
		buf := make([]byte, 64)
		mr := must(s.RegMsgs(buf))(w)
		w.ok(s.PostRecv(3, buf, mr))
		w.errno(s.Accept(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 137)}), syscall.EINVAL)
		w.ok(s.Accept(bg, &rdmacm.ConnParam{PrivateData: []byte("me")}))
		w.ok(ev.Ack())
		est := c.expect(rdmacm.EventEstablished)
		// C-PARM-20
		if est.UD.QPNum != s.QP().QPN() || est.UD.QKey != rdmacm.UDPQKey || len(est.UD.PrivateData) != 136 ||
			string(est.UD.PrivateData[:2]) != "me" {
			t.Errorf("%+v", est.UD) // C-CONN-06
		}
		l.none()                                       // C-ACC-09
		ah := must(c.PD().CreateAH(&est.UD.AHAttr))(w) // C-PARM-19
		// C-PS-03, V-UD-01, V-UD-02
		w.ok(c.PostUDSend(4, []byte("hello"), nil, verbs.SendInline|verbs.SendSignaled, ah, est.UD.QPNum))
		wc := must(s.GetRecvComp(bg))(w)
		if wc.Status != verbs.WCSuccess || string(buf[40:wc.ByteLen]) != "hello" {
			t.Errorf("%+v", wc)
		}
		w.ok(ah.Close())
		w.ok(mr.Close())
		w.errno(c.Disconnect(bg), syscall.EINVAL)
		s.closeID()
		c.close()
		l.close()
	})
}

func TestC_REJ_05_DatagramsRefused(t *testing.T) {
	in(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0))
		c := w.resolved(rdmacm.PSUDP, at(addrB, port))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		w.errno(ev.ID.Reject(make([]byte, 137)), syscall.EINVAL) // C-PARM-05
		w.ok(ev.ID.Reject(append([]byte("no"), bytes.Repeat([]byte{9}, 134)...)))
		w.errno(ev.ID.Accept(bg, &rdmacm.ConnParam{QPNum: 5}), syscall.EINVAL)
		w.ok(ev.ID.Close())
		if ev := c.expect(rdmacm.EventUnreachable); ev.Status != 2 || string(ev.UD.PrivateData[:2]) != "no" ||
			len(ev.UD.PrivateData) != 136 || ev.UD.PrivateData[135] != 9 {
			t.Errorf("%+v", ev)
		}
		c.close()
		d := w.resolved(rdmacm.PSUDP, at(addrB, port+1))
		w.ok(d.Connect(bg, nil))
		if ev := d.expect(rdmacm.EventUnreachable); ev.Status != 1 || ev.Err() == nil { // C-CONN-08, C-EVT-19
			t.Errorf("%+v", ev)
		}
		d.close()
		x := w.resolved(rdmacm.PSUDP, at(netip.MustParseAddr("198.18.0.77"), port))
		w.ok(x.Connect(bg, nil))
		if ev := x.expect(rdmacm.EventUnreachable); ev.Status != -int(syscall.ETIMEDOUT) {
			t.Errorf("%+v", ev)
		}
		x.close()
		l.close()
	})
}

func TestC_MC_01_JoinSendLeave(t *testing.T) {
	in(t, func(w *world) {
		for _, g := range []struct{ group, a, b netip.Addr }{{group4, addrA, addrB}, {group6, addrA6, addrB6}} {
			member := func(h *rdmacm.Host, a netip.Addr) *end {
				e := w.newEnd(h, rdmacm.PSUDP)
				w.errno(e.JoinMulticast(bg, at(g.group, 0), nil), syscall.EINVAL) // C-MC-02
				w.ok(e.BindAddr(at(a, 0)))
				w.ok(e.CreateQP(nil, udInit()))
				return e
			}
			a, b := member(w.a, g.a), member(w.b, g.b)
			w.errno(b.JoinMulticast(bg, at(g.b, 0), nil), syscall.EINVAL)
			w.ok(b.JoinMulticast(bg, at(g.group, 0), "my context"))
			w.errno(b.JoinMulticast(bg, at(g.group, 0), nil), syscall.EINVAL)
			ev := b.expect(rdmacm.EventMulticastJoin) // C-MC-01, C-MC-12
			if ev.UD.QPNum != 0xFFFFFF || ev.UD.QKey != rdmacm.UDPQKey || ev.UD.Context != "my context" ||
				ev.UD.PrivateData != nil ||
				ev.UD.AHAttr.GRH.DGID != verbs.GIDFromAddr(g.group) { // C-MC-06, C-MC-08, C-MC-10
				t.Errorf("%+v", ev.UD)
			}
			// C-MC-22, C-MC-17
			w.ok(a.JoinMulticastEx(bg, &rdmacm.JoinMCAttr{CompMask: 3, JoinFlags: rdmacm.JoinSendOnlyFullMember,
				Addr: at(g.group, 0)}, nil))
			ev = a.expect(rdmacm.EventMulticastJoin)
			buf := make([]byte, 64)
			mr := must(b.RegMsgs(buf))(w)
			w.ok(b.PostRecv(1, buf, mr))
			own := make([]byte, 64)
			mrA := must(a.RegMsgs(own))(w)
			w.ok(a.PostRecv(1, own, mrA))
			ah := must(a.PD().CreateAH(&ev.UD.AHAttr))(w)
			send := func() {
				w.ok(a.PostUDSend(2, []byte("all"), nil, verbs.SendInline|verbs.SendSignaled, ah, ev.UD.QPNum))
				must(a.GetSendComp(bg))(w)
				synctest.Wait()
			}
			send()
			if wc := must(b.GetRecvComp(bg))(w); string(buf[40:wc.ByteLen]) != "all" {
				t.Errorf("%+v", wc)
			}
			var wcs [1]verbs.WC
			if n, _ := a.RecvCQ().Poll(wcs[:]); n != 0 { // C-MC-13, C-MC-16, C-MC-15
				t.Error("a member that only sends has received")
			}
			w.ok(b.PostRecv(1, buf, mr))
			w.ok(b.LeaveMulticast(at(g.group, 0)))
			w.errno(b.LeaveMulticast(at(g.group, 0)), syscall.EADDRNOTAVAIL)
			w.errno(b.LeaveMulticast(at(g.b, 0)), syscall.EINVAL)
			send()
			if n, _ := b.RecvCQ().Poll(wcs[:]); n != 0 { // C-MC-18
				t.Error("a message came after leaving")
			}
			w.ok(b.JoinMulticast(bg, at(g.group, 0), nil))
			w.ok(b.LeaveMulticast(at(g.group, 0))) // C-MC-19
			b.none()
			w.ok(b.JoinMulticast(bg, at(g.group, 0), nil))
			b.expect(rdmacm.EventMulticastJoin)
			w.ok(ah.Close())
			w.ok(mr.Close())
			w.ok(mrA.Close())
			b.close() // C-ID-12, C-MC-18
			a.close()
		}
	})
}

func TestC_MC_11_Attributes(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(e.BindAddr(at(addrA, 0)))
		for _, c := range []struct {
			attr  *rdmacm.JoinMCAttr
			errno syscall.Errno
		}{
			{nil, syscall.EINVAL}, {&rdmacm.JoinMCAttr{CompMask: 7, Addr: at(group4, 0)}, syscall.EOPNOTSUPP},
			{&rdmacm.JoinMCAttr{CompMask: 4, Addr: at(group4, 0)}, syscall.EOPNOTSUPP},
			{&rdmacm.JoinMCAttr{CompMask: 2, Addr: at(group4, 0)}, syscall.EINVAL},
			{&rdmacm.JoinMCAttr{CompMask: 1, Addr: at(group4, 0)}, syscall.EINVAL},
			{&rdmacm.JoinMCAttr{CompMask: 3, JoinFlags: 2, Addr: at(group4, 0)}, syscall.EINVAL},
			{&rdmacm.JoinMCAttr{CompMask: 3}, syscall.EINVAL},
		} {
			w.errno(e.JoinMulticastEx(bg, c.attr, nil), c.errno)
		}
		e.none()
		e.close()
		s := must(w.a.CreateID(nil, rdmacm.PSUDP, nil))(w)
		w.ok(s.BindAddr(at(addrA, 0)))
		w.ok(s.JoinMulticast(bg, at(group4, 0), 5))
		if ev := s.Event(); ev.Type != rdmacm.EventMulticastJoin || ev.UD.Context != 5 {
			t.Errorf("%+v", ev)
		}
		w.ok(s.LeaveMulticast(at(group4, 0)))
		w.ok(s.Close())
	})
}

// LeaveMulticast acknowledges the event of a synchronous ID if it is of that group, and no other one.
func TestLeaveKeepsTheEventOfAnotherGroup(t *testing.T) {
	in(t, func(w *world) {
		id := must(w.a.CreateID(nil, rdmacm.PSUDP, nil))(w)
		w.ok(id.BindAddr(at(addrA, 0)))
		other := netip.MustParseAddr("239.1.2.77")
		w.ok(id.JoinMulticast(bg, at(other, 0), nil))
		w.ok(id.JoinMulticast(bg, at(group4, 0), "last"))
		w.ok(id.LeaveMulticast(at(other, 0)))
		if ev := id.Event(); ev == nil || ev.UD.Context != "last" {
			t.Errorf("after leaving the other group the event is %v", ev)
		}
		w.ok(id.LeaveMulticast(at(group4, 0)))
		if ev := id.Event(); ev != nil {
			t.Errorf("after leaving its group the event is %v", ev)
		}
		w.ok(id.Close())
	})
}
