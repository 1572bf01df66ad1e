package soft

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/packet"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// Limits of RAW_PACKET QPs and work queues.
const (
	maxWQs         = 1 << 16
	maxIndTables   = 1 << 16
	maxIndTable    = 1 << 10
	maxTSOHeader   = 512
	minRate        = 1         // kb/s
	maxRate        = 100 << 20 // kb/s
	rawSendOps     = verbs.QPExWithSend | verbs.QPExWithTSO
	rawCreateFlags = verbs.QPCreateScatterFCS | verbs.QPCreateCVLANStripping | verbs.QPCreatePCIWriteEndPadding
	rawPacketBit   = 1 << verbs.QPTypeRawPacket
	rxHashFields   = verbs.RxHashSrcIPv4 | verbs.RxHashDstIPv4 | verbs.RxHashSrcIPv6 | verbs.RxHashDstIPv6 |
		verbs.RxHashSrcPortTCP |
		verbs.RxHashDstPortTCP | verbs.RxHashSrcPortUDP | verbs.RxHashDstPortUDP | verbs.RxHashIPsecSPI | verbs.RxHashInner
)

// rawUse counts a device's objects for Ethernet frames. The link of frames is open while there are RAW_PACKET QPs or
// rules of UD QPs.
type rawUse struct {
	mu sync.Mutex // guards users, and opening and closing of the link
	// +checklocks:mu
	users  int
	wqs    atomic.Int32
	tables atomic.Int32
	lastWQ atomic.Uint32
}

// hasFrames reports whether the device supports RAW_PACKET QPs. The process may still lack the right.
func (d *device) hasFrames() bool {
	return d.cfg.links.Raw != nil || !d.virtual && !d.spec.streams && packet.Supported
}

// onFirst reports whether a port is on the interface of port 1.
func (d *device) onFirst(port uint8) bool { return port <= 1 || d.at(port).iface == d.at(1).iface }

// checkFramePort refuses a port on another interface than port 1: the link of frames is of that one.
func (d *device) checkFramePort(port uint8) error {
	if d.onFirst(port) {
		return nil
	}
	return fail(verbs.EOPNOTSUPP, "port %d: Ethernet frames are those of the interface of port 1 only; use a device of "+
		"interface %s", port, d.at(port).iface)
}

// clock returns the device's clock, in nanoseconds.
func (d *device) clock() func() int64 {
	if d.cfg.Clock != nil {
		return d.cfg.Clock
	}
	start := time.Now()
	return func() int64 { return int64(time.Since(start)) }
}

// openFrames counts a RAW_PACKET QP, or a rule of a UD QP, and opens the link for the first one.
func (d *device) openFrames() error {
	u := &d.rawUse
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users == 0 {
		open := d.cfg.links.Raw
		if open == nil {
			open = func() (link.Raw, error) { return packet.Open(d.at(1).iface) }
		}
		l, err := open()
		if err != nil {
			return verbsError("", err)
		}
		d.frames.Open(l)
	} else {
		d.frames.MTUChanged() // the interface may have come back just now
	}
	u.users++
	return nil
}

// closeFrames removes it from the count and closes the link after the last one.
func (d *device) closeFrames() {
	u := &d.rawUse
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users--; u.users == 0 {
		_ = d.frames.Close()
	}
}

// followMTU makes the link of frames follow the MTU of its interface.
func (d *device) followMTU() {
	u := &d.rawUse
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users > 0 {
		d.frames.MTUChanged()
	}
}

// rawCaps sets the attributes for Ethernet frames.
func (d *device) rawCaps(attr *verbs.DeviceAttr) {
	if !d.hasFrames() {
		return
	}
	attr.DeviceCapFlags |= verbs.DeviceRawScatterFCS | verbs.DevicePCIWriteEndPadding
	attr.TSOCaps.SupportedQPTs |= rawPacketBit
	attr.RSSCaps = verbs.RSSCaps{
		SupportedQPTs: rawPacketBit, MaxRWQIndirectionTables: maxIndTables, MaxRWQIndirectionTableSize: maxIndTable,
		RxHashFieldsMask: uint64(rxHashFields), RxHashFunction: uint8(verbs.RxHashToeplitz),
	}
	attr.MaxWQTypeRQ = maxWQs
	attr.PacketPacingCaps.SupportedQPTs |= rawPacketBit
	attr.RawPacketCaps = verbs.RawPacketCVLANStripping | verbs.RawPacketScatterFCS | verbs.RawPacketIPCsum |
		verbs.RawPacketDelayDrop
}

// rawQP is the QPDriver of a RAW_PACKET QP.
type rawQP struct {
	verbs.DriverUnsupported
	raw.QP
	ctx *deviceContext
	pd  *pd

	mu sync.Mutex // guards attr
	// +checklocks:mu
	attr verbs.QPAttr // as set by Modify since RESET
}

