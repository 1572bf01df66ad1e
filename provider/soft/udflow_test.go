package soft_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// newUD makes a UD QP of the station in RTS.
func (s *station) newUD(change func(*verbs.QPInitAttr)) *verbs.QP {
	s.t.Helper()
	init := &verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: s.cq.CQ, RecvCQ: s.cq.CQ,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2}}
	if change != nil {
		change(init)
	}
	qp := get(s.pd.CreateQP(init))(s.t)
	s.t.Cleanup(func() { _ = qp.Close() })
	must(s.t, qp.Connect(verbs.QPInfo{}, nil))
	s.uds = append(s.uds, qp)
	return qp
}

// datagram makes the frame of a RoCE datagram from hostA to hostB.
func datagram(f wire.Fields) []byte {
	f.Opcode, f.PKey, f.SrcQPN = wire.UD|wire.SendOnly, 0xffff, 0x777
	return roceFrame(f)
}

func roceFrame(f wire.Fields) []byte {
	body := append(f.Build(), make([]byte, wire.ICRCLen)...)
	flow := wire.NewFlow(netip.AddrFrom4(hostA), netip.AddrFrom4(hostB), 0xc123, wire.Port)
	flow.Seal(body, 7) // the identification of ip4
	return summed(eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(0xc123, wire.Port, body))))
}

// TestV_FL_01_V_QPX_05_DatagramsOfARule: a UD QP with SOURCE_QPN receives the datagrams that name the source QPN if a
// rule steers them to it, and none without.
func TestV_FL_01_V_QPX_05_DatagramsOfARule(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	const source = 0x123456
	ud := b.newUD(func(i *verbs.QPInitAttr) {
		i.CreateFlags, i.SourceQPN = verbs.QPCreateSourceQPN, source
	})
	frame := datagram(wire.Fields{DestQPN: source, QKey: verbs.DefaultQKey, Payload: []byte("a datagram")})
	b.post(ud, 0, 4)
	a.send(frame)
	b.nothing() // without a rule
	f := b.ruleOf(ud, verbs.FlowAttr{Specs: []verbs.FlowSpec{
		verbs.FlowSpecUDP{Val: verbs.FlowPortFilter{DstPort: wire.Port}, Mask: verbs.FlowPortFilter{DstPort: 0xffff}},
		verbs.FlowSpecActionTag{TagID: 0x1234},
	}})
	a.send(frame)
	got, c := b.got()
	if !bytes.Equal(got[40:], []byte("a datagram")) || c.QPNum != ud.QPN() || c.WCFlags != verbs.WCGRH ||
		c.FlowTag != 0x1234 {
		t.Errorf("%q, %+v", got[40:], c)
	}
	if src := netip.AddrFrom4([4]byte(got[20+12:])); src != netip.AddrFrom4(hostA) {
		t.Errorf("the IPv4 header in the GRH is from %v", src)
	}
	own := datagram(wire.Fields{DestQPN: ud.QPN(), QKey: verbs.DefaultQKey, Payload: []byte("own")})
	for what, bad := range map[string][]byte{
		"the QP's own number, which needs no rule": own,
		"a wrong Q_Key":      datagram(wire.Fields{DestQPN: source, QKey: 1, Payload: []byte("x")}),
		"a wrong ICRC":       with(frame, len(frame)-1),
		"a changed payload":  with(frame, len(frame)-9),
		"a truncated packet": frame[:len(frame)-1],
		"no packet": eth(macB, macA, 0x0800, ip4(17, hostA, hostB,
			udpOf(1, wire.Port, []byte("short")))),
		"an RC packet": roceFrame(wire.Fields{Opcode: wire.SendOnly, PKey: 0xffff, DestQPN: source,
			Payload: []byte("x")}),
	} {
		a.send(bad)
		if c := b.next(); c != nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
	must(t, f.Close())
	a.send(frame)
	b.nothing() // the rule is gone
	must(t, ud.Close())
}

// TestV_FL_09_V_RECV_06_FramesOfARuleOnUD: a UD QP receives an Ethernet frame whole, behind 40 bytes.
func TestV_FL_09_V_RECV_06_FramesOfARuleOnUD(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	ud := b.newUD(nil)
	b.ruleOf(ud, verbs.FlowAttr{Priority: 1, Specs: []verbs.FlowSpec{
		verbs.FlowSpecEth{Val: verbs.FlowEthFilter{DstMAC: sub16(macB)}, Mask: verbs.FlowEthFilter{DstMAC: allMAC}},
		verbs.FlowSpecActionTag{TagID: 9},
	}})
	frame := summed(eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, []byte("a frame")))))
	for i := range b.buf[:slotLen] {
		b.buf[i] = 0x5a
	}
	b.post(ud, 0, 1)
	a.send(eth(macM, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2)))) // does not match
	a.send(frame)
	got, c := b.got()
	if !bytes.Equal(got[40:], frame) || c.QPNum != ud.QPN() || c.WCFlags != verbs.WCIPCsumOK || c.FlowTag != 9 {
		t.Errorf("% x, %+v", got, c)
	}
	if !bytes.Equal(got[:40], bytes.Repeat([]byte{0x5a}, 40)) {
		t.Errorf("the first 40 bytes were written: % x", got[:40])
	}
	// Neither without a receive, nor with one that is too small, nor in RESET.
	a.send(frame)
	must(t, ud.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, 30), b.mr.SGE(30, 10+len(frame)-1)}}))
	a.send(frame)
	b.nothing()
	must(t, ud.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	a.send(frame)
	b.nothing()
	must(t, ud.Connect(verbs.QPInfo{}, nil))
	// The 40 bytes may end inside of an SGE or between two.
	for _, first := range []int{30, 40, 50} {
		must(t, ud.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, first), b.mr.SGE(first, 500)}}))
		a.send(frame)
		if got, _ := b.got(); !bytes.Equal(got[40:], frame) {
			t.Errorf("with an SGE of %d bytes: % x", first, got[40:])
		}
	}
	// Memory that is not registered ends the QP, as with datagrams.
	must(t, ud.PostRecv(verbs.RecvWR{WRID: 5, SGList: []verbs.SGE{{Addr: 1, Length: 200, LKey: 1}}}))
	a.send(frame)
	if c := b.next(); c == nil || c.WRID != 5 || c.Status != verbs.WCLocProtErr || ud.State() != verbs.QPSErr {
		t.Errorf("%+v, %v", c, ud.State())
	}
}

