package soft_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/verbs"
)

// newWQ makes a work queue in RDY.
func (s *station) newWQ(cq *verbs.CQ, flags verbs.WQFlags) *verbs.WQ {
	s.t.Helper()
	wq := get(s.ctx.CreateWQ(&verbs.WQInitAttr{MaxWR: 8, MaxSGE: 2, PD: s.pd, CQ: cq, CreateFlags: flags}))(s.t)
	must(s.t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSReady}))
	return wq
}

var rssKey, _ = hex.DecodeString("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")

// newRSSQP makes a QP that distributes received frames over work queues.
func (s *station) newRSSQP(fields verbs.RxHashFields, wqs ...*verbs.WQ) (*verbs.QP, *verbs.RWQIndTable) {
	s.t.Helper()
	log := uint32(0)
	for 1<<log < len(wqs) {
		log++
	}
	table := get(s.ctx.CreateRWQIndTable(&verbs.RWQIndTableInitAttr{LogIndTblSize: log, IndTbl: wqs}))(s.t)
	qp := get(s.pd.CreateQP(&verbs.QPInitAttr{
		Type:      verbs.QPTypeRawPacket,
		RWQIndTbl: table, RxHashConf: &verbs.RxHashConf{Function: verbs.RxHashToeplitz, Key: rssKey, Fields: fields},
	}))(s.t)
	toRTS(s.t, qp)
	return qp, table
}

func TestV_RWQ_01_V_WQ_02_V_WQ_03_V_QPX_06_FramesAreDistributed(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	wqs := []*verbs.WQ{b.newWQ(b.cq.CQ, 0), b.newWQ(b.cq.CQ, 0), b.newWQ(b.cq.CQ, 0)}
	qp, table := b.newRSSQP(verbs.RxHashSrcIPv4|verbs.RxHashDstIPv4|verbs.RxHashSrcPortTCP|verbs.RxHashDstPortTCP,
		wqs[0], wqs[1], wqs[2], wqs[1])
	f := b.ruleOf(qp, verbs.FlowAttr{})
	if err := qp.PostRecv(verbs.RecvWR{}); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("post_recv to a QP without receives: %v", err)
	}
	if err := qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend}); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("post_send to a QP without sends: %v", err)
	}
	key := [raw.KeyLen]byte(rssKey)
	seen := map[int]int{}
	for port := range 64 {
		frame := eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(port, 80, make([]byte, 6))))
		hash := raw.Toeplitz(&key, cat(hostA[:], hostB[:], be16(port, 80)))
		want := []int{0, 1, 2, 1}[hash%4]
		for i, wq := range wqs {
			must(t, wq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(i*slotLen, slotLen)}}))
		}
		a.send(frame)
		got, c := b.got()
		if int(c.WRID) != want || c.QPNum != qp.QPN() || !bytes.Equal(got, frame) {
			t.Fatalf("port %d: queue %d, want %d", port, c.WRID, want)
		}
		seen[want]++
		for _, wq := range wqs { // empty again
			must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSErr}))
			must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState | verbs.WQAttrCurrState, State: verbs.WQSReset,
				CurrState: verbs.WQSErr}))
			must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSReady}))
		}
		b.nothing()
	}
	if len(seen) != 3 {
		t.Error(seen)
	}
	// A frame without the hashed fields is received by the first queue.
	for i, wq := range wqs {
		must(t, wq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(i*slotLen, slotLen)}}))
	}
	a.send(eth(macB, macA, 0x88b5, make([]byte, 46)))
	if _, c := b.got(); c.WRID != 0 {
		t.Errorf("ARP frame: queue %d", c.WRID)
	}
	// Lifetimes (X-RWQ-01, X-WQ-01).
	for what, err := range map[string]error{"a WQ of a table": wqs[0].Close(), "a table of a QP": table.Close()} {
		if !errors.Is(err, verbs.EBUSY) {
			t.Errorf("destroying %s: %v", what, err)
		}
	}
	must(t, f.Close())
	must(t, qp.Close())
	must(t, table.Close())
	for _, wq := range wqs {
		must(t, wq.Close())
	}
}

