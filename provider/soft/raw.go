package soft

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/packet"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// Limits of what deals in Ethernet frames.
const (
	maxWQs         = 1 << 16
	maxIndTables   = 1 << 16
	maxIndTable    = 1 << 10
	maxTSOHeader   = 256
	minRate        = 1         // kb/s
	maxRate        = 100 << 20 // kb/s
	rawSendOps     = verbs.QPExWithSend | verbs.QPExWithTSO
	rawCreateFlags = verbs.QPCreateScatterFCS | verbs.QPCreateCVLANStripping
	rawPacketBit   = 1 << verbs.QPTypeRawPacket
	rxHashFields   = verbs.RxHashSrcIPv4 | verbs.RxHashDstIPv4 | verbs.RxHashSrcIPv6 | verbs.RxHashDstIPv6 | verbs.RxHashSrcPortTCP |
		verbs.RxHashDstPortTCP | verbs.RxHashSrcPortUDP | verbs.RxHashDstPortUDP | verbs.RxHashIPsecSPI | verbs.RxHashInner
)

// rawUse counts who uses the link of Ethernet frames, which is open while there are RAW_PACKET QPs.
type rawUse struct {
	mu     sync.Mutex
	qps    int
	wqs    atomic.Int32
	tables atomic.Int32
	lastWQ atomic.Uint32
}

// hasFrames tells whether the device can have RAW_PACKET QPs at all. The process may still lack the right.
func (d *device) hasFrames() bool { return d.cfg.Raw != nil || !d.virtual && packet.Supported }

// clock is the device's time.
func (d *device) clock() func() int64 {
	if d.cfg.Clock != nil {
		return d.cfg.Clock
	}
	start := time.Now()
	return func() int64 { return int64(time.Since(start)) }
}

// openFrames opens the link of Ethernet frames for a QP; closeFrames closes it with the last one.
func (d *device) openFrames() error {
	u := &d.rawUse
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.qps == 0 {
		open := d.cfg.Raw
		if open == nil {
			open = func() (link.Raw, error) { return packet.Open(d.port.Load().iface) }
		}
		l, err := open()
		if err != nil {
			return verbsError("", err)
		}
		d.frames.Open(l)
	}
	u.qps++
	return nil
}

func (d *device) closeFrames() {
	u := &d.rawUse
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.qps--; u.qps == 0 {
		_ = d.frames.Close()
	}
}

// rawCaps describes what deals in Ethernet frames.
func (d *device) rawCaps(attr *verbs.DeviceAttrEx) {
	if !d.hasFrames() {
		return
	}
	attr.DeviceCapFlagsEx |= verbs.DeviceRawScatterFCS
	attr.TSOCaps = verbs.TSOCaps{MaxTSO: raw.MaxTSO, SupportedQPTs: rawPacketBit}
	attr.RSSCaps = verbs.RSSCaps{
		SupportedQPTs: rawPacketBit, MaxRWQIndirectionTables: maxIndTables, MaxRWQIndirectionTableSize: maxIndTable,
		RxHashFieldsMask: uint64(rxHashFields), RxHashFunction: uint8(verbs.RxHashToeplitz),
	}
	attr.MaxWQTypeRQ = maxWQs
	attr.PacketPacingCaps = verbs.PacketPacingCaps{QPRateLimitMin: minRate, QPRateLimitMax: maxRate, SupportedQPTs: rawPacketBit}
	attr.RawPacketCaps = verbs.RawPacketCVLANStripping | verbs.RawPacketScatterFCS | verbs.RawPacketIPCsum
}

// rawQP is the QPDriver of a RAW_PACKET QP.
type rawQP struct {
	raw.QP
	ctx *context
	pd  *pd

	mu   sync.Mutex
	attr verbs.QPAttr // as Modify set them since RESET
}

// createRaw makes a RAW_PACKET QP. The first one of a device opens its packet socket.
func (p *pd) createRaw(init *verbs.QPDriverInit, up verbs.QPUpcalls) (verbs.QPDriver, error) {
	if err := checkRaw(init); err != nil {
		return nil, err
	}
	dev, c := p.ctx.dev, &init.Cap
	if err := dev.openFrames(); err != nil {
		return nil, err
	}
	num, err := p.ctx.eng.ReserveNum()
	if err != nil {
		dev.closeFrames()
		return nil, verbsError("", err)
	}
	q := &rawQP{ctx: p.ctx, pd: p}
	q.Num, q.PD, q.SigAll, q.Up = num, p.num, init.SigAll, qpUpcalls{up}
	if init.SendCQ != nil {
		q.SendCQ = init.SendCQ.(*cq).CQ
		q.SQ = transport.NewSendQueue(int(c.MaxSendWR), int(c.MaxSendSGE), max(int(c.MaxInlineData), int(init.MaxTSOHeader)))
		c.MaxSendWR, c.MaxSendSGE = uint32(q.SQ.Cap()), uint32(q.SQ.MaxSGE())
	}
	if init.RWQIndTbl != nil {
		q.RSS = &raw.RSS{Table: init.RWQIndTbl.(*indTable).wqs, Fields: raw.HashFields(init.RxHash.Fields)}
		copy(q.RSS.Key[:], init.RxHash.Key)
	} else {
		q.RQ = &raw.RQ{
			Queue: transport.NewRecvQueue(int(c.MaxRecvWR), int(c.MaxRecvSGE), false, p.num), CQ: init.RecvCQ.(*cq).CQ, PD: p.num,
			Flags: recvFlags(init.CreateFlags),
		}
		c.MaxRecvWR, c.MaxRecvSGE = uint32(q.RQ.Queue.Cap()), uint32(q.RQ.Queue.MaxSGE())
	}
	p.ctx.frames.AddQP(&q.QP)
	return q, nil
}

