package rdmacm_test

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Clauses of statements that the tests of whole flows do not cover.

// Two listeners and two clients, each with its own channel: no channel gets the event of another's ID.
func TestC_CHAN_02_EventsStayOnTheirChannel(t *testing.T) {
	in(t, func(w *world) {
		var l, c, s [2]*end
		for i := range l {
			l[i] = w.listen(at(addrB, port+uint16(i)), 0)
			c[i] = w.newEnd(w.a, rdmacm.PSTCP)
		}
		all := append(l[:], c[:]...)
		only := func(e *end, want rdmacm.EventType) *rdmacm.Event {
			t.Helper()
			synctest.Wait()
			ev := w.next(e.ch, want)
			if ev.ID != e.ID && ev.ListenID != e.ID {
				t.Errorf("%v is of another ID", want)
			}
			for _, other := range all {
				other.none()
			}
			return ev
		}
		for i, e := range c {
			w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port+uint16(i)), timeout))
			w.ok(only(e, rdmacm.EventAddrResolved).Ack())
			w.ok(e.ResolveRoute(bg, timeout))
			w.ok(only(e, rdmacm.EventRouteResolved).Ack())
			w.ok(e.CreateQP(nil, qpInit()))
			w.ok(e.Connect(bg, nil))
			ev := only(l[i], rdmacm.EventConnectRequest)
			w.ok(ev.Ack())
			s[i] = &end{ev.ID, w, l[i].ch}
			w.ok(s[i].CreateQP(nil, qpInit()))
		}
		// Events of the second connection while the first has none, then the other way round.
		for _, i := range []int{1, 0} {
			w.ok(s[i].Accept(bg, nil))
			synctest.Wait()
			c[i].expect(rdmacm.EventEstablished)
			s[i].expect(rdmacm.EventEstablished)
			c[1-i].none()
			s[1-i].none()
		}
		for i := range c {
			s[i].closeID()
			c[i].expect(rdmacm.EventDisconnected)
			c[1-i].none()
		}
		for i := range c {
			c[i].close()
			l[i].close()
		}
	})
}

func TestC_QP_06_OneDefaultPDOfADevice(t *testing.T) {
	in(t, func(w *world) {
		a, b, far := w.newEnd(w.a, rdmacm.PSTCP), w.newEnd(w.a, rdmacm.PSUDP), w.newEnd(w.b, rdmacm.PSTCP)
		for _, e := range []*end{a, b, far} {
			addr := addrA
			if e == far {
				addr = addrB
			}
			w.ok(e.BindAddr(at(addr, 0)))
			w.ok(e.CreateQP(nil, qpInit()))
			if e.QP().PD() != e.PD() || e.PD() == nil { // C-QP-12
				t.Error("the QP is in another PD")
			}
		}
		if a.PD() != b.PD() || a.PD() == far.PD() {
			t.Error("not one default PD for each device")
		}
		pd := must(a.Verbs().AllocPD())(w)
		own := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(own.BindAddr(at(addrA, 0)))
		w.ok(own.CreateQP(pd, qpInit()))
		if own.QP().PD() != pd || own.PD() == a.PD() { // C-QP-12
			t.Error("the QP is not in the PD that was given, or the ID does not tell")
		}
		for _, e := range []*end{own, a, b, far} {
			e.close()
		}
		w.ok(pd.Close())
	})
}