// TestV_QPX_07_SecurityParametersIndex: IPSEC_SPI hashes the index of an ESP packet, and nothing else of it.
func TestV_QPX_07_SecurityParametersIndex(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	wqs := []*verbs.WQ{b.newWQ(b.cq.CQ, 0), b.newWQ(b.cq.CQ, 0), b.newWQ(b.cq.CQ, 0), b.newWQ(b.cq.CQ, 0)}
	qp, table := b.newRSSQP(verbs.RxHashSrcIPv4|verbs.RxHashIPsecSPI, wqs...)
	f := b.ruleOf(qp, verbs.FlowAttr{})
	key := [raw.KeyLen]byte(rssKey)
	seen := map[uint64]bool{}
	for i, wq := range wqs {
		for range 8 {
			must(t, wq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(i*slotLen, slotLen)}}))
		}
	}
	for spi := range 8 {
		want := raw.Toeplitz(&key, cat(hostA[:], be16(0x1234, spi*257))) % 4
		a.send(eth(macB, macA, 0x0800, ip4(50, hostA, hostB, be16(0x1234, spi*257, spi, 9), make([]byte, 16))))
		_, c := b.got()
		if c.WRID != uint64(want) {
			t.Errorf("SPI %d: queue %d, want %d", spi, c.WRID, want)
		}
		seen[c.WRID] = true
	}
	if len(seen) < 2 {
		t.Errorf("only the queues %v", seen)
	}
	must(t, f.Close())
	must(t, qp.Close())
	must(t, table.Close())
	for _, wq := range wqs {
		must(t, wq.Close())
	}
}

func TestV_QPX_07_InnerHeaders(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	wqs := []*verbs.WQ{b.newWQ(b.cq.CQ, 0), b.newWQ(b.cq.CQ, 0)}
	qp, table := b.newRSSQP(verbs.RxHashInner|verbs.RxHashDstPortUDP, wqs...)
	f := b.ruleOf(qp, verbs.FlowAttr{})
	key := [raw.KeyLen]byte(rssKey)
	for port := range 16 {
		inside := eth(macA, macB, 0x0800, ip4(17, hostB, hostA, udpOf(1, port)))
		for i, wq := range wqs {
			must(t, wq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(i*slotLen, slotLen)}}))
		}
		a.send(eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(5, 4789, []byte{8, 0, 0, 0, 0, 0, 1, 0}, inside))))
		if _, c := b.got(); uint32(c.WRID) != raw.Toeplitz(&key, be16(port))%2 {
			t.Errorf("port %d: queue %d", port, c.WRID)
		}
		for _, wq := range wqs {
			must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSErr}))
			must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSReset}))
			must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSReady}))
		}
	}
	must(t, f.Close())
	must(t, qp.Close())
	must(t, table.Close())
	must(t, wqs[0].Close())
	must(t, wqs[1].Close())
}

func TestX_WQ_01_V_WQ_01_StatesAtWork(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	init := &verbs.WQInitAttr{MaxWR: 3, MaxSGE: 2, PD: b.pd, CQ: b.cq.CQ, Context: "mine"}
	wq := get(b.ctx.CreateWQ(init))(t)
	if init.MaxWR != 4 || init.MaxSGE != 2 || wq.State() != verbs.WQSReset || wq.WQContext() != "mine" {
		t.Errorf("%+v, %v", init, wq.State())
	}
	qp, table := b.newRSSQP(0, wq)
	f := b.ruleOf(qp, verbs.FlowAttr{})
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	move := func(to verbs.WQState) {
		t.Helper()
		must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: to}))
	}
	if err := wq.PostRecv(verbs.RecvWR{}); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("post_wq_recv in RESET: %v", err)
	}
	a.send(frame)
	b.nothing()
	move(verbs.WQSReady)
	a.send(frame) // no receive: dropped
	b.nothing()
	b.post(wq, 0, 4)
	if err := wq.PostRecv(verbs.RecvWR{}); !errors.Is(err, verbs.ENOMEM) {
		t.Errorf("the fifth receive: %v", err)
	}
	a.send(frame)
	b.got()
	move(verbs.WQSErr) // flushes the receives
	for want := uint64(1); want < 4; want++ {
		if c := b.next(); c == nil || c.WRID != want || c.Status != verbs.WCWRFlushErr || c.QPNum != wq.WQN() {
			t.Errorf("%+v", c)
		}
	}
	a.send(frame)
	b.nothing()
	must(t, wq.PostRecv(verbs.RecvWR{WRID: 9}))
	if c := b.next(); c == nil || c.WRID != 9 || c.Status != verbs.WCWRFlushErr {
		t.Errorf("posted in ERR: %+v", c)
	}
	move(verbs.WQSReset)
	move(verbs.WQSReady)
	// Unregistered memory causes a completion with an error and stops the queue.
	must(t, wq.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{{Addr: 1, Length: 100, LKey: 1}}},
		verbs.RecvWR{WRID: 2}))
	a.send(frame)
	if c := b.next(); c == nil || c.WRID != 1 || c.Status != verbs.WCLocProtErr || wq.State() != verbs.WQSErr {
		t.Errorf("%+v, %v", c, wq.State())
	}
	if c := b.next(); c == nil || c.WRID != 2 || c.Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", c)
	}
	if qp.State() != verbs.QPSRTS {
		t.Errorf("the QP is in %v", qp.State())
	}
	must(t, f.Close())
	must(t, qp.Close())
	must(t, table.Close())
	must(t, wq.Close())
}

