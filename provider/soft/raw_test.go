package soft_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// matchAll adds a rule for all frames to each of the stations.
func matchAll(stations ...*station) {
	for _, s := range stations {
		s.rule(verbs.FlowAttr{})
	}
}

func TestV_FL_09_FrameOfARule(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	frame := summed(eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, []byte("hello")))))
	b.post(b.qp, 0, 4)
	a.send(frame)
	b.nothing() // no rule matches it
	matchAll(b)
	a.send(frame)
	got, c := b.got()
	if !bytes.Equal(got, frame) || c.QPNum != b.qp.QPN() || c.WCFlags != verbs.WCIPCsumOK || c.CVLAN != 0 ||
		c.FlowTag != 0 {
		t.Errorf("% x, %+v", got, c)
	}
	a.nothing()
}

func TestV_WC_04_IPCsumOK(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	matchAll(b)
	good := summed(eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2, []byte("hello")))))
	for i, frame := range [][]byte{
		good,
		with(good, 25),           // IPv4 checksum
		with(good, 51),           // TCP checksum
		with(good, len(good)-1),  // data
		good[:len(good)-1],       // truncated
		with(good, 0),            // another station's; its checksums are valid
		append(good, 0, 0, 0, 0), // padding
		summed(eth(macB, macA, 0x86dd, ip6(6, netA, netB, tcpOf(1, 2)))),
		eth(macB, macA, 0x88b5, make([]byte, 46)),
	} {
		b.post(b.qp, 0, 1)
		a.send(frame)
		_, c := b.got()
		if want := i == 0 || i == 5 || i == 6; (c.WCFlags == verbs.WCIPCsumOK) != want {
			t.Errorf("frame %d: %v", i, c.WCFlags)
		}
	}
}

func TestV_SEND_13_IPCsumOfRawPackets(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	matchAll(b)
	for _, frame := range [][]byte{
		eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2, []byte("odd")))),
		eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, []byte("even")))),
		cat(macB, macA, be16(0x8100), vlan(5, 0x86dd, ip6(17, netA, netB, udpOf(1, 2, []byte("x"))))),
		eth(macB, macA, 0x88b5, make([]byte, 46)), // no IPv4 header
	} {
		b.post(b.qp, 0, 1)
		must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendIPCsum | verbs.SendInline, Inline: frame}))
		a.next()
		if got, _ := b.got(); !bytes.Equal(got, summed(bytes.Clone(frame))) {
			t.Errorf("% x", got)
		}
	}
}

func TestV_QPX_04_StrippedTagAndFCS(t *testing.T) {
	_, s := fabricOf(t, 2, func(i *verbs.QPInitAttr) {
		i.CreateFlags = verbs.QPCreateCVLANStripping | verbs.QPCreateScatterFCS
	})
	a, b := s[0], s[1]
	matchAll(b)
	tagged := cat(macB, macA, be16(0x8100), vlan(0x6123, 0x88b5, make([]byte, 46)))
	plain := eth(macB, macA, 0x88b5, make([]byte, 46))
	service := cat(macB, macA, be16(0x88a8), vlan(0x6123, 0x88b5, make([]byte, 46))) // not a C-VLAN tag
	for i, frame := range [][]byte{tagged, plain, service} {
		b.post(b.qp, 0, 1)
		a.send(frame)
		got, c := b.got()
		fcs := raw.FCS(frame)
		want, cvlan := cat(frame, fcs[:]), uint16(0)
		if i == 0 {
			want, cvlan = cat(plain, fcs[:]), 0x6123
		}
		if !bytes.Equal(got, want) || c.CVLAN != cvlan {
			t.Errorf("frame %d: CVLAN %#x, % x", i, c.CVLAN, got)
		}
	}
}