// createRaw makes a RAW_PACKET QP. The first one of a device opens its packet socket.
func (p *pd) createRaw(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
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
	q.Num, q.PD, q.SigAll, q.Up = num, p.num, init.SigAll, qpEvents{up: up}
	if init.SendCQ != nil {
		q.SendCQ = &cqOf(init.SendCQ).CQ
		q.SQ = transport.NewSendQueue(int(c.MaxSendWR), int(c.MaxSendSGE), max(int(c.MaxInlineData), int(init.MaxTSOHeader)))
		c.MaxSendWR, c.MaxSendSGE = uint32(q.SQ.Cap()), uint32(q.SQ.MaxSGE())
	}
	if init.RWQIndTbl != nil {
		q.RSS = &raw.RSS{Table: driver.Of[*indTable](init.RWQIndTbl).wqs, Fields: raw.HashFields(init.RxHashConf.Fields)}
		copy(q.RSS.Key[:], init.RxHashConf.Key)
	} else {
		q.RQ = &raw.RQ{
			Queue: transport.NewRecvQueue(int(c.MaxRecvWR), int(c.MaxRecvSGE), false, p.num), CQ: &cqOf(init.RecvCQ).CQ,
			PD:    p.num,
			Flags: recvFlags(init.CreateFlags),
		}
		c.MaxRecvWR, c.MaxRecvSGE = uint32(q.RQ.Queue.Cap()), uint32(q.RQ.Queue.MaxSGE())
	}
	p.ctx.frames.AddQP(&q.QP)
	return q, nil
}

// recvFlags converts the flags that apply to receives.
func recvFlags(f verbs.QPCreateFlags) (r raw.RecvFlags) {
	if f&verbs.QPCreateScatterFCS != 0 {
		r |= raw.ScatterFCS
	}
	if f&verbs.QPCreateCVLANStripping != 0 {
		r |= raw.StripCVLAN
	}
	if f&verbs.QPCreatePCIWriteEndPadding != 0 {
		r |= raw.EndPadding
	}
	return r
}

// checkRaw refuses attributes of a RAW_PACKET QP that the device does not support.
func checkRaw(init *verbs.QPInitAttr) error {
	switch {
	case init.SendOpsFlags&^rawSendOps != 0:
		return fail(verbs.EOPNOTSUPP, "SendOpsFlags %v of a RAW_PACKET QP: must be among %v", init.SendOpsFlags&^rawSendOps,
			rawSendOps)
	case init.CreateFlags&^rawCreateFlags != 0:
		return fail(verbs.EOPNOTSUPP, "CreateFlags %v: must be among %v", init.CreateFlags&^rawCreateFlags, rawCreateFlags)
	case init.MaxTSOHeader > maxTSOHeader:
		return fail(verbs.EINVAL, "MaxTSOHeader %d: must be 0 to %d", init.MaxTSOHeader, maxTSOHeader)
	case init.Cap.MaxInlineData > maxInline:
		return fail(verbs.EINVAL, "MaxInlineData %d: must be 0 to %d", init.Cap.MaxInlineData, maxInline)
	}
	return nil
}

// QPN returns the QP's number.
func (q *rawQP) QPN() uint32 { return q.Num }

// Modify changes attributes and state.
func (q *rawQP) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if mask&verbs.QPAttrPort != 0 {
		if err := q.ctx.dev.checkFramePort(attr.PortNum); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	to := transport.State(attr.QPState)
	if to == transport.Init && q.State() == transport.Reset && q.Overrun() {
		return verbsError("", engine.ErrCQOverrun)
	}
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

// ModifyRateLimit sets the rate limit of the QP.
func (q *rawQP) ModifyRateLimit(attr verbs.QPRateLimitAttr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Limit(raw.RateLimit{Kbps: attr.RateLimit, Burst: attr.MaxBurstSz})
	q.attr.RateLimit = attr.RateLimit
	return nil
}

// Query returns attributes and state.
func (q *rawQP) Query() (verbs.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.attr
	a.QPState, a.SQDraining = verbs.QPState(q.State()), q.Draining()
	return a, nil
}

// PostSend copies requests into the send queue and sends them.
func (q *rawQP) PostSend(wrs []verbs.SendWR) (int, error) { return q.post(wrs, false) }

// PostSendAll is PostSend of all requests or none.
func (q *rawQP) PostSendAll(wrs []verbs.SendWR) (int, error) { return q.post(wrs, true) }

func (q *rawQP) post(wrs []verbs.SendWR, all bool) (n int, err error) {
	if q.SQ == nil {
		return 0, fail(verbs.EINVAL, "the QP has no send queue")
	}
	err = q.QP.PostSend(func(sq *transport.SendQueue) (err error) {
		n, err = fillAll(q, sq, wrs, all)
		return err
	})
	return n, verbsError("", err)
}

// fill copies a request into its slot.
//
// +checklocks:sq.mu
func (q *rawQP) fill(sq *transport.SendQueue, w *transport.SendWQE, wr *verbs.SendWR) error {
	w.WRID, w.Op, w.Flags = wr.WRID, transport.Op(wr.Opcode), transport.SendFlags(wr.Flags)
	if wr.Opcode == verbs.WRTSO && wr.Flags&verbs.SendInline == 0 {
		w.Inline = append(w.Inline, wr.TSO.Hdr...)
		sq.More(w).MSS = wr.TSO.MSS
	}
	return q.pd.fillData(sq, w, wr)
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

// Destroy removes the QP.
func (q *rawQP) Destroy() error {
	q.Remove()
	q.ctx.eng.FreeNum(q.Num)
	q.ctx.dev.closeFrames()
	return nil
}
