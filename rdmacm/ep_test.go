package rdmacm_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestDialAndListen(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		done := make(chan *rdmacm.ID)
		go func() { done <- must(l.Accept(bg))(w) }()
		c := must(rdmacm.Dial(bg, at(addrB, l.Addr().Port()).String(), &rdmacm.Options{Host: w.a}))(w)
		s := <-done
		w.exchange(&end{c, w, nil}, &end{s, w, nil})
		w.ok(c.Close())
		w.ok(s.Close())
		w.ok(l.Close())
		_, err := rdmacm.Dial(bg, at(addrB, port).String(), &rdmacm.Options{Host: w.a})
		w.errno(err, syscall.ECONNREFUSED)
	})
}

func TestC_EP_Endpoints(t *testing.T) {
	in(t, func(w *world) {
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive}))(w)
		init := qpInit()
		l := must(w.b.CreateEP(bg, res, nil, init))(w) // C-EP-01, C-FLOW-03
		w.ok(l.Listen(0))                              // C-EP-06
		got := make(chan *rdmacm.ID)
		go func() { got <- must(l.GetRequest(bg))(w) }()
		dst := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", nil))(w)
		dst.Connect = []byte("prefix:")
		c := must(w.a.CreateEP(bg, dst, nil, qpInit()))(w)
		if c.QP() == nil || c.Verbs() == nil || len(c.Route().PathRec) != 1 { // C-EP-02, C-EP-03, C-EP-01
			t.Error("the active endpoint cannot connect")
		}
		w.errno(c.Connect(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 50)}), syscall.EINVAL)
		go func() { w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte("mine")})); got <- c }()
		// C-EP-07, C-REQ-01, C-REQ-03, C-REQ-04
		s := <-got
		if s.QP() == nil || string(s.Event().Conn.PrivateData[:11]) != "prefix:mine" { // C-EP-05, C-REQ-05, C-CONN-07
			t.Errorf("%+v", s.Event())
		}
		w.ok(s.Accept(bg, nil))
		<-got
		w.exchange(&end{c, w, nil}, &end{s, w, nil})
		for _, id := range []*rdmacm.ID{c, s, l} {
			w.ok(id.Close()) // C-EP-12, C-EP-09, C-ID-06
		}
		e := must(w.a.CreateEP(bg, dst, nil, nil))(w)
		if e.QP() != nil { // C-EP-04
			t.Error("a QP that nobody asked for")
		}
		w.ok(e.Close())
		dst.Route = []byte("no path")
		_, err := w.a.CreateEP(bg, dst, nil, nil)
		w.errno(err, syscall.EINVAL)
		dst.DstAddr, dst.Route = netip.AddrPort{}, nil
		_, err = w.a.CreateEP(bg, dst, nil, nil)
		w.errno(err, syscall.EINVAL) // C-EP-10
	})
}

// A passive endpoint without QP attributes makes no QPs.
func TestC_EP_04_RequestsWithoutQP(t *testing.T) {
	in(t, func(w *world) {
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive}))(w)
		l := must(w.b.CreateEP(bg, res, nil, nil))(w)
		w.ok(l.Listen(0))
		c := w.resolved(rdmacm.PSTCP, at(addrB, 7471))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		s := must(l.GetRequest(bg))(w)
		if s.QP() != nil {
			t.Error("a QP that nobody asked for")
		}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		c.expect(rdmacm.EventEstablished)
		w.ok(s.Close())
		c.expect(rdmacm.EventDisconnected)
		c.close()
		w.ok(l.Close())
	})
}

// The type of the QPs of an endpoint is that of the address, whatever the attributes say, on both sides.
func TestEndpointHasTheTypeOfItsAddress(t *testing.T) {
	in(t, func(w *world) {
		wrong := func() *verbs.QPInitAttr {
			init := qpInit()
			init.Type = verbs.QPTypeUD
			return init
		}
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive}))(w)
		l := must(w.b.CreateEP(bg, res, nil, wrong()))(w)
		w.ok(l.Listen(0))
		connected := make(chan error)
		c := must(w.a.CreateEP(bg, must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", nil))(w), nil, wrong()))(w)
		go func() { connected <- c.Connect(bg, nil) }()
		s := must(l.GetRequest(bg))(w)
		if c.QP().Type() != verbs.QPTypeRC || s.QP().Type() != verbs.QPTypeRC {
			t.Errorf("QPs of type %v and %v", c.QP().Type(), s.QP().Type())
		}
		w.ok(s.Accept(bg, nil))
		w.ok(<-connected)
		for _, id := range []*rdmacm.ID{c, s, l} {
			w.ok(id.Close())
		}
	})
}