func TestV_SEND_04_V_SEND_17_SizesOfFrames(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	matchAll(b)
	big := get(b.pd.RegMR(make([]byte, 10000), verbs.AccessLocalWrite))(t)
	frame := eth(macB, macA, 0x88b5, make([]byte, 9004)) // the longest frame: 9014 bytes and a tag
	ownReport := get(a.pd.RegMR(append(frame, 1, 2, 3), verbs.AccessLocalWrite))(t)
	for _, n := range []int{14, 15, 60, 9017, 9018} {
		must(t, b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{big.SGE(0, 10), big.SGE(10, 0), big.SGE(10, 9990)}}))
		must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend,
			SGList: []verbs.SGE{ownReport.SGE(0, 7), ownReport.SGE(7, n-7)}}))
		if c := a.next(); c.Status != verbs.WCSuccess {
			t.Fatalf("%d bytes: %+v", n, c)
		}
		if c := b.next(); c == nil || c.Status != verbs.WCSuccess || int(c.ByteLen) != n {
			t.Fatalf("%d bytes: %+v", n, c)
		}
	}
	for _, n := range []int{0, 13, 9019} { // a send error: SQE, which the program leaves by modify_qp
		must(t, a.qp.PostSend(
			verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: []verbs.SGE{ownReport.SGE(0, n)}},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: []verbs.SGE{ownReport.SGE(0, 60)}}))
		if c := a.next(); c == nil || c.Status != verbs.WCLocLenErr || c.WRID != 1 {
			t.Errorf("%d bytes: %+v", n, c)
		}
		if c := a.next(); c == nil || c.Status != verbs.WCWRFlushErr || c.WRID != 2 || a.qp.State() != verbs.QPSSQE {
			t.Errorf("%d bytes, the next one: %+v, %v", n, c, a.qp.State())
		}
		must(t, a.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState))
	}
	b.nothing()
	must(t, ownReport.Close())
	must(t, big.Close())
}

func TestX_WC_02_BadMemoryOfRawPackets(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	matchAll(b)
	must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend,
		SGList: []verbs.SGE{{Addr: a.mr.Addr(), Length: 60, LKey: a.mr.LKey() + 1}}}))
	if c := a.next(); c.Status != verbs.WCLocProtErr || a.qp.State() != verbs.QPSSQE {
		t.Errorf("a wrong lkey in a send: %+v, %v", c, a.qp.State())
	}
	must(t, a.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState))
	for status, sge := range map[verbs.WCStatus]verbs.SGE{
		verbs.WCLocProtErr: {Addr: b.mr.Addr(), Length: 100, LKey: b.mr.LKey() + 1},
		verbs.WCLocLenErr:  b.mr.SGE(0, 59),
	} {
		must(t, b.qp.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{sge}}, verbs.RecvWR{WRID: 2}))
		a.send(eth(macB, macA, 0x88b5, make([]byte, 46)))
		if c := b.next(); c == nil || c.Status != status || c.WRID != 1 {
			t.Errorf("%v: %+v", status, c)
		}
		if c := b.next(); c == nil || c.Status != verbs.WCWRFlushErr || c.WRID != 2 || b.qp.State() != verbs.QPSErr {
			t.Errorf("%v, the next one: %+v, %v", status, c, b.qp.State())
		}
		// Receives posted in ERR are flushed.
		must(t, b.qp.PostRecv(verbs.RecvWR{WRID: 3}))
		must(t, b.qp.PostSend(verbs.SendWR{WRID: 4, Opcode: verbs.WRSend}))
		for want := uint64(3); want <= 4; want++ {
			if c := b.next(); c == nil || c.Status != verbs.WCWRFlushErr || c.WRID != want {
				t.Errorf("%+v, want a flushed %d", c, want)
			}
		}
		reset(t, b.qp)
	}
}