func recvFlags(f verbs.QPCreateFlags) (r raw.RecvFlags) {
	if f&verbs.QPCreateScatterFCS != 0 {
		r |= raw.ScatterFCS
	}
	if f&verbs.QPCreateCVLANStripping != 0 {
		r |= raw.StripCVLAN
	}
	return r
}

// checkRaw refuses what the device lacks of a RAW_PACKET QP.
func checkRaw(init *verbs.QPDriverInit) error {
	switch {
	case init.SendOps&^rawSendOps != 0:
		return fail(verbs.EOPNOTSUPP, "the device does not have %v for RAW_PACKET QPs; it has %v", init.SendOps&^rawSendOps, rawSendOps)
	case init.CreateFlags&^rawCreateFlags != 0:
		return fail(verbs.EOPNOTSUPP, "the device does not have the flags %v; it has %v", init.CreateFlags&^rawCreateFlags, rawCreateFlags)
	case init.MaxTSOHeader > maxTSOHeader:
		return fail(verbs.EINVAL, "MaxTSOHeader %d is not possible; 0 to %d are", init.MaxTSOHeader, maxTSOHeader)
	case init.Cap.MaxInlineData > maxInline:
		return fail(verbs.EINVAL, "MaxInlineData %d is not possible; 0 to %d are", init.Cap.MaxInlineData, maxInline)
	}
	return nil
}

// QPN is the QP's number.
func (q *rawQP) QPN() uint32 { return q.Num }

// Modify changes attributes and state.
func (q *rawQP) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	to := transport.State(attr.QPState)
	if to == transport.Reset {
		q.attr = verbs.QPAttr{}
	}
	if mask&verbs.QPAttrRateLimit == 0 {
		if err := q.QP.Modify(to); err != nil {
			return verbsError("", err)
		}
	} else {
		if err := q.QP.ModifyWithRate(to, raw.RateLimit{Kbps: attr.RateLimit}); err != nil {
			return verbsError("", err)
		}
		q.attr.RateLimit = attr.RateLimit
	}
	put(mask&verbs.QPAttrPort, &q.attr.PortNum, attr.PortNum)
	return nil
}

// ModifyRateLimit sets how fast the QP sends.
func (q *rawQP) ModifyRateLimit(attr verbs.QPRateLimitAttr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Limit(raw.RateLimit{Kbps: attr.RateLimit, Burst: attr.MaxBurstSz})
	q.attr.RateLimit = attr.RateLimit
	return nil
}

// Query reads attributes and state.
func (q *rawQP) Query() (verbs.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.attr
	a.QPState = verbs.QPState(q.State())
	return a, nil
}

// PostSend copies requests into the send queue and sends them.
func (q *rawQP) PostSend(wrs []verbs.SendWR) (int, error) { return q.post(wrs, false) }

// PostSendAll is PostSend, of all requests or none.
func (q *rawQP) PostSendAll(wrs []verbs.SendWR) (int, error) { return q.post(wrs, true) }

func (q *rawQP) post(wrs []verbs.SendWR, all bool) (n int, err error) {
	if q.SQ == nil {
		return 0, fail(verbs.EINVAL, "the QP was made without a send queue")
	}
	err = q.QP.PostSend(func(sq *transport.SendQueue) error { return fillAll(q, sq, wrs, all, &n) })
	if err != nil {
		return n, verbsError("", err)
	}
	return n, nil
}

// fill puts a request in its slot.
func (q *rawQP) fill(sq *transport.SendQueue, w *transport.SendWQE, wr *verbs.SendWR) error {
	w.WRID, w.Op, w.Flags = wr.WRID, transport.Op(wr.Opcode), transport.SendFlags(wr.Flags)
	if wr.Flags&verbs.SendInline != 0 {
		return q.pd.fillInline(w, wr)
	}
	if wr.Opcode == verbs.WRTSO {
		w.Inline = append(w.Inline, wr.TSO.Hdr...)
		sq.More(w).MSS = wr.TSO.MSS
	}
	var length uint64
	for i := range wr.SGList {
		length += uint64(wr.SGList[i].Length)
	}
	if length > maxMessage {
		return fail(verbs.EINVAL, "%v: %d bytes are too long", wr.Opcode, length)
	}
	w.Length = uint32(length)
	w.SGEs = append(w.SGEs, toSGEs(wr.SGList)...)
	return nil
}

// PostRecv appends receives to the QP's own queue.
func (q *rawQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if q.State() == transport.Reset {
		return 0, verbsError("", transport.ErrState)
	}
	n, err := postRecv(q.RQ.Queue, wrs)
	q.PostedRecv()
	return n, err
}

// AttachMcast answers EOPNOTSUPP.
func (*rawQP) AttachMcast(verbs.GID) error { return verbs.ErrNotSupported }

// DetachMcast answers EOPNOTSUPP.
func (*rawQP) DetachMcast(verbs.GID) error { return verbs.ErrNotSupported }

// Destroy removes the QP.
func (q *rawQP) Destroy() error {
	q.Remove()
	q.ctx.eng.FreeNum(q.Num)
	q.ctx.dev.closeFrames()
	return nil
}