func TestC_QP_08_NoCQForASideWithoutRequests(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.BindAddr(at(addrA, 0)))
		for _, c := range []struct{ sends, recvs uint32 }{{4, 0}, {0, 4}} {
			w.ok(e.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: c.sends, MaxRecvWR: c.recvs, MaxSendSGE: 1,
				MaxRecvSGE: 1}}))
			if (e.SendCQ() != nil) != (c.sends > 0) || (e.SendCQChannel() != nil) != (c.sends > 0) ||
				(e.RecvCQ() != nil) != (c.recvs > 0) || (e.RecvCQChannel() != nil) != (c.recvs > 0) {
				t.Errorf("%+v: CQs %v and %v", c, e.SendCQ(), e.RecvCQ())
			}
			w.ok(e.DestroyQP())
		}
		// One of the program's, one that is made.
		cq := must(e.Verbs().CreateCQ(4, nil))(w)
		init := qpInit()
		init.RecvCQ = cq
		w.ok(e.CreateQP(nil, init))
		if e.SendCQ() == nil || e.SendCQ() == cq || e.RecvCQ() != nil || e.RecvCQChannel() != nil || init.RecvCQ != cq ||
			init.SendCQ != e.SendCQ() {
			t.Errorf("%+v", init)
		}
		w.ok(e.DestroyQP())
		w.ok(cq.Close())
		e.close()
	})
}

func TestC_QP_12_FailureLeavesNoCQs(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.BindAddr(at(addrA, 0)))
		device := must(e.Verbs().QueryDevice())(w)
		for name, spoil := range map[string]func(*verbs.QPInitAttr){
			"the QP":         func(i *verbs.QPInitAttr) { i.Cap.MaxSendSGE = uint32(device.MaxSGE) + 1 },
			"the second CQ":  func(i *verbs.QPInitAttr) { i.Cap.MaxRecvWR = uint32(device.MaxCQE) + 1 },
			"the first CQ":   func(i *verbs.QPInitAttr) { i.Cap.MaxSendWR = uint32(device.MaxCQE) + 1 },
			"the attributes": func(i *verbs.QPInitAttr) { i.Type = verbs.QPTypeUC },
		} {
			init := qpInit()
			spoil(init)
			given := *init
			if err := e.CreateQP(nil, init); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: %v", name, err)
			}
			if e.QP() != nil || e.SendCQ() != nil || e.RecvCQ() != nil || e.SendCQChannel() != nil || e.RecvCQChannel() != nil {
				t.Errorf("%s failed, and something is left", name)
			}
			if *init != given {
				t.Errorf("%s failed, and %+v became %+v", name, given, *init)
			}
		}
		w.ok(e.CreateQP(nil, qpInit()))
		e.close()
	})
}