func TestV_QPS_05_RawPacketsByState(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	matchAll(b)
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	state := func(s verbs.QPState, port uint8) {
		t.Helper()
		mask := verbs.QPAttrState
		if port != 0 {
			mask |= verbs.QPAttrPort
		}
		must(t, b.qp.Modify(&verbs.QPAttr{QPState: s, PortNum: port}, mask))
	}
	receives := func(want bool) {
		t.Helper()
		b.post(b.qp, 0, 1)
		a.send(frame)
		if got := b.next() != nil; got != want {
			t.Fatalf("a frame was received in %v: %v", b.qp.State(), got)
		}
	}
	state(verbs.QPSReset, 0)
	if err := b.qp.PostRecv(verbs.RecvWR{}); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("PostRecv in RESET: %v", err)
	}
	state(verbs.QPSInit, 1)
	receives(false)
	state(verbs.QPSRTR, 0)
	receives(true)
	if err := b.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend}); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("PostSend in RTR: %v", err)
	}
	state(verbs.QPSRTS, 0)
	receives(true)
	state(verbs.QPSSQD, 0)
	receives(true)
	// Sends posted in SQD wait.
	a.post(a.qp, 10, 1)
	matchAll(a)
	must(t, b.qp.PostSend(verbs.SendWR{WRID: 5, Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: frame}))
	a.nothing()
	state(verbs.QPSRTS, 0)
	a.got()
	for c := b.next(); c == nil || c.WRID != 5; c = b.next() {
		if c == nil {
			t.Fatal("the send has no completion")
		}
	}
	// RESET discards receives and completions.
	b.post(b.qp, 20, 1)
	a.send(frame)
	state(verbs.QPSReset, 0)
	b.nothing()
	attr, _, err := b.qp.Query(verbs.QPAttrState)
	if err != nil || attr.QPState != verbs.QPSReset {
		t.Errorf("%+v, %v", attr, err)
	}
}

func TestV_GEN_06_SlotsOfARawSendQueue(t *testing.T) {
	_, s := fabricOf(t, 1, func(i *verbs.QPInitAttr) { i.SigAll = false })
	a := s[0]
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: frame}
	for range 3 {
		for range 31 {
			must(t, a.qp.PostSend(wr))
		}
		wr.Flags |= verbs.SendSignaled
		must(t, a.qp.PostSend(wr))
		wr.Flags &^= verbs.SendSignaled
		if err := a.qp.PostSend(wr); !errors.Is(err, verbs.ENOMEM) {
			t.Fatalf("the 33rd: %v", err)
		}
		if c := a.next(); c == nil || c.Status != verbs.WCSuccess {
			t.Fatalf("%+v", c)
		}
	}
}

// TestV_SEND_17_EmptySGEsOfFrames: the keys of SGEs of length 0 are not checked, as on other QPs.
func TestV_SEND_17_EmptySGEsOfFrames(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	matchAll(b)
	frame := eth(macB, macA, 0x88b5, []byte("0123456789"))
	copy(a.buf, frame)
	must(t, b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{{}, b.mr.SGE(0, 20), {LKey: 1}, b.mr.SGE(20, 100)}}))
	must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend,
		SGList: []verbs.SGE{a.mr.SGE(0, 5), {}, a.mr.SGE(5, len(frame)-5), {LKey: 1}}}))
	if c := a.next(); c == nil || c.Status != verbs.WCSuccess {
		t.Errorf("the send: %+v", c)
	}
	if got, _ := b.got(); !bytes.Equal(got, frame) {
		t.Errorf("received % x", got)
	}
}

func TestV_AE_12_RawQPWhoseCQOverflows(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	small := get(b.ctx.CreateCQ(1, nil))(t)
	qp := b.newQP(func(i *verbs.QPInitAttr) { i.RecvCQ = small })
	f := b.ruleOf(qp, verbs.FlowAttr{})
	b.post(qp, 0, 3)
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	a.send(frame, frame)
	if ev := b.event(); ev.Type != verbs.EventCQErr || ev.CQ != small {
		t.Errorf("%+v", ev)
	}
	if ev := b.event(); ev.Type != verbs.EventQPFatal || ev.QP != qp || qp.State() != verbs.QPSErr {
		t.Errorf("%+v, %v", ev, qp.State())
	}
	if _, err := b.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: b.cq.CQ,
		RecvCQ: small}); !errors.Is(err, syscall.EIO) {
		t.Errorf("one more QP on that CQ: %v", err)
	}
	must(t, f.Close())
	must(t, qp.Close())
	must(t, small.Close())
}

