package rdmacm_test

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Messages keep their boundaries, and several buffers make one message.
func TestC_OVR_02_V_RCV_05_Messages(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		buf, src := make([]byte, 64), []byte("onetwo")
		to, from := must(s.RegMsgs(buf))(w), must(c.RegMsgs(src))(w)
		w.ok(s.PostRecv(1, buf[:32], to))
		w.ok(s.PostRecv(2, buf[32:], to))
		w.ok(c.PostSend(3, src[:3], from, verbs.SendSignaled))
		w.ok(c.PostSend(4, src[3:], from, verbs.SendSignaled)) // V-SND-04
		for i, want := range []string{"one", "two"} {
			wc := must(s.GetRecvComp(bg))(w)
			if got := string(buf[32*i:][:wc.ByteLen]); got != want || wc.WRID != uint64(i+1) { // V-CMP-02, V-CMP-04
				t.Errorf("message %d is %q", i, got)
			}
			if wc := must(c.GetSendComp(bg))(w); wc.WRID != uint64(i+3) {
				t.Errorf("%+v", wc)
			}
		}
		w.ok(to.Close())
		w.ok(from.Close())
		s.closeID()
		c.close()
		l.close()
	})
}

// The ports of RDMA are not the kernel's.
func TestC_PS_06_PortsOfTheirOwn(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	defer tcp.Close()
	taken := uint16(tcp.Addr().(*net.TCPAddr).Port)
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.BindAddr(at(netip.IPv4Unspecified(), taken)))
		w.ok(e.Listen(0))
		e.close()
	})
}

func TestC_PS_04_AnyServiceOfPSIB(t *testing.T) {
	for client, server := range map[verbs.QPType]verbs.QPType{
		verbs.QPTypeRC: verbs.QPTypeRC, verbs.QPTypeUC: verbs.QPTypeUC, verbs.QPTypeXRCSend: verbs.QPTypeXRCRecv,
	} {
		t.Run(client.String(), func(t *testing.T) {
			in(t, func(w *world) {
				l := must(w.b.CreateEP(bg, must(rdmacm.GetAddrInfo(bg, "", "7471",
					&rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSIB, QPType: server}))(w), nil, qpInit()))(w)
				w.ok(l.Listen(0))
				got := make(chan *rdmacm.ID)
				go func() {
					s := must(l.GetRequest(bg))(w)
					if server == verbs.QPTypeXRCRecv {
						w.xrcReceiver(s)
					}
					w.ok(s.Accept(bg, nil))
					got <- s
				}()
				c := must(w.a.CreateEP(bg, must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471",
					&rdmacm.AddrInfo{PortSpace: rdmacm.PSIB, QPType: client}))(w), nil, qpInit()))(w)
				w.ok(c.Connect(bg, nil))
				s := <-got
				if c.QPType() != client || s.QPType() != server || s.QP().State() != verbs.QPSRTS ||
					c.QP().State() != verbs.QPSRTS {
					t.Errorf("%v in %v, %v in %v", c.QPType(), c.QP().State(), s.QPType(), s.QP().State())
				}
				if client == verbs.QPTypeXRCSend {
					w.xrcMessage(c, s)
				} else {
					w.exchange(&end{c, w, nil}, &end{s, w, nil})
				}
				for _, id := range []*rdmacm.ID{c, s, l} {
					w.ok(id.Close())
				}
			})
		})
	}
}

// xrcReceiver gives an ID of an XRC_RECV QP its SRQ, which has a CQ and a channel of its own.
func (w *world) xrcReceiver(s *rdmacm.ID) {
	w.Helper()
	if s.QP().XRCD() == nil || s.RecvCQ() != nil {
		w.Error("the QP is of no XRC domain, or has a CQ")
	}
	attr := &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 2, MaxSGE: 1}}
	w.ok(s.CreateSRQ(nil, attr))
	if srq := s.SRQ(); srq.XRCD() != s.QP().XRCD() || srq.CQ() != s.RecvCQ() || s.RecvCQ() == nil ||
		s.RecvCQChannel() == nil || s.RecvCQ().Cap() < 2 {
		w.Error("the SRQ is not of type XRC, or lacks its CQ")
	}
}