func TestC_REQ_02_OnlySynchronous(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		_, err := l.GetRequest(bg)
		w.errno(err, syscall.EINVAL)
		l.close()
	})
}

func TestC_GAI_GetAddrInfo(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		node, service string
		hints         *rdmacm.AddrInfo
		want          rdmacm.AddrInfo
	}{
		// C-GAI-01, C-GAI-03, C-GAI-06, C-GAI-12, C-GAI-13
		{"192.0.2.1", "7471", nil, rdmacm.AddrInfo{Family: 2, QPType: verbs.QPTypeRC, PortSpace: rdmacm.PSTCP,
			DstAddr: at(v4, 7471)}},
		// C-GAI-14
		{"2001:db8::1", "", nil, rdmacm.AddrInfo{Family: 10, QPType: verbs.QPTypeRC, PortSpace: rdmacm.PSTCP,
			DstAddr: at(v6, 0)}},
		{"192.0.2.1", "7", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSUDP}, // C-GAI-04, C-GAI-05
			rdmacm.AddrInfo{Flags: 1, Family: 2, QPType: verbs.QPTypeUD, PortSpace: rdmacm.PSUDP, SrcAddr: at(v4, 7)}},
		{"", "7", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive},
			rdmacm.AddrInfo{Flags: 1, Family: 2, QPType: 2, PortSpace: rdmacm.PSTCP, SrcAddr: at(netip.IPv4Unspecified(), 7)}},
		{"", "7", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, Family: rdmacm.AFInet6},
			rdmacm.AddrInfo{Flags: 1, Family: 10, QPType: 2, PortSpace: rdmacm.PSTCP, SrcAddr: at(netip.IPv6Unspecified(), 7)}},
		// C-GAI-07
		{"", "", &rdmacm.AddrInfo{DstAddr: at(v4, 9), QPType: verbs.QPTypeUD},
			rdmacm.AddrInfo{Family: 2, QPType: 4, PortSpace: rdmacm.PSUDP, DstAddr: at(v4, 9)}},
		{"192.0.2.1", "1", &rdmacm.AddrInfo{SrcAddr: at(v4, 2), PortSpace: rdmacm.PSIB, QPType: verbs.QPTypeUC},
			rdmacm.AddrInfo{Family: 2, QPType: 3, PortSpace: rdmacm.PSIB, SrcAddr: at(v4, 2), DstAddr: at(v4, 1)}}, // C-GAI-20
		{"192.0.2.1", "1", &rdmacm.AddrInfo{Flags: rdmacm.RAINoRoute | rdmacm.RAINumericHost}, // C-GAI-09
			rdmacm.AddrInfo{Flags: 6, Family: 2, QPType: 2, PortSpace: rdmacm.PSTCP, DstAddr: at(v4, 1)}},
	} {
		got, err := rdmacm.GetAddrInfo(bg, c.node, c.service, c.hints)
		if err != nil {
			t.Errorf("%q %q %+v: %v", c.node, c.service, c.hints, err)
			continue
		}
		if g, w := *got, c.want; g.Flags != w.Flags || g.Family != w.Family || g.QPType != w.QPType ||
			g.PortSpace != w.PortSpace || g.SrcAddr != w.SrcAddr ||
			// C-GAI-11, C-GAI-15, C-GAI-16, C-GAI-17, C-GAI-18, C-GAI-21
			g.DstAddr != w.DstAddr || g.Next != nil || len(g.Route) != 0 || len(g.Connect) != 0 {
			t.Errorf("%q %q %+v:\ngot  %+v\nwant %+v", c.node, c.service, c.hints, g, w)
		}
	}
	if _, err := rdmacm.GetAddrInfo(bg, "", "", nil); !errors.Is(err, syscall.EINVAL) { // C-GAI-02
		t.Error(err)
	}
	if _, err := rdmacm.GetAddrInfo(bg, "192.0.2.1", "1", &rdmacm.AddrInfo{Family: 17}); !errors.Is(err,
		syscall.EOPNOTSUPP) {
		t.Error(err)
	}
	if _, err := rdmacm.GetAddrInfo(bg, "192.0.2.1", "1", &rdmacm.AddrInfo{Flags: 0x80}); !errors.Is(err,
		syscall.EOPNOTSUPP) {
		t.Error(err)
	}
	// C-GAI-03: a name, and the name of a service.
	if res, err := rdmacm.GetAddrInfo(bg, "localhost", "http", nil); err != nil || !res.DstAddr.Addr().IsLoopback() ||
		res.DstAddr.Port() != 80 {
		t.Errorf("%+v, %v", res, err)
	}
	var dns *net.DNSError
	// C-GAI-08
	if _, err := rdmacm.GetAddrInfo(bg, "a-name", "1", &rdmacm.AddrInfo{Flags: rdmacm.RAINumericHost}); !errors.As(err,
		&dns) || !dns.IsNotFound {
		t.Error(err)
	}
	// C-GAI-10
	if _, err := rdmacm.GetAddrInfo(bg, "192.0.2.1", "1", &rdmacm.AddrInfo{Family: rdmacm.AFInet6}); !errors.As(err,
		&dns) || !dns.IsNotFound {
		t.Error(err)
	}
	if _, err := rdmacm.GetAddrInfo(bg, "192.0.2.1", "1",
		&rdmacm.AddrInfo{PortSpace: rdmacm.PSTCP, QPType: verbs.QPTypeUD}); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}