// tsoInit changes attributes to those of a QP with TSO.
func tsoInit(i *verbs.QPInitAttr) {
	i.MaxTSOHeader = 54
	i.SendOpsFlags = verbs.QPExWithSend | verbs.QPExWithTSO
}

// TestV_QPS_10_V_QPS_11_SegmentsInSQD: a request of which some frames were sent before SQD sends the others there. Only
// then the QP is drained. Requests that follow it wait.
func TestV_QPS_10_V_QPS_11_SegmentsInSQD(t *testing.T) {
	_, s := fabricOf(t, 1, tsoInit)
	a := s[0]
	toSQD, toRTS := verbs.QPAttr{QPState: verbs.QPSSQD}, verbs.QPAttr{QPState: verbs.QPSRTS}
	draining := func() bool {
		now, _, err := a.qp.Query(verbs.QPAttrState)
		must(t, err)
		return now.SQDraining
	}
	must(t, a.qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: 400, MaxBurstSz: 1})) // 20 ms for a frame
	hdr := eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2)))
	must(t, a.qp.PostSend(verbs.SendWR{WRID: 1, Opcode: verbs.WRTSO, SGList: []verbs.SGE{a.mr.SGE(0, 4000)},
		TSO: &verbs.TSO{Hdr: hdr, MSS: 1000}}))
	must(t, a.qp.Modify(&toSQD, verbs.QPAttrState))
	must(t, a.qp.PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: []verbs.SGE{a.mr.SGE(0, 60)}}))
	if !draining() {
		t.Error("the QP is drained before its request is complete")
	}
	if err := a.qp.Modify(&toRTS, verbs.QPAttrState); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("SQD to RTS while draining: %v", err)
	}
	waitFor(t, "the end of the request", func() bool { return !draining() })
	if c := a.next(); c == nil || c.WRID != 1 || c.Status != verbs.WCSuccess || c.Opcode != verbs.WCTSO {
		t.Errorf("the request: %+v", c)
	}
	time.Sleep(50 * time.Millisecond)
	a.nothing()
	must(t, a.qp.Modify(&toRTS, verbs.QPAttrState))
	var c *verbs.WC
	waitFor(t, "the next request", func() bool { c = a.next(); return c != nil })
	if c.WRID != 2 || c.Status != verbs.WCSuccess {
		t.Errorf("the next request: %+v", c)
	}
}

func TestV_WR_19_SegmentsOnTheWire(t *testing.T) {
	_, s := fabricOf(t, 2, tsoInit)
	a, b := s[0], s[1]
	matchAll(b)
	hdr := eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2)))
	for i := range a.buf[:9000] {
		a.buf[i] = byte(i * 3)
	}
	x := get(a.qp.Ex())(t)
	for _, n := range []int{1, 1000, 1001, 9000} {
		b.post(b.qp, 20, 9)
		x.Start()
		x.WRID = 7
		x.SendTSO(hdr, 1000)
		x.SetSGEList([]verbs.SGE{a.mr.SGE(0, n/2), a.mr.SGE(n/2, n-n/2)})
		must(t, x.Complete())
		if c := a.next(); c == nil || c.Status != verbs.WCSuccess || c.Opcode != verbs.WCTSO || c.WRID != 7 {
			t.Fatalf("%+v", c)
		}
		var all []byte
		for range (n + 999) / 1000 {
			got, c := b.got()
			if c.WCFlags != verbs.WCIPCsumOK || binary.BigEndian.Uint32(got[38:]) != uint32(0x100+len(all)) {
				t.Errorf("%v, % x", c.WCFlags, got[:54])
			}
			all = append(all, got[54:]...)
		}
		if !bytes.Equal(all, a.buf[:n]) {
			t.Errorf("%d bytes: the received frames differ", n)
		}
		reset(t, b.qp)
	}
	// The plain call, and headers other than TCP.
	b.post(b.qp, 0, 2)
	must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRTSO, SGList: []verbs.SGE{a.mr.SGE(0, 5)},
		TSO: &verbs.TSO{Hdr: hdr, MSS: 100}}))
	a.next()
	b.got()
	must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRTSO, SGList: []verbs.SGE{a.mr.SGE(0, 5)},
		TSO: &verbs.TSO{Hdr: hdr[:42], MSS: 100}}))
	if c := a.next(); c.Status != verbs.WCLocQPOpErr || a.qp.State() != verbs.QPSSQE {
		t.Errorf("half a header: %+v", c)
	}
}