func (w *world) xrcMessage(c, s *rdmacm.ID) {
	w.Helper()
	buf := make([]byte, 8)
	mr := must(s.RegMsgs(buf))(w)
	w.ok(s.PostRecv(9, buf, mr))
	w.ok(c.QP().PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte("to all"),
		RemoteSRQN: must(s.SRQ().Num())(w),
	}))
	must(c.GetSendComp(bg))(w)
	if wc := must(s.GetRecvComp(bg))(w); wc.WRID != 9 || string(buf[:wc.ByteLen]) != "to all" {
		w.Errorf("%+v %q", wc, buf)
	}
	w.ok(mr.Close())
}

// A QP or SRQ by its extended attributes.
func TestC_QP_13_14_C_SRQ_04_07_08_Extended(t *testing.T) {
	in(t, func(w *world) {
		id := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(id.BindAddr(at(addrA, 0)))
		w.errno(id.CreateQP(nil, nil), syscall.EINVAL)
		ex := qpInit()
		ex.SendOpsFlags = verbs.QPExWithSend
		w.ok(id.CreateQP(nil, ex))
		if x, err := id.QP().Ex(); err != nil || x == nil || id.PD() != id.QP().PD() || ex.SendCQ != id.SendCQ() {
			t.Errorf("no extended QP: %v", err)
		}
		w.errno(id.CreateQP(nil, ex), syscall.EINVAL)
		w.ok(id.DestroyQP())
		w.errno(id.CreateSRQ(nil, nil), syscall.EINVAL)
		srq := &verbs.SRQInitAttr{Type: verbs.SRQTypeBasic, Attr: verbs.SRQAttr{MaxWR: 2, MaxSGE: 1}}
		w.ok(id.CreateSRQ(nil, srq))
		if id.RecvCQ() != nil || id.RecvCQChannel() != nil {
			t.Error("an SRQ of type basic has a CQ")
		}
		w.errno(id.CreateSRQ(nil, srq), syscall.EINVAL)
		w.ok(id.DestroySRQ())
		// An XRC SRQ on an ID of another type, with the CQ and the domain of the CM.
		srq.Type = verbs.SRQTypeXRC
		w.ok(id.CreateSRQ(nil, srq))
		if id.RecvCQ() == nil || id.SRQ().CQ() != id.RecvCQ() {
			t.Error("the SRQ has no CQ of the ID")
		}
		if ch := id.RecvCQChannel(); ch == nil || id.RecvCQ().Channel() != ch || id.SendCQ() != nil {
			t.Errorf("the channel of the SRQ's CQ is %v, the ID's %v", id.RecvCQ().Channel(), ch)
		}
		w.ok(id.DestroySRQ())
		if id.RecvCQ() != nil || id.RecvCQChannel() != nil {
			t.Error("the SRQ's CQ or its channel is left")
		}
		// With a CQ of the program the CM makes none.
		cq := must(id.Verbs().CreateCQ(4, nil))(w)
		srq.CQ = cq
		w.ok(id.CreateSRQ(nil, srq))
		if id.SRQ().CQ() != cq || id.RecvCQ() != nil || id.RecvCQChannel() != nil {
			t.Error("the program's CQ is not used, or the CM made another")
		}
		w.ok(id.DestroySRQ())
		w.ok(cq.Close())
		w.ok(id.Close())
	})
}

// The CQ that CreateSRQ has made goes with the SRQ, also if the ID has a QP, which does not use it: the next one has
// its own size.
func TestC_SRQ_09_TheCQGoesWithTheSRQ(t *testing.T) {
	in(t, func(w *world) {
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471",
			&rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSIB, QPType: verbs.QPTypeXRCRecv}))(w)
		id := must(w.b.CreateEP(bg, res, nil, nil))(w)
		w.ok(id.CreateQP(nil, qpInit()))
		attr := func(wr, sge uint32) *verbs.SRQInitAttr {
			return &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: wr, MaxSGE: sge}}
		}
		gone := func(after string) {
			t.Helper()
			if id.RecvCQ() != nil || id.RecvCQChannel() != nil {
				t.Errorf("after %s the CQ or its channel is left", after)
			}
		}
		w.errno(id.CreateSRQ(nil, attr(2, 1<<20)), syscall.EINVAL)
		gone("a failure")
		for _, n := range []uint32{2, 1000} {
			w.ok(id.CreateSRQ(nil, attr(n, 1)))
			if c := id.RecvCQ().Cap(); c < int(n) {
				t.Errorf("a CQ of %d for %d receives", c, n)
			}
			w.ok(id.DestroySRQ())
			gone("DestroySRQ")
		}
		w.ok(id.Close())
	})
}