// The exact masks and values of InitQPAttr, which are those of the QP that the connection manager moves by itself.
// The RNR retry counts differ, to show the side that each comes from.
func TestC_QP_18_19_20_AttributesOfTheConnection(t *testing.T) {
	const (
		initMask = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
		rtrMask  = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
			verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
		rtsMask = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
			verbs.QPAttrMaxQPRdAtomic | verbs.QPAttrTimeout
		remote = verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessFlushGlobal
	)
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{ResponderResources: rdmacm.Zero, InitiatorDepth: 5, RetryCount: 255,
			RNRRetryCount: 3}))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, &rdmacm.ConnParam{ResponderResources: 4, InitiatorDepth: rdmacm.Zero, RetryCount: 1,
			RNRRetryCount: 200}))
		w.ok(ev.Ack())
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		for _, k := range []struct {
			name         string
			e, peer      *end
			access       verbs.AccessFlags
			resources    uint8 // of the responder
			depth        uint8
			retry, rnr   uint8
			ownQP, other *verbs.QP
		}{
			{"client", c, s, verbs.AccessRemoteWrite, 0, 4, 7, 7, c.QP(), s.QP()},
			{"server", s, c, verbs.AccessRemoteWrite | remote, 4, 0, 7, 3, s.QP(), c.QP()},
		} {
			now, _, err := k.ownQP.Query(0)
			w.ok(err)
			peer, _, err := k.other.Query(0)
			w.ok(err)
			get := func(state verbs.QPState, want verbs.QPAttrMask) verbs.QPAttr {
				t.Helper()
				a := verbs.QPAttr{QPState: state}
				if mask := must(k.e.InitQPAttr(&a))(w); mask != want || a.QPState != state {
					t.Errorf("%s, %v: mask %v, want %v", k.name, a.QPState, mask, want)
				}
				return a
			}
			if a := get(verbs.QPSInit, initMask|verbs.QPAttrAccessFlags); a.QPAccessFlags != k.access ||
				now.QPAccessFlags != k.access || a.PortNum != 1 {
				t.Errorf("%s: %+v, the QP has %v", k.name, a, now.QPAccessFlags)
			}
			a := get(verbs.QPSRTR, rtrMask)
			if a.DestQPNum != k.other.QPN() || a.RQPSN != peer.SQPSN || a.MaxDestRdAtomic != k.resources || a.MinRNRTimer != 0 ||
				a.AHAttr.GRH.DGID != verbs.GIDFromAddr(k.peer.LocalAddr().Addr()) || a.PathMTU != k.e.Route().PathRec[0].MTU {
				t.Errorf("%s in RTR: %+v", k.name, a)
			}
			if a.DestQPNum != now.DestQPNum || a.RQPSN != now.RQPSN || a.MaxDestRdAtomic != now.MaxDestRdAtomic ||
				now.MinRNRTimer != 0 || a.PathMTU != now.PathMTU ||
				a.AHAttr != now.AHAttr {
				t.Errorf("%s: %+v; the QP has %+v", k.name, a, now)
			}
			a = get(verbs.QPSRTS, rtsMask)
			timeout := cm.AckTimeout(must(k.e.Verbs().QueryDevice())(w).LocalCAAckDelay, k.e.Route().PathRec[0].PacketLifeTime)
			if a.SQPSN != peer.RQPSN || a.RetryCnt != k.retry || a.RNRRetry != k.rnr || a.MaxRdAtomic != k.depth ||
				a.Timeout != timeout {
				t.Errorf("%s in RTS: %+v; the timeout should be %d", k.name, a, timeout)
			}
			if a.SQPSN != now.SQPSN || a.RetryCnt != now.RetryCnt || a.RNRRetry != now.RNRRetry ||
				a.MaxRdAtomic != now.MaxRdAtomic || a.Timeout != now.Timeout {
				t.Errorf("%s: %+v; the QP has %+v", k.name, a, now)
			}
		}
		w.ok(c.Notify(verbs.EventPathMig)) // C-NTF-05
		for _, no := range []verbs.EventType{verbs.EventPathMigErr, verbs.EventSQDrained, verbs.EventCommEst + 100} {
			w.errno(c.Notify(no), syscall.EINVAL)
		}
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()

		u := w.resolved(rdmacm.PSUDP, at(addrB, port))
		for state, want := range map[verbs.QPState]verbs.QPAttrMask{
			verbs.QPSInit: initMask | verbs.QPAttrQKey, verbs.QPSRTR: verbs.QPAttrState, verbs.QPSRTS: verbs.QPAttrState |
				verbs.QPAttrSQPSN,
		} {
			a := verbs.QPAttr{QPState: state}
			if mask := must(u.InitQPAttr(&a))(w); mask != want || state == verbs.QPSInit && a.QKey != rdmacm.UDPQKey ||
				a.SQPSN != 0 {
				t.Errorf("UD, %v: %v, %+v", state, mask, a)
			}
		}
		u.close()
	})
}