func TestV_QDX_RawPacketCaps(t *testing.T) {
	f := mem.NewFabric(mem.Config{})
	vctx := rawDevice(t, f, 0)
	caps := get(vctx.QueryDevice())(t)
	if caps.RawPacketCaps != verbs.RawPacketCVLANStripping|verbs.RawPacketScatterFCS|verbs.RawPacketIPCsum|
		verbs.RawPacketDelayDrop || caps.DeviceCapFlags&verbs.DevicePCIWriteEndPadding == 0 ||
		caps.TSOCaps != (verbs.TSOCaps{MaxTSO: 1 << 18, SupportedQPTs: 1<<8 | 1<<4}) || caps.MaxWQTypeRQ != 1<<16 ||
		caps.RSSCaps.MaxRWQIndirectionTableSize != 1024 || caps.RSSCaps.RxHashFunction != 1 ||
		caps.RSSCaps.RxHashFieldsMask != 0x800001ff ||
		caps.PacketPacingCaps.SupportedQPTs != 1<<8|1<<2|1<<3|1<<4|1<<9 ||
		caps.DeviceCapFlags&verbs.DeviceRawScatterFCS == 0 {
		t.Errorf("%+v", caps)
	}
	if f := caps.DeviceCapFlags; f&verbs.DeviceManagedFlowSteering == 0 || f&verbs.DeviceRawIPCsum == 0 ||
		caps.MaxRawEthyQP == 0 {
		t.Error(f)
	}
	must(t, vctx.Close())
	e := newEnds(t, &networks[0], 1, nil)[0] // a device without a link of frames
	caps = get(e.ctx.QueryDevice())(t)
	if caps.RawPacketCaps != 0 || caps.TSOCaps.SupportedQPTs != 1<<4 || caps.MaxWQTypeRQ != 0 ||
		caps.DeviceCapFlags&verbs.DeviceRawIPCsum != 0 {
		t.Errorf("%+v", caps)
	}
}

func TestV_QPX_10_UnsupportedByRawPackets(t *testing.T) {
	_, s := fabricOf(t, 1, nil)
	a := s[0]
	for errno, changes := range map[verbs.Errno][]func(*verbs.QPInitAttr){
		verbs.EOPNOTSUPP: {
			func(i *verbs.QPInitAttr) { i.Type, i.SendOpsFlags = verbs.QPTypeUD, verbs.QPExWithFlush },
		},
		verbs.EINVAL: {
			func(i *verbs.QPInitAttr) { i.MaxTSOHeader = 513 },
			func(i *verbs.QPInitAttr) { i.Type, i.MaxTSOHeader = verbs.QPTypeUD, 513 },
			func(i *verbs.QPInitAttr) { i.Cap.MaxInlineData = 4097 },
		},
	} {
		for n, change := range changes {
			init := &verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: a.cq.CQ, RecvCQ: a.cq.CQ}
			change(init)
			if _, err := a.pd.CreateQP(init); !errors.Is(err, errno) {
				t.Errorf("%v, %d: %v", errno, n, err)
			}
		}
	}
	init := &verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: a.cq.CQ, RecvCQ: a.cq.CQ, MaxTSOHeader: 512}
	must(t, get(a.pd.CreateQP(init))(t).Close())
}