func TestC_LIS_03_C_ADDR_04_AutomaticPorts(t *testing.T) {
	in(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSTCP)
		w.ok(l.Listen(0))
		if a := l.LocalAddr(); a.Addr() != netip.IPv4Unspecified() || a.Port() < 1024 {
			t.Errorf("it listens at %v", a)
		}
		w.errno(w.b.Close(), syscall.EBUSY)
		c, s := w.connected(l, at(addrB, l.SrcPort()))
		if a := c.LocalAddr(); a.Addr() != addrA || a.Port() < 1024 {
			t.Errorf("the client is bound to %v", a)
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// Without parameters: as much as the device can, and no private data.
func TestC_PARM_03_07_17_Defaults(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		p := ev.Conn
		if string(p.PrivateData) != string(make([]byte, 56)) || p.RetryCount != 7 || p.RNRRetryCount != 7 ||
			p.ResponderResources != 128 || p.InitiatorDepth != 128 {
			t.Errorf("%+v", p)
		}
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		c.expect(rdmacm.EventRejected)
		c.close()
		l.close()
		u := w.resolved(rdmacm.PSUDP, at(addrB, port))
		w.ok(u.Connect(bg, &rdmacm.ConnParam{ResponderResources: 200, InitiatorDepth: 200})) // it means nothing for datagrams
		u.expect(rdmacm.EventUnreachable)
		u.close()
	})
}

// Without parameters the request's own are the answer, as far as the device can.
func TestC_ACC_05_AcceptByTheRequest(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{ResponderResources: 3, InitiatorDepth: 5, RetryCount: 4, RNRRetryCount: 2}))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		est := c.expect(rdmacm.EventEstablished)
		if p := est.Conn; p.ResponderResources != 3 || p.InitiatorDepth != 5 || p.RNRRetryCount != 2 ||
			string(p.PrivateData) != string(make([]byte, 196)) {
			t.Errorf("the client's event %+v", p)
		}
		s.expect(rdmacm.EventEstablished)
		for name, e := range map[string]*end{"client": c, "server": s} {
			depth := map[string][2]uint8{"client": {5, 3}, "server": {3, 5}}[name]
			if a, _, err := e.QP().Query(0); err != nil || a.MaxRdAtomic != depth[0] || a.MaxDestRdAtomic != depth[1] ||
				a.RetryCnt != 4 || a.RNRRetry != 2 {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// The type of service goes into the packets of both ends, those of connection management too.
func TestC_OPT_03_TrafficClass(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(c.SetTOS(0x68))
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		w.ok(c.ResolveRoute(bg, timeout))
		c.expect(rdmacm.EventRouteResolved)
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		if p := ev.ID.Route().PathRec; len(p) != 1 || p[0].TrafficClass != 0x68 {
			t.Errorf("the request's path %+v", p)
		}
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		for _, e := range []*end{c, s} {
			if a, _, err := e.QP().Query(0); err != nil || a.AHAttr.GRH.TrafficClass != 0x68 {
				t.Errorf("%v: traffic class %#x, %v", e.LocalAddr(), a.AHAttr.GRH.TrafficClass, err)
			}
		}
		for _, id := range []*rdmacm.ID{c.ID, s.ID} {
			if got := id.MailPath().TClass; got != 0x68 {
				t.Errorf("%v: its messages have traffic class %#x", id.LocalAddr(), got)
			}
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// The event that was no request stays with the listener.
func TestC_REQ_06_NoRequest(t *testing.T) {
	in(t, func(w *world) {
		l := must(w.b.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0))
		w.b.Remove(l.Verbs())
		_, err := l.GetRequest(bg)
		w.errno(err, syscall.EINVAL)
		_ = l.Close()
	})
}

// A QP that cannot be connected: the request is refused, or the reply.
func TestC_ACC_10_C_CONN_11_T_23_BrokenQP(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		start := func() (c, s *end) {
			c = w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			w.ok(c.Connect(bg, nil))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			w.ok(ev.Ack())
			s = &end{ev.ID, w, l.ch}
			w.ok(s.CreateQP(nil, qpInit()))
			return c, s
		}
		spoil := func(e *end) { w.ok(e.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) }
		c, s := start()
		spoil(s)
		if err := s.Accept(bg, nil); err == nil {
			t.Error("Accept with a QP in ERR")
		}
		if ev := c.expect(rdmacm.EventRejected); ev.Status != 28 {
			t.Errorf("status %d", ev.Status)
		}
		s.closeID()
		c.close()
		c, s = start()
		spoil(c)
		w.ok(s.Accept(bg, nil))
		if ev := c.expect(rdmacm.EventConnectError); ev.Err() == nil {
			t.Errorf("%+v", ev)
		}
		if ev := s.expect(rdmacm.EventRejected); ev.Status != 28 {
			t.Errorf("status %d", ev.Status)
		}
		c.none()
		if st := c.QP().State(); st != verbs.QPSErr {
			t.Errorf("the QP is in %v", st)
		}
		s.closeID()
		c.close()
		l.close()
	})
}

func TestC_EP_08_11_AsynchronousEndpoint(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", nil))(w)
		res.Next = &rdmacm.AddrInfo{} // never looked at
		e := w.newEnd(w.a, rdmacm.PSTCP)
		id := must(w.a.CreateEP(bg, res, nil, qpInit()))(w)
		w.ok(id.Migrate(e.ch))
		w.ok(id.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.ID.Reject(nil))
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		if ev := e.expect(rdmacm.EventRejected); ev.ID != id {
			t.Error("the event is another ID's")
		}
		w.ok(id.Close())
		res.DstAddr, res.Next = netip.AddrPort{}, res
		_, err := w.a.CreateEP(bg, res, nil, nil)
		w.errno(err, syscall.EINVAL)
		e.close()
		l.close()
	})
}

