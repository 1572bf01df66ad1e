package soft_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// station is a device with a RAW_PACKET QP on a fabric in memory, and one object of each kind.
type station struct {
	t   testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *stepper
	buf []byte
	mr  *verbs.MR
	qp  *verbs.QP
	uds []*verbs.QP // of newUD
}

const slotLen = 2048

// fabricOf makes stations on one fabric, which delivers each frame to all other stations at once.
func fabricOf(t testing.TB, n int, change func(*verbs.QPInitAttr)) (*mem.Fabric, []*station) {
	f := mem.NewFabric(mem.Config{})
	var list []*station
	for i := range n {
		list = append(list, newStation(t, f, i, change))
	}
	return f, list
}

func rawDevice(t testing.TB, f *mem.Fabric, i int) *verbs.Context {
	dev := get(soft.New(softlink.On(soft.Config{
		Name: "vrb_raw", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)})},
	}, softlink.Links{Open: func(addrs []netip.Addr, ports int) (link.Link, error) { return f.Open(addrs, ports) },
		Raw: f.OpenRaw})))(t)
	return get(dev.Open())(t)
}

func newStation(t testing.TB, f *mem.Fabric, i int, change func(*verbs.QPInitAttr)) *station {
	return stationOf(t, rawDevice(t, f, i), change)
}

// stationOf makes a station of a device.
func stationOf(t testing.TB, vctx *verbs.Context, change func(*verbs.QPInitAttr)) *station {
	s := &station{t: t, ctx: vctx, buf: make([]byte, 64*slotLen)}
	s.pd = get(s.ctx.AllocPD())(t)
	s.cq = &stepper{CQ: get(s.ctx.CreateCQ(256, &verbs.CQOptions{
		WCFlags: verbs.WCStandardFlags | verbs.WCExWithFlowTag | verbs.WCExWithCVLAN,
	}))(t)}
	s.mr = get(s.pd.RegMR(s.buf, verbs.AccessLocalWrite))(t)
	s.qp = s.newQP(change)
	t.Cleanup(func() {
		must(t, s.qp.Close())
		must(t, s.mr.Close())
		must(t, s.cq.Close())
		must(t, s.pd.Close())
		must(t, s.ctx.Close())
	})
	return s
}

// newQP makes a RAW_PACKET QP in RTS.
func (s *station) newQP(change func(*verbs.QPInitAttr)) *verbs.QP {
	s.t.Helper()
	init := &verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: s.cq.CQ, RecvCQ: s.cq.CQ, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 512}}
	if change != nil {
		change(init)
	}
	qp := get(s.pd.CreateQP(init))(s.t)
	toRTS(s.t, qp)
	return qp
}

func toRTS(t testing.TB, qp *verbs.QP) {
	t.Helper()
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort))
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTR}, verbs.QPAttrState))
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState))
}

// rule adds a flow rule to the station's QP.
func (s *station) rule(attr verbs.FlowAttr) *verbs.Flow {
	s.t.Helper()
	attr.Port = 1
	return s.ruleOf(s.qp, attr)
}

func (s *station) ruleOf(qp *verbs.QP, attr verbs.FlowAttr) *verbs.Flow {
	s.t.Helper()
	attr.Port = 1
	f := get(qp.CreateFlow(&attr))(s.t)
	s.t.Cleanup(func() { _ = f.Close() })
	return f
}

// post posts receives of slotLen bytes with the WRIDs first to first+n-1, into the slots of the same numbers.
func (s *station) post(q interface{ PostRecv(...verbs.RecvWR) error }, first, n int) {
	s.t.Helper()
	for i := first; i < first+n; i++ {
		must(s.t, q.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{s.mr.SGE(i*slotLen, slotLen)}}))
	}
}

// send sends frames and takes their completions.
func (s *station) send(frames ...[]byte) {
	s.t.Helper()
	for _, f := range frames {
		copy(s.buf[63*slotLen:], f)
		must(s.t, s.qp.PostSend(verbs.SendWR{WRID: 1000, Opcode: verbs.WRSend,
			SGList: []verbs.SGE{s.mr.SGE(63*slotLen, len(f))}}))
		if c := s.next(); c == nil || c.Status != verbs.WCSuccess || c.Opcode != verbs.WCSend || c.WRID != 1000 {
			s.t.Fatalf("send: %+v", c)
		}
	}
}