// TestX_QPM_01_RateLimit: in the fabric's virtual time, no frame is sent before its time.
func TestX_QPM_01_RateLimit(t *testing.T) {
	now := int64(1)
	clock := func() int64 { return now }
	f := mem.NewFabric(mem.Config{Now: clock})
	dev := get(soft.New(softlink.On(soft.Config{
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, 9})}, Clock: clock, Manual: true, Shards: 1,
	}, softlink.Links{Open: func(a []netip.Addr, n int) (link.Link, error) { return f.Open(a, n) }, Raw: f.OpenRaw})))(t)
	vctx := get(dev.Open())(t)
	pd := get(vctx.AllocPD())(t)
	cq := get(vctx.CreateCQ(64, nil))(t)
	qp := get(pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRawPacket, SendCQ: cq, RecvCQ: cq, SigAll: true, Cap: verbs.QPCap{MaxSendWR: 64,
			MaxInlineData: 2000},
	}))(t)
	toRTS(t, qp)
	if err := qp.Modify(&verbs.QPAttr{RateLimit: 100<<20 + 1}, verbs.QPAttrRateLimit); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a rate above the device's: %v", err)
	}
	// 8000 kb/s is one byte each microsecond: a frame of 1000 bytes takes a millisecond.
	must(t, qp.Modify(&verbs.QPAttr{RateLimit: 8000}, verbs.QPAttrRateLimit))
	if a, _, err := qp.Query(verbs.QPAttrRateLimit); err != nil || a.RateLimit != 8000 {
		t.Errorf("%d kb/s, %v", a.RateLimit, err)
	}
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: make([]byte, 1000)}
	done := func() (n int) {
		dev.Step()
		var wcs [64]verbs.WC
		return get(cq.Poll(wcs[:]))(t)
	}
	run := func(frames int, want ...int64) {
		t.Helper()
		start := now
		for range frames {
			must(t, qp.PostSend(wr))
		}
		var got []int64
		for sent := 0; sent < frames; {
			n := done()
			for range n {
				got = append(got, now-start)
			}
			if sent += n; sent == frames {
				break
			}
			next := dev.NextDeadline()
			if next <= now {
				t.Fatalf("at %d, deadline %d: no frame was sent", now, next)
			}
			now = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("frames at %v, want %v", got, want)
		}
	}
	const ms = 1e6
	run(4, 0, ms, 2*ms, 3*ms)
	now += 1e9 // after an idle second, a burst of 2 ms is sent at once, and the frame that is due
	run(5, 0, 0, 0, ms, 2*ms)
	must(t, qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: 4000, MaxBurstSz: 1000}))
	now += 1e9
	run(4, 0, 0, 2*ms, 4*ms)
	must(t, qp.ModifyRateLimit(&verbs.QPRateLimitAttr{}))
	run(5, 0, 0, 0, 0, 0)
	// Waiting sends are flushed in ERR.
	must(t, qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: 1}))
	must(t, qp.PostSend(wr, wr, wr))
	if n := done(); n != 1 {
		t.Errorf("%d sent", n)
	}
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
	if n := done(); n != 2 {
		t.Errorf("%d flushed", n)
	}
	if err := qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: 1}); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("modify_qp_rate_limit in ERR: %v", err)
	}
	must(t, qp.Close())
	must(t, cq.Close())
	must(t, pd.Close())
	must(t, vctx.Close())
}

// TestX_QPM_01_RateLimitByTheClock: in real time a timer sends the frames, without calls of the program.
func TestX_QPM_01_RateLimitByTheClock(t *testing.T) {
	_, list := fabricOf(t, 2, nil)
	a, b := list[0], list[1]
	matchAll(b)
	const frames, size = 9, 500
	send := func() (took time.Duration) {
		for range frames {
			must(t, b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, slotLen)}}))
		}
		start := time.Now()
		for range frames {
			must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline,
				Inline: eth(macB, macA, 0x88b5, make([]byte, size-14))}))
		}
		for _, s := range list {
			for range frames {
				c := s.next()
				for ; c == nil && time.Since(start) < 20*time.Second; c = s.next() {
					time.Sleep(100 * time.Microsecond)
				}
				if c == nil || c.Status != verbs.WCSuccess {
					t.Fatalf("%+v", c)
				}
			}
		}
		return time.Since(start)
	}
	// 400 kb/s: 10 ms for each frame. The first two, one of the burst and one that is due, are sent at once.
	must(t, a.qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: 400, MaxBurstSz: size}))
	if took := send(); took < (frames-2)*10*time.Millisecond {
		t.Errorf("%d frames of 10 ms were sent in %v", frames, took)
	}
	must(t, a.qp.ModifyRateLimit(&verbs.QPRateLimitAttr{}))
	send()
}

func TestRawPacketsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	_, s := fabricOf(t, 2, func(i *verbs.QPInitAttr) { i.MaxTSOHeader = 54 })
	a, b := s[0], s[1]
	matchAll(b)
	step := rawStep(a, b)
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%v allocations for a frame and a TSO request of two", n)
	}
}

// rawStep sends a frame and a TSO request from a to b and takes all completions.
func rawStep(a, b *station) func() {
	frame := summed(eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2, make([]byte, 1000)))))
	copy(a.buf, frame)
	tso := verbs.TSO{Hdr: frame[:54], MSS: 500}
	sends := []verbs.SendWR{
		{Opcode: verbs.WRSend, SGList: []verbs.SGE{a.mr.SGE(0, len(frame))}},
		{Opcode: verbs.WRTSO, SGList: []verbs.SGE{a.mr.SGE(54, 1000)}, TSO: &tso},
	}
	recv := verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, slotLen)}}
	var wcs [4]verbs.WC
	return func() {
		must(a.t, b.qp.PostRecv(recv, recv, recv))
		must(a.t, a.qp.PostSend(sends...))
		if n, err := a.cq.Poll(wcs[:]); n != 2 || err != nil {
			a.t.Fatal(n, err)
		}
		if n, err := b.cq.Poll(wcs[:]); n != 3 || err != nil || wcs[2].Status != verbs.WCSuccess {
			a.t.Fatal(n, err)
		}
	}
}

func BenchmarkRawPackets(b *testing.B) {
	_, s := fabricOf(b, 2, func(i *verbs.QPInitAttr) { i.MaxTSOHeader = 54 })
	matchAll(s[1])
	step := rawStep(s[0], s[1])
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}

// TestSegmentsOfANullMR checks that a long TSO request from a null MR sends zeros, and none of what the request before
// it has sent.
func TestSegmentsOfANullMR(t *testing.T) {
	const size, mss, frames, room = 70000, 8000, 9, 8192
	_, s := fabricOf(t, 2, tsoInit)
	a, b := s[0], s[1]
	matchAll(b)
	null := get(a.pd.AllocNullMR())(t)
	defer func() { must(t, null.Close()) }()
	for i := range a.buf {
		a.buf[i] = 0xAA
	}
	hdr := eth(macB, macA, 0x0800, ip4(6, hostA, hostB, tcpOf(1, 2)))
	for _, memory := range []verbs.SGE{a.mr.SGE(0, size), {Length: size, LKey: null.LKey()}} {
		for i := range frames {
			must(t, b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(i*room, room)}}))
		}
		must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRTSO, SGList: []verbs.SGE{memory},
			TSO: &verbs.TSO{Hdr: hdr, MSS: mss}}))
		if c := a.next(); c == nil || c.Status != verbs.WCSuccess {
			t.Fatalf("%+v", c)
		}
		sum := 0
		for i := range frames {
			c := b.next()
			if c == nil || c.Status != verbs.WCSuccess {
				t.Fatalf("%+v", c)
			}
			for _, v := range b.buf[i*room:][len(hdr):c.ByteLen] {
				sum += int(v)
			}
		}
		want := 0xAA * size
		if memory.LKey == null.LKey() {
			want = 0
		}
		if sum != want {
			t.Errorf("the sum of the bytes is %d, want %d", sum, want)
		}
	}
}