func TestC_DEV_01_02_03_04_Devices(t *testing.T) {
	in(t, func(w *world) {
		list := must(w.a.Devices())(w)
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.BindAddr(at(addrA, 0)))
		if len(list) != 1 || e.Verbs() != list[0] {
			t.Errorf("%d devices, another one is the ID's", len(list))
		}
		pd := must(list[0].AllocPD())(w) // the program's own, for any ID
		w.ok(e.CreateQP(pd, qpInit()))
		if e.PD() != pd {
			t.Error("another PD")
		}
		e.close()
		w.ok(pd.Close())
		if again := must(w.a.Devices())(w); again[0] != list[0] {
			t.Error("the device was opened again")
		}
		list, err := rdmacm.NewHost().Devices()
		if w.errno(err, syscall.ENODEV); list != nil {
			t.Error("a list of no devices")
		}
	})
}

// READs and WRITEs before the connection, and to memory that does not allow them; inline data needs no region.
func TestV_RDM_05_V_REG_03_V_SND_03_Rights(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		early := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(early.CreateQP(nil, qpInit()))
		mr := must(early.RegMsgs(make([]byte, 8)))(w)
		w.errno(early.PostRead(1, mr.Bytes(), mr, verbs.SendSignaled, 1, 1), syscall.EINVAL)
		w.errno(early.PostWrite(1, mr.Bytes(), mr, verbs.SendSignaled, 1, 1), syscall.EINVAL)
		w.ok(mr.Close())
		early.close()
		c, s := w.connected(l, at(addrB, port))
		data := []byte("inline")
		buf := make([]byte, 8)
		to := must(s.RegMsgs(buf))(w)
		w.ok(s.PostRecv(1, buf, to))
		w.ok(c.PostSend(1, data, nil, verbs.SendInline|verbs.SendSignaled))
		copy(data, "broken")
		must(c.GetSendComp(bg))(w)
		if wc := must(s.GetRecvComp(bg))(w); string(buf[:wc.ByteLen]) != "inline" {
			t.Errorf("%q", buf)
		}
		w.ok(to.Close())
		forWrite := must(s.RegWrite(make([]byte, 8)))(w)
		local := must(c.RegMsgs(make([]byte, 8)))(w)
		w.ok(c.PostRead(2, local.Bytes(), local, verbs.SendSignaled, forWrite.Addr(), forWrite.RKey()))
		if wc := must(c.GetSendComp(bg))(w); wc.Status != verbs.WCRemAccessErr {
			t.Errorf("%v", wc.Status)
		}
		w.ok(forWrite.Close())
		w.ok(local.Close())
		s.closeID()
		c.close()
		l.close()
	})
}