func TestV_WQ_06_FlagsAtWork(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	wq := b.newWQ(b.cq.CQ, verbs.WQCVLANStripping|verbs.WQScatterFCS)
	qp, table := b.newRSSQP(0, wq)
	f := b.ruleOf(qp, verbs.FlowAttr{})
	tagged := cat(macB, macA, be16(0x8100), vlan(0x0fff, 0x88b5, make([]byte, 46)))
	fcs := raw.FCS(tagged)
	b.post(wq, 0, 2)
	a.send(tagged)
	if got, c := b.got(); !bytes.Equal(got, cat(tagged[:12], tagged[16:], fcs[:])) || c.CVLAN != 0xfff {
		t.Errorf("%#x % x", c.CVLAN, got)
	}
	must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrFlags, FlagsMask: verbs.WQCVLANStripping}))
	a.send(tagged)
	if got, c := b.got(); !bytes.Equal(got, cat(tagged, fcs[:])) || c.CVLAN != 0 {
		t.Errorf("%#x % x", c.CVLAN, got)
	}
	must(t, f.Close())
	must(t, qp.Close())
	must(t, table.Close())
	must(t, wq.Close())
}

// TestV_WQ_06_DelayDrop: frames wait for receives, in order.
func TestV_WQ_06_DelayDrop(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	wq := b.newWQ(b.cq.CQ, verbs.WQDelayDrop|verbs.WQCVLANStripping)
	qp, table := b.newRSSQP(0, wq)
	f := b.ruleOf(qp, verbs.FlowAttr{Specs: []verbs.FlowSpec{verbs.FlowSpecActionTag{TagID: 6}}})
	frame := func(n int) []byte {
		return summed(cat(macB, macA, be16(0x8100), vlan(n, 0x0800, ip4(17, hostA, hostB, udpOf(1, n)))))
	}
	expect := func(n int) {
		t.Helper()
		want := frame(n)
		got, c := b.got()
		if !bytes.Equal(got, cat(want[:12], want[16:])) || int(c.CVLAN) != n || c.FlowTag != 6 ||
			c.WCFlags != verbs.WCIPCsumOK || c.QPNum != qp.QPN() {
			t.Errorf("frame %d: %+v, % x", n, c, got)
		}
	}
	move := func(states ...verbs.WQState) {
		t.Helper()
		for _, to := range states {
			must(t, wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: to}))
		}
	}
	a.send(frame(1), frame(2), frame(3))
	b.nothing()
	b.post(wq, 0, 2)
	expect(1)
	expect(2)
	a.send(frame(4)) // behind 3, which waits
	b.nothing()
	b.post(wq, 0, 3)
	expect(3)
	expect(4)
	a.send(frame(5))
	expect(5)
	a.send(frame(6))
	move(verbs.WQSErr, verbs.WQSReset, verbs.WQSReady)
	b.post(wq, 0, 1)
	b.nothing() // ERR has dropped it
	must(t, f.Close())
	must(t, qp.Close())
	must(t, table.Close())
	must(t, wq.Close())
}

// TestV_WQ_06_V_QPX_04_EndPadding: zeros follow a frame up to the end of the cache line, within the SGE.
func TestV_WQ_06_V_QPX_04_EndPadding(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	padded := b.newQP(func(i *verbs.QPInitAttr) { i.CreateFlags = verbs.QPCreatePCIWriteEndPadding })
	wq := b.newWQ(b.cq.CQ, verbs.WQPCIWriteEndPadding)
	overWQ, table := b.newRSSQP(0, wq)
	base := int(-b.mr.Addr() & 63) // the first byte of a cache line
	for _, c := range []struct {
		qp      *verbs.QP
		to      interface{ PostRecv(...verbs.RecvWR) error }
		padding bool
	}{{padded, padded, true}, {overWQ, wq, true}, {b.qp, b.qp, false}} {
		f := b.ruleOf(c.qp, verbs.FlowAttr{})
		for n := 60; n < 200; n += 7 {
			frame := eth(macB, macA, 0x88b5, bytes.Repeat([]byte{0xee}, n-14))
			for _, room := range []int{n, n + 3, 500} {
				for i := range b.buf[:1000] {
					b.buf[i] = 0x5a
				}
				must(t, c.to.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(base, 10), b.mr.SGE(base+10, room-10)}}))
				a.send(frame)
				if wc := b.next(); wc == nil || int(wc.ByteLen) != n {
					t.Fatalf("%+v", wc)
				}
				end := n
				if c.padding {
					end = min(room, (n+63)&^63)
				}
				want := append(cat(frame, make([]byte, end-n)), bytes.Repeat([]byte{0x5a}, 100)...)
				if got := b.buf[base : base+len(want)]; !bytes.Equal(got, want) {
					t.Fatalf("%d bytes in %d, padding %v: % x", n, room, c.padding, got[n:])
				}
			}
		}
		must(t, f.Close())
	}
	must(t, padded.Close())
	must(t, overWQ.Close())
	must(t, table.Close())
	must(t, wq.Close())
}