func TestC_QP_Creation(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.errno(e.CreateQP(nil, qpInit()), syscall.EINVAL) // C-QP-02
		_, err := e.RegMsgs(make([]byte, 8))
		w.errno(err, syscall.EINVAL)   // V-REG-04
		w.ok(e.BindAddr(at(addrA, 0))) // C-QP-01
		w.errno(e.CreateQP(nil, nil), syscall.EINVAL)
		w.errno(e.CreateQP(nil, &verbs.QPInitAttr{Type: verbs.QPTypeUD}), syscall.EINVAL)
		other := w.newEnd(w.b, rdmacm.PSTCP)
		w.ok(other.BindAddr(at(addrB, 0)))
		w.errno(e.CreateQP(other.PD(), qpInit()), syscall.EINVAL) // C-QP-01
		other.close()
		init := qpInit()
		w.ok(e.CreateQP(nil, init))
		if e.QP() == nil || init.Cap.MaxSendWR < 4 || init.SendCQ != e.SendCQ() || e.SendCQ().CQContext() != e.ID ||
			e.SendCQChannel() == nil ||
			// C-QP-04, C-QP-07, C-QP-09, C-QP-12
			e.SendCQ() == e.RecvCQ() || e.RecvCQChannel() == nil || e.RecvCQ().Cap() < 4 || e.QP().State() != verbs.QPSInit {
			t.Errorf("%+v", init)
		}
		w.errno(e.CreateQP(nil, qpInit()), syscall.EINVAL) // C-QP-10
		mr := must(e.RegMsgs(make([]byte, 16)))(w)
		w.ok(e.PostRecv(1, mr.Bytes()[:4], mr))                                    // V-RCV-01, V-RCV-02
		w.errno(e.PostRecv(1, make([]byte, 4), mr), syscall.EINVAL)                // V-RCV-06
		w.errno(e.PostSend(1, mr.Bytes(), mr, verbs.SendSignaled), syscall.EINVAL) // V-SND-02
		w.ok(mr.Close())
		pd := e.PD()
		w.ok(e.DestroyQP())
		if e.QP() != nil || e.SendCQ() != nil || e.SendCQChannel() != nil || e.PD() != pd { // C-QP-15, C-QP-06
			t.Error("something is left of the QP")
		}
		cq := must(e.Verbs().CreateCQ(4, nil))(w)
		init = qpInit()
		init.SendCQ, init.RecvCQ = cq, cq
		w.ok(e.CreateQP(nil, init))
		if e.SendCQ() != nil || e.RecvCQ() != nil { // C-QP-08
			t.Error("the program's CQ is the ID's")
		}
		_, err = e.GetSendComp(bg)
		w.errno(err, syscall.EINVAL)
		w.ok(e.DestroyQP())
		w.ok(cq.Close())
		e.close()
	})
}

func TestC_SRQ_SharedReceiveQueue(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.newEnd(w.a, rdmacm.PSTCP)
		attr := &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 3, MaxSGE: 1}}
		w.errno(c.CreateSRQ(nil, attr), syscall.EINVAL) // C-SRQ-02
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		w.ok(c.ResolveRoute(bg, timeout))
		c.expect(rdmacm.EventRouteResolved)
		w.ok(c.CreateSRQ(nil, attr))                    // C-SRQ-01, C-SRQ-03
		w.errno(c.CreateSRQ(nil, attr), syscall.EINVAL) // C-SRQ-06
		if attr.Attr.MaxWR < 3 {                        // C-SRQ-05
			t.Error("the sizes are not told")
		}
		w.ok(c.CreateQP(nil, qpInit()))
		if c.QP().SRQ() != c.SRQ() { // C-QP-11
			t.Error("the QP does not use the SRQ")
		}
		w.errno(c.DestroySRQ(), syscall.EBUSY)
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		if !ev.Conn.SRQ { // C-PARM-15
			t.Error("the peer does not know of the SRQ")
		}
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		w.exchange(s, c) // C-SRQ-10, V-RCV-03
		s.closeID()
		w.ok(c.DestroyQP())
		w.ok(c.DestroySRQ()) // C-SRQ-09
		w.errno(c.DestroySRQ(), syscall.EINVAL)
		c.close()
		l.close()
	})
}