// The helpers, all of them, with one SGE and with several.
func TestV_REG_08_Helpers(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		two := func() *verbs.QPInitAttr {
			init := qpInit()
			init.Cap.MaxSendSGE, init.Cap.MaxRecvSGE = 2, 2
			return init
		}
		w.ok(c.CreateQP(nil, two()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, two()))
		w.ok(s.Accept(bg, nil))
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		src, dst := must(c.RegMsgs([]byte("abcdefgh")))(w), must(s.RegMsgs(make([]byte, 8)))(w)
		w.ok(s.PostRecvV(1, dst.SGE(4, 2), dst.SGE(0, 4)))
		w.ok(c.PostSendV(2, verbs.SendSignaled, src.SGE(6, 2), src.SGE(0, 3)))
		must(c.GetSendComp(bg))(w)
		if wc := must(s.GetRecvComp(bg))(w); wc.ByteLen != 5 || string(dst.Bytes()) != "abc\x00gh\x00\x00" {
			t.Errorf("%+v %q", wc, dst.Bytes())
		}
		r, x := must(s.RegRead([]byte("12345678")))(w), must(s.RegWrite(make([]byte, 8)))(w)
		w.ok(c.PostReadV(3, verbs.SendSignaled, r.Addr(), r.RKey(), src.SGE(0, 2), src.SGE(4, 2)))
		must(c.GetSendComp(bg))(w)
		w.ok(c.PostWriteV(4, verbs.SendSignaled, x.Addr(), x.RKey(), src.SGE(4, 2), src.SGE(0, 2)))
		must(c.GetSendComp(bg))(w)
		if string(src.Bytes()) != "12cd34gh" || string(x.Bytes()) != "3412\x00\x00\x00\x00" {
			t.Errorf("%q %q", src.Bytes(), x.Bytes())
		}
		for _, mr := range []*verbs.MR{src, dst, r, x} {
			w.ok(mr.Close())
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// Completions that come while the program arms the CQ and goes to sleep are not missed.
func TestV_CMP_03_NoLostWakeUp(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		buf := make([]byte, 8)
		mr := must(s.RegMsgs(buf))(w)
		for i := range uint64(300) {
			w.ok(s.PostRecv(i, buf, mr))
			go func() { w.ok(c.PostSend(i, []byte("x"), nil, verbs.SendInline|verbs.SendSignaled)) }()
			if wc := must(s.GetRecvComp(bg))(w); wc.WRID != i {
				t.Fatalf("%+v", wc)
			}
			if wc := must(c.GetSendComp(bg))(w); wc.WRID != i {
				t.Fatalf("%+v", wc)
			}
		}
		w.ok(mr.Close())
		s.closeID()
		c.close()
		l.close()
	})
}

// A receiver posts late: with a minimum RNR timer of 0, 655 ms, and unlimited retries the message arrives.
func TestT_14_LateReceive(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		if a, _, err := s.QP().Query(0); err != nil || a.MinRNRTimer != 0 {
			t.Errorf("minimum RNR timer %d, %v", a.MinRNRTimer, err)
		}
		w.ok(c.PostSend(1, []byte("early"), nil, verbs.SendInline|verbs.SendSignaled))
		time.Sleep(20 * time.Second)
		buf := make([]byte, 8)
		mr := must(s.RegMsgs(buf))(w)
		w.ok(s.PostRecv(2, buf, mr))
		start := time.Now()
		if wc := must(s.GetRecvComp(bg))(w); string(buf[:wc.ByteLen]) != "early" {
			t.Errorf("%+v", wc)
		}
		if took := time.Since(start); took > 700*time.Millisecond {
			t.Errorf("it took %v more", took)
		}
		must(c.GetSendComp(bg))(w)
		w.ok(mr.Close())
		s.closeID()
		c.close()
		l.close()
	})
}