// TestV_AE_19_D_48_FrameQueuesOnAnOverrunCQ: all QPs and work queues of a CQ that overflows fail, also those that
// receive nothing, whichever queue has made it overflow. One in RESET stays there.
func TestV_AE_19_D_48_FrameQueuesOnAnOverrunCQ(t *testing.T) {
	for name, overflow := range map[string]func(t *testing.T, a, b *station, small *verbs.CQ){
		"a frame": func(t *testing.T, a, b *station, small *verbs.CQ) {
			qp := b.newQP(func(i *verbs.QPInitAttr) { i.RecvCQ = small })
			f := b.ruleOf(qp, verbs.FlowAttr{})
			t.Cleanup(func() { must(t, errors.Join(f.Close(), qp.Close())) })
			b.post(qp, 0, 2)
			frame := eth(macB, macA, 0x88b5, make([]byte, 46))
			a.send(frame, frame)
		},
		"a QP of another type": func(t *testing.T, _, b *station, small *verbs.CQ) {
			qp := get(b.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: small, RecvCQ: small,
				Cap: verbs.QPCap{MaxRecvWR: 2}}))(t)
			must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1},
				verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
			must(t, qp.PostRecv(verbs.RecvWR{}, verbs.RecvWR{}))
			must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
			t.Cleanup(func() { must(t, qp.Close()) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := fabricOf(t, 2, nil)
			b := s[1]
			small := get(b.ctx.CreateCQ(1, nil))(t)
			t.Cleanup(func() { must(t, small.Close()) })
			onSmall := func(i *verbs.QPInitAttr) { i.RecvCQ = small }
			idle, unused, wq, unusedWQ := b.newQP(onSmall), b.newQP(onSmall), b.newWQ(small, 0), b.newWQ(small, 0)
			t.Cleanup(func() { must(t, errors.Join(idle.Close(), unused.Close(), wq.Close(), unusedWQ.Close())) })
			must(t, unused.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
			for _, to := range []verbs.WQState{verbs.WQSErr, verbs.WQSReset} {
				must(t, unusedWQ.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: to}))
			}
			overflow(t, s[0], b, small)
			seen := map[any]int{}
			for seen[idle] == 0 || seen[wq] == 0 || seen[small] == 0 {
				switch ev := b.event(); ev.Type {
				case verbs.EventCQErr:
					seen[ev.CQ]++
				case verbs.EventQPFatal:
					seen[ev.QP]++
				case verbs.EventWQFatal:
					seen[ev.WQ]++
				}
			}
			if seen[unused]+seen[unusedWQ] > 0 || idle.State() != verbs.QPSErr || wq.State() != verbs.WQSErr {
				t.Errorf("%v, %v, %v", seen, idle.State(), wq.State())
			}
			err := unused.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort)
			if !errors.Is(err, syscall.EIO) || unused.State() != verbs.QPSReset {
				t.Errorf("a QP leaves RESET: %v, %v", err, unused.State())
			}
			err = unusedWQ.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSReady})
			if !errors.Is(err, syscall.EIO) || unusedWQ.State() != verbs.WQSReset {
				t.Errorf("a work queue leaves RESET: %v, %v", err, unusedWQ.State())
			}
		})
	}
}

func TestD_48_WQFatal(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	small := get(b.ctx.CreateCQ(1, nil))(t)
	wq := b.newWQ(small, 0)
	qp, table := b.newRSSQP(0, wq)
	f := b.ruleOf(qp, verbs.FlowAttr{})
	b.post(wq, 0, 4)
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	a.send(frame, frame, frame)
	if ev := b.event(); ev.Type != verbs.EventCQErr || ev.CQ != small {
		t.Errorf("%+v", ev)
	}
	ev, err := b.ctx.TryGetAsyncEvent()
	if err != nil || ev.Type != verbs.EventWQFatal || ev.WQ != wq || wq.State() != verbs.WQSErr {
		t.Fatalf("%+v, %v, %v", ev, err, wq.State())
	}
	if _, err := b.ctx.CreateWQ(&verbs.WQInitAttr{MaxWR: 8, MaxSGE: 2, PD: b.pd, CQ: small}); !errors.Is(err,
		syscall.EIO) {
		t.Errorf("one more work queue on that CQ: %v", err)
	}
	must(t, f.Close())
	must(t, qp.Close())
	must(t, table.Close())
	closed := make(chan error)
	go func() { closed <- wq.Close() }()
	select {
	case err := <-closed:
		t.Errorf("destroy_wq does not wait for the acknowledgement: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	ev.Ack()
	must(t, <-closed)
	must(t, small.Close())
}