func TestC_EP_03_05_GivenPD(t *testing.T) {
	in(t, func(w *world) {
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", &rdmacm.AddrInfo{Flags: rdmacm.RAIPassive}))(w)
		dst := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", nil))(w)
		probe := func(h *rdmacm.Host, a netip.Addr) (*end, *verbs.PD) { // a PD of the host's device
			e := w.newEnd(h, rdmacm.PSTCP)
			w.ok(e.BindAddr(at(a, 0)))
			return e, must(e.Verbs().AllocPD())(w)
		}
		atA, pdA := probe(w.a, addrA)
		atB, pdB := probe(w.b, addrB)
		saved := qpInit()
		l := must(w.b.CreateEP(bg, res, pdB, saved))(w)
		*saved = verbs.QPInitAttr{} // was copied
		w.ok(l.Listen(2))
		init := qpInit()
		init.Type = verbs.QPTypeUD // overwritten
		c := must(w.a.CreateEP(bg, dst, pdA, init))(w)
		if c.QP().PD() != pdA || init.Type != verbs.QPTypeRC || c.QP().Type() != verbs.QPTypeRC {
			t.Errorf("the active side has a %v QP, in the PD that was given: %v", c.QP().Type(), c.QP().PD() == pdA)
		}
		for range 2 { // each ID of GetRequest
			var s *rdmacm.ID
			done := make(chan struct{})
			go func() { s = must(l.GetRequest(bg))(w); w.ok(s.Accept(bg, nil)); close(done) }()
			w.ok(c.Connect(bg, nil))
			<-done
			if s.QP() == nil || s.QP().PD() != pdB {
				t.Error("the passive side's QP is not in the PD that was given")
			}
			w.ok(s.Close())
			w.ok(c.Close())
			c = must(w.a.CreateEP(bg, dst, pdA, qpInit()))(w)
		}
		w.ok(c.Close())
		w.ok(l.Close())
		// C-EP-10: the last step fails, and nothing is left, as closing the PDs and, at the end, the hosts
		// finds.
		bad := qpInit()
		bad.Cap.MaxSendSGE = 1 << 20
		_, err := w.a.CreateEP(bg, dst, pdA, bad)
		w.errno(err, syscall.EINVAL)
		_, err = w.a.CreateEP(bg, dst, pdB, qpInit())
		w.errno(err, syscall.EINVAL)
		foreign := *dst
		foreign.SrcAddr = at(addrB, 0)
		_, err = w.a.CreateEP(bg, &foreign, pdA, qpInit())
		w.errno(err, syscall.ENODEV)
		w.ok(pdA.Close())
		w.ok(pdB.Close())
		atA.close()
		atB.close()
	})
}

// The initiator gets EventEstablished after the other side has answered, and without an error.
func TestC_DISC_05_StatusOfTheAnswer(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		w.ok(c.Disconnect(bg))
		if ev := s.expect(rdmacm.EventDisconnected); ev.Status != 0 || ev.Err() != nil {
			t.Errorf("%+v", ev)
		}
		c.none()
		time.Sleep(time.Second)
		w.ok(s.Disconnect(bg))
		if ev := c.expect(rdmacm.EventDisconnected); ev.Status != 0 || ev.Err() != nil {
			t.Errorf("%+v", ev)
		}
		s.closeID()
		c.close()
		l.close()
	})
}

func TestC_ACC_09_SynchronousDatagrams(t *testing.T) {
	in(t, func(w *world) {
		l := must(w.b.CreateID(nil, rdmacm.PSUDP, nil))(w)
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0))
		c := w.resolved(rdmacm.PSUDP, at(addrB, port))
		w.ok(c.CreateQP(nil, udInit()))
		w.ok(c.Connect(bg, nil))
		s := must(l.GetRequest(bg))(w)
		if s.Event() == nil || s.Event().Type != rdmacm.EventConnectRequest {
			t.Errorf("%+v", s.Event())
		}
		w.ok(s.CreateQP(nil, udInit()))
		start := time.Now()
		w.ok(s.Accept(bg, nil))
		if s.Event() != nil || time.Since(start) != 0 {
			t.Errorf("event %+v after %v", s.Event(), time.Since(start))
		}
		if ev := c.expect(rdmacm.EventEstablished); ev.UD.QPNum != s.QP().QPN() || ev.UD.QKey != rdmacm.UDPQKey {
			t.Errorf("%+v", ev.UD)
		}
		w.ok(s.DestroyQP())
		w.ok(s.Close())
		w.ok(l.Close())
		c.close()
	})
}