// next takes a completion and returns nil if there is none. A frame that a rule steers to a UD QP waits while another
// goroutine, the engine's own among them, works on the QP's shard; query_qp, which takes the shard, comes after it.
func (s *station) next() *verbs.WC {
	s.t.Helper()
	for _, qp := range s.uds {
		_, _, _ = qp.Query(verbs.QPAttrState)
	}
	if err := s.cq.StartPoll(&s.cq.WC); err != nil {
		return nil
	}
	defer s.cq.EndPoll()
	c := &verbs.WC{CVLAN: s.cq.CVLAN, FlowTag: s.cq.FlowTag}
	c.WRID, c.Status, c.Opcode, c.ByteLen, c.QPNum, c.WCFlags = s.cq.WRID, s.cq.Status, s.cq.Opcode, s.cq.ByteLen,
		s.cq.QPNum, s.cq.WCFlags
	return c
}

// got takes a receive completion, which must exist, and returns its frame.
func (s *station) got() ([]byte, *verbs.WC) {
	s.t.Helper()
	c := s.next()
	if c == nil || c.Status != verbs.WCSuccess || c.Opcode != verbs.WCRecv {
		s.t.Fatalf("receive: %+v", c)
	}
	at := int(c.WRID) * slotLen
	return s.buf[at : at+int(c.ByteLen)], c
}

// nothing checks that there is no completion.
func (s *station) nothing() {
	s.t.Helper()
	if c := s.next(); c != nil {
		s.t.Fatalf("a completion: %+v", c)
	}
}

// event waits for an asynchronous event.
func (s *station) event() verbs.AsyncEvent {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ev, err := s.ctx.TryGetAsyncEvent(); err == nil {
			ev.Ack()
			return ev
		}
	}
	s.t.Fatal("no event")
	panic("")
}

// The following functions compose frames from their layers.

var (
	macA = []byte{0x02, 0, 0, 0, 0, 0xa}
	macB = []byte{0x02, 0, 0, 0, 0, 0xb}
	macM = []byte{0x01, 0, 0x5e, 0, 0, 1}
)

func cat(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func be16(v ...int) (b []byte) {
	for _, x := range v {
		b = binary.BigEndian.AppendUint16(b, uint16(x))
	}
	return b
}

func eth(dst, src []byte, etherType int, payload ...[]byte) []byte {
	return cat(dst, src, be16(etherType), cat(payload...))
}

func vlan(tci, etherType int, payload ...[]byte) []byte {
	return cat(be16(tci, etherType), cat(payload...))
}

func ip4(proto int, src, dst [4]byte, payload ...[]byte) []byte {
	p := cat(payload...)
	h := cat([]byte{0x45, 0x20}, be16(20+len(p), 7, 0x4000), []byte{33, byte(proto)}, be16(0), src[:], dst[:])
	return cat(h, p)
}

func ip6(proto int, src, dst [16]byte, payload ...[]byte) []byte {
	p := cat(payload...)
	return cat([]byte{0x61, 0x2a, 0xbc, 0xde}, be16(len(p)), []byte{byte(proto), 44}, src[:], dst[:], p)
}

func udpOf(src, dst int, payload ...[]byte) []byte {
	p := cat(payload...)
	return cat(be16(src, dst, 8+len(p), 0), p)
}

func tcpOf(src, dst int, payload ...[]byte) []byte {
	return cat(be16(src, dst), []byte{0, 0, 1, 0, 0, 0, 0, 2, 0x50, 0x18}, be16(1000, 0, 0), cat(payload...))
}

// summed computes checksums.
func summed(b []byte) []byte {
	var h raw.Headers
	raw.Parse(b, &h)
	raw.FillChecksums(b, &h)
	return b
}

var (
	hostA = [4]byte{10, 0, 0, 1}
	hostB = [4]byte{10, 0, 0, 2}
	netA  = netip.MustParseAddr("fd00::1").As16()
	netB  = netip.MustParseAddr("fd00::2").As16()
)