func TestV_RDM_ReadsAndWrites(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		forRead := must(s.RegRead([]byte("read me")))(w) // V-REG-05, V-REG-06
		forWrite := must(s.RegWrite(make([]byte, 8)))(w)
		local := must(c.RegMsgs(make([]byte, 8)))(w)
		w.ok(c.PostRead(1, local.Bytes()[:7], local, verbs.SendSignaled, forRead.Addr(), forRead.RKey()))
		// V-RDM-01, V-REG-01
		if wc := must(c.GetSendComp(bg))(w); wc.WRID != 1 || wc.Opcode != verbs.WCRDMARead ||
			string(local.Bytes()[:7]) != "read me" {
			t.Errorf("%+v %q", wc, local.Bytes())
		}
		w.ok(c.PostWrite(2, []byte("written!"), nil, verbs.SendSignaled|verbs.SendInline, forWrite.Addr(), forWrite.RKey()))
		// V-RDM-03, V-RDM-04, V-CMP-01
		if wc := must(c.GetSendComp(bg))(w); wc.WRID != 2 || string(forWrite.Bytes()) != "written!" {
			t.Errorf("%+v %q", wc, forWrite.Bytes())
		}
		// V-RDM-02
		w.errno(c.PostRead(1, local.Bytes(), nil, verbs.SendSignaled, forRead.Addr(), forRead.RKey()), syscall.EINVAL)
		w.ok(c.PostWrite(3, local.Bytes()[:1], local, verbs.SendSignaled, forRead.Addr(), forRead.RKey()))
		if wc := must(c.GetSendComp(bg))(w); wc.Status != verbs.WCRemAccessErr { // V-REG-02
			t.Errorf("%v", wc.Status)
		}
		for _, mr := range []*verbs.MR{forRead, forWrite, local} {
			w.ok(mr.Close()) // V-REG-07, V-REG-09
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// ECE in both directions.
func TestECE(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.errno(c.SetLocalECE(rdmacm.ECE{VendorID: 1 << 24}), syscall.EINVAL)
		w.ok(c.SetLocalECE(rdmacm.ECE{VendorID: 0x15b3, Options: 7}))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		if ev.ECE != (rdmacm.ECE{VendorID: 0x15b3, Options: 7}) || ev.ID.RemoteECE() != ev.ECE {
			t.Errorf("%+v", ev.ECE)
		}
		w.ok(ev.ID.RejectECE(nil))
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		if ev := c.expect(rdmacm.EventRejected); ev.Status != 35 {
			t.Errorf("status %d", ev.Status)
		}
		c.close()

		own := rdmacm.ECE{VendorID: 0x2c9, Options: 9}
		c = w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		ev = w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.SetLocalECE(own))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		if ev := c.expect(rdmacm.EventEstablished); ev.ECE != own || c.RemoteECE() != own {
			t.Errorf("the client has %+v and %+v of the server", ev.ECE, c.RemoteECE())
		}
		s.expect(rdmacm.EventEstablished)
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()
	})
}

// An endpoint leaves its groups when it is closed: its QP could not be destroyed otherwise.
func TestCloseOfAnEndpointInAGroup(t *testing.T) {
	in(t, func(w *world) {
		hints := &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSUDP}
		id := must(w.a.CreateEP(bg, must(rdmacm.GetAddrInfo(bg, addrA.String(), "7471", hints))(w), nil, nil))(w)
		w.ok(id.CreateQP(nil, udInit()))
		w.ok(id.JoinMulticast(bg, at(group4, 0), nil))
		w.ok(id.Close())
	})
}

// The request of a client is refused if the QP of an endpoint cannot be made for it.
func TestRequestOfAnEndpointWithoutRoomForTheQP(t *testing.T) {
	in(t, func(w *world) {
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive}))(w)
		l := must(w.b.CreateEP(bg, res, nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1 << 22, MaxRecvWR: 1}}))(w)
		w.ok(l.Listen(0))
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{QPNum: 5}))
		id, err := l.GetRequest(bg)
		w.errno(err, syscall.EINVAL)
		if id != nil {
			t.Error("GetRequest has returned an ID")
		}
		c.expect(rdmacm.EventRejected)
		c.close()
		w.ok(l.Close())
	})
}