// TestV_FL_10_RulesOfUDAndRawQPs: rules of both kinds of QPs have one order, and an SRQ serves a UD QP's rule.
func TestV_FL_10_RulesOfUDAndRawQPs(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	srq := get(b.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}}))(t)
	ud := b.newUD(func(i *verbs.QPInitAttr) { i.SRQ, i.Cap.MaxRecvWR, i.Cap.MaxRecvSGE = srq, 0, 0 })
	b.post(srq, 0, 4)
	b.post(b.qp, 10, 4)
	first := b.ruleOf(ud, verbs.FlowAttr{Priority: 1, Flags: verbs.FlowDontTrap})
	b.ruleOf(b.qp, verbs.FlowAttr{Priority: 2})
	last := b.ruleOf(ud, verbs.FlowAttr{Priority: 3})
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	a.send(frame)
	qps := map[uint32]int{}
	for c := b.next(); c != nil; c = b.next() {
		qps[c.QPNum]++
	}
	if qps[ud.QPN()] != 1 || qps[b.qp.QPN()] != 1 {
		t.Errorf("frames by QP number: %v", qps)
	}
	if err := ud.Close(); !errors.Is(err, verbs.EBUSY) {
		t.Errorf("destroy_qp with rules: %v", err)
	}
	must(t, first.Close())
	must(t, last.Close())
	must(t, ud.Close())
	must(t, srq.Close())
}

// TestV_FL_05_EgressRuleOfAUDQP: the QP of an EGRESS rule only names the device.
func TestV_FL_05_EgressRuleOfAUDQP(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	matchAll(b)
	b.post(b.qp, 0, 2)
	f := a.ruleOf(a.newUD(nil), verbs.FlowAttr{Flags: verbs.FlowEgress,
		Specs: []verbs.FlowSpec{verbs.FlowSpecActionDrop{}}})
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	a.send(frame)
	b.nothing()
	must(t, f.Close())
	a.send(frame)
	b.got()
}

func TestSteeredFramesAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	ud := b.newUD(nil)
	b.ruleOf(ud, verbs.FlowAttr{})
	frame := datagram(wire.Fields{DestQPN: 5, QKey: verbs.DefaultQKey, Payload: make([]byte, 512)})
	other := eth(macB, macA, 0x88b5, make([]byte, 500))
	copy(a.buf, frame)
	copy(a.buf[slotLen:], other)
	recv := verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, slotLen)}}
	sends := []verbs.SendWR{{Opcode: verbs.WRSend, SGList: []verbs.SGE{a.mr.SGE(0, len(frame))}},
		{Opcode: verbs.WRSend, SGList: []verbs.SGE{a.mr.SGE(slotLen, len(other))}}}
	var wcs [4]verbs.WC
	n := testing.AllocsPerRun(200, func() {
		must(t, ud.PostRecv(recv, recv))
		must(t, a.qp.PostSend(sends...))
		if n, err := a.cq.Poll(wcs[:]); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		for done := 0; done < 2; { // the engine's own goroutine may hold the shard: see next
			n, err := b.cq.Poll(wcs[done:])
			if done += n; err != nil || n > 0 && wcs[done-1].Status != verbs.WCSuccess {
				t.Fatal(n, err, wcs)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for a datagram and a frame", n)
	}
}