func TestC_SRQ_02_ForeignPD(t *testing.T) {
	in(t, func(w *world) {
		a, b := w.newEnd(w.a, rdmacm.PSTCP), w.newEnd(w.b, rdmacm.PSTCP)
		w.ok(a.BindAddr(at(addrA, 0)))
		w.ok(b.BindAddr(at(addrB, 0)))
		attr := func() *verbs.SRQInitAttr { return &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 3, MaxSGE: 1}} }
		w.errno(a.CreateSRQ(b.PD(), attr()), syscall.EINVAL)
		if a.SRQ() != nil {
			t.Error("an SRQ is left")
		}
		w.ok(a.CreateSRQ(a.PD(), attr()))
		w.ok(a.DestroySRQ())
		a.close()
		b.close()
	})
}

func TestC_MC_10_HopLimit(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(e.BindAddr(at(addrA, 0)))
		w.ok(e.CreateQP(nil, udInit()))
		w.ok(e.JoinMulticast(bg, at(group4, 0), nil))
		a := e.expect(rdmacm.EventMulticastJoin).UD.AHAttr
		dgid := verbs.GIDFromAddr(group4)
		if !a.IsGlobal || a.GRH.HopLimit != 64 || a.GRH.DGID != dgid || a.PortNum != 1 || !slices.Equal(dgid[:12],
			append(make([]byte, 10), 0xff, 0xff)) {
			t.Errorf("%+v", a)
		}
		w.ok(e.LeaveMulticast(at(group4, 0)))
		e.close()
	})
}

// A message without a receive waits for one, or fails after the sender's RNR retries; one that is longer than the
// receive ends the connection.
func TestV_RCV_03_MissingAndShortReceives(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		connect := func(rnr uint8) (c, s *end) { // rnr is the client's, which the server chooses
			c = w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			w.ok(c.Connect(bg, nil))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			s = &end{ev.ID, w, l.ch}
			w.ok(s.CreateQP(nil, qpInit()))
			w.ok(s.Accept(bg, &rdmacm.ConnParam{RNRRetryCount: rnr}))
			w.ok(ev.Ack())
			c.expect(rdmacm.EventEstablished)
			s.expect(rdmacm.EventEstablished)
			return c, s
		}
		finish := func(c, s *end) {
			s.closeID()
			c.expect(rdmacm.EventDisconnected)
			c.close()
		}
		send := func(c *end) { w.ok(c.PostSend(1, []byte("12345678"), nil, verbs.SendInline|verbs.SendSignaled)) }

		c, s := connect(7)
		buf := make([]byte, 8)
		mr := must(s.RegMsgs(buf))(w)
		send(c)
		time.Sleep(time.Minute)
		w.ok(s.PostRecv(2, buf, mr))
		if wc := must(s.GetRecvComp(bg))(w); wc.Status != verbs.WCSuccess || string(buf) != "12345678" {
			t.Errorf("late receive: %v %q", wc.Status, buf)
		}
		if wc := must(c.GetSendComp(bg))(w); wc.Status != verbs.WCSuccess {
			t.Errorf("its send: %v", wc.Status)
		}
		w.ok(s.PostRecv(3, buf[:7], mr))
		send(c)
		if wc := must(s.GetRecvComp(bg))(w); wc.Status != verbs.WCLocLenErr {
			t.Errorf("short receive: %v", wc.Status)
		}
		if wc := must(c.GetSendComp(bg))(w); wc.Status != verbs.WCRemInvReqErr {
			t.Errorf("its send: %v", wc.Status)
		}
		w.ok(mr.Close())
		finish(c, s)

		c, s = connect(1)
		start := time.Now()
		send(c)
		// C-PARM-16
		if wc := must(c.GetSendComp(bg))(w); wc.Status != verbs.WCRNRRetryExcErr || time.Since(start) < 655*time.Millisecond {
			t.Errorf("no receive: %v after %v", wc.Status, time.Since(start))
		}
		finish(c, s)
		l.close()
	})
}
