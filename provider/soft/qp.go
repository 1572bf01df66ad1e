package soft

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/prefetch"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// qp is a DriverQP.
type qp struct {
	verbs.DriverUnsupported
	pd  *pd  // nil for XRC_RECV
	xrc bool // XRC_SEND
	engine.QP

	ctx *deviceContext
	mu  sync.Mutex // guards attr
	// +checklocks:mu
	attr verbs.QPAttr // as set by Modify since RESET

	// groups counts the GIDs by which the QP is attached to a group: an IPv4 group has several. Package verbs serialises
	// the calls.
	groups map[netip.Addr]int
}

// CreateQP makes a QP. The first one of a device binds its UDP port.
func (p *pd) CreateQP(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	return p.createQP(0, init, up)
}

// CreateGSI makes QP 1.
func (p *pd) CreateGSI(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	return p.createQP(wire.GSIQPN, init, up)
}

// createQP makes a QP with the number num, or with one that the engine chooses if num is 0.
func (p *pd) createQP(num uint32, init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	if err := checkCQs(init.SendCQ, init.RecvCQ); err != nil {
		return nil, err
	}
	if p.ctx.dev.spec.streams {
		return p.createStream(num, init, up)
	}
	switch init.Type {
	case verbs.QPTypeRawPacket:
		if p.ctx.dev.hasFrames() {
			return p.createRaw(init, up)
		}
		fallthrough
	default:
		return nil, fail(verbs.ENOSYS, "QP type %v: must be RC, UC, UD or XRC", init.Type)
	case verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeXRCSend:
	}
	if err := checkQPEx(init); err != nil {
		return nil, err
	}
	if init.Cap.MaxInlineData > maxInline {
		return nil, fail(verbs.EINVAL, "MaxInlineData %d: must be 0 to %d", init.Cap.MaxInlineData, maxInline)
	}
	q := &qp{ctx: p.ctx, pd: p, xrc: init.Type == verbs.QPTypeXRCSend}
	c := &init.Cap
	if init.SendOpsFlags&verbs.QPExWithAtomicWrite != 0 {
		c.MaxInlineData = max(c.MaxInlineData, wire.AtomicWriteLen)
	}
	slots := int(c.MaxSendWR)
	if _, tm := driver.Of[any](init.SRQ).(*tmSRQ); tm {
		slots += transport.OwnRequests
	}
	sq := &q.OwnSQ
	sq.Init(slots, int(c.MaxSendSGE), max(int(c.MaxInlineData), int(init.MaxTSOHeader)))
	in := engine.QPInit{
		Type: transport.Type(init.Type), Num: num, PD: p.num, SigAll: init.SigAll,
		SendCQ: &cqOf(init.SendCQ).CQ, Regions: p.ctx.regions, Up: qpEvents{up, q},
	}
	if init.Type == verbs.QPTypeUD {
		in.IPOffload = &ipoib
		in.PortMTU = func() int { return p.ctx.dev.activeMTU().Bytes() }
	}
	if init.CreateFlags&verbs.QPCreateSourceQPN != 0 {
		in.SrcNum = init.SourceQPN
	}
	if init.CreateFlags&verbs.QPCreateBlockSelfMcastLB != 0 {
		in.Own = func(a netip.Addr) bool { return p.ctx.dev.has(a) }
	}
	if !q.xrc {
		q.setReceives(&in, init)
	}
	c.MaxSendWR, c.MaxSendSGE, c.MaxInlineData = uint32(sq.Free()), uint32(sq.MaxSGE()), uint32(sq.MaxInline())
	if user, ok := up.(interface{ Memory() prefetch.Target }); ok {
		in.User = user.Memory()
	}
	if err := p.ctx.eng.CreateQP(&q.QP, in); err != nil {
		return nil, verbsError("", err)
	}
	return q, nil
}

// ipoib is what UD QPs do for IP over InfiniBand.
var ipoib = transport.IPOffload{
	Fill: raw.FillIPoIB, Verify: raw.VerifyIPoIB, Start: raw.StartIPoIB, Segment: raw.SegmentIPoIB,
}

// setReceives sets the receive queue and the receive CQ of a QP.
func (q *qp) setReceives(in *engine.QPInit, init *verbs.QPInitAttr) {
	in.RecvCQ = &cqOf(init.RecvCQ).CQ
	switch s := driver.Of[any](init.SRQ).(type) {
	case *srq:
		in.SRQ = s.q
		return
	case *tmSRQ:
		in.SRQ, in.RecvCQ = s.q, &s.cq.CQ
		q.OwnSQ.OwnSlots()
		return
	}
	c := &init.Cap
	q.OwnRQ.Init(int(c.MaxRecvWR), int(c.MaxRecvSGE), false, q.pd.num)
	c.MaxRecvWR, c.MaxRecvSGE = uint32(q.OwnRQ.Cap()), uint32(q.OwnRQ.MaxSGE())
}

// createFlags are the flags of QPs; package verbs accepts the first two for UD only. PCI_WRITE_END_PADDING has no
// effect but that queries report it: there is no bus, and the device writes exactly the bytes of the message.
const createFlags = verbs.QPCreateBlockSelfMcastLB | verbs.QPCreateSourceQPN | verbs.QPCreatePCIWriteEndPadding

// checkQPEx refuses attributes of an extended QP that the device does not support.
func checkQPEx(init *verbs.QPInitAttr) error {
	ops := sendOps
	if init.Type == verbs.QPTypeUD {
		ops |= verbs.QPExWithTSO
	}
	switch {
	case init.SendOpsFlags&^ops != 0:
		return fail(verbs.EOPNOTSUPP, "SendOpsFlags %v: must be among %v", init.SendOpsFlags&^ops, ops)
	case init.CreateFlags&^createFlags != 0:
		return fail(verbs.EOPNOTSUPP, "CreateFlags %v: must be among %v", init.CreateFlags&^createFlags, createFlags)
	case init.MaxTSOHeader > maxTSOHeader:
		return fail(verbs.EINVAL, "MaxTSOHeader %d: must be 0 to %d", init.MaxTSOHeader, maxTSOHeader)
	case init.RWQIndTbl != nil:
		return fail(verbs.EOPNOTSUPP, "RWQIndTbl of a QP of type %v: must be nil; only RAW_PACKET has RSS", init.Type)
	}
	return nil
}

// qpEvents passes a QP's events to the verbs layer.
type qpEvents struct {
	up verbs.DriverQPEvents
	qp *qp // nil of a RAW_PACKET QP
}

// Event reports an event.
func (u qpEvents) Event(ev transport.Event) { u.up.Event(verbs.EventType(ev)) }

// StateChanged reports a transition that the QP made by itself.
func (u qpEvents) StateChanged(s transport.State) {
	if u.qp != nil {
		observeState(&u.qp.QP, s)
	}
	u.up.StateChanged(verbs.QPState(s))
}

// QPN returns the QP's number.
func (q *qp) QPN() uint32 { return q.Num() }

// Modify changes attributes and state.
func (q *qp) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	t := attrs.Get().(*transport.Attr)
	defer attrs.Put(t)
	m, err := q.toAttr(t, attr, mask)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var was verbs.QPCap
	if mask&verbs.QPAttrCap != 0 {
		was = q.sizes()
		if err := q.resize(&attr.Cap); err != nil {
			return err
		}
	}
	if err := q.QP.Modify(t, m&^transport.Mask(verbs.QPAttrCap)); err != nil {
		if mask&verbs.QPAttrCap != 0 {
			return errors.Join(verbsError("", err), q.resize(&was))
		}
		return verbsError("", err)
	}
	if attr.QPState == verbs.QPSReset {
		q.attr = verbs.QPAttr{}
	} else {
		merge(&q.attr, attr, mask)
	}
	return nil
}

// attrs are attributes that no Modify uses now. The engine keeps no pointer to those it gets.
var attrs = sync.Pool{New: func() any { return new(transport.Attr) }}

// resize changes the room of the queues, and sets the actual sizes in c.
func (q *qp) resize(c *verbs.QPCap) error {
	switch err := q.QP.Resize(int(c.MaxSendWR), int(c.MaxRecvWR)); {
	case errors.Is(err, transport.ErrFixedSize):
		return fail(verbs.EOPNOTSUPP, "QP_CAP: the queues of a QP with an SRQ of type TM have a fixed size")
	case err != nil:
		return fail(verbs.EINVAL, "QP_CAP: must not be less than the number of outstanding requests: %v", err)
	}
	*c = q.sizes()
	return nil
}

// sizes returns the room of the queues. An SRQ does not count.
func (q *qp) sizes() (c verbs.QPCap) {
	c.MaxSendWR, c.MaxSendSGE, c.MaxInlineData = uint32(q.SQ.Free()), uint32(q.SQ.MaxSGE()), uint32(q.SQ.MaxInline())
	if q.RQ != nil && !q.RQ.Shared() {
		c.MaxRecvWR, c.MaxRecvSGE = uint32(q.RQ.Cap()), uint32(q.RQ.MaxSGE())
	}
	return c
}

// Query returns attributes and state.
func (q *qp) Query() (verbs.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, draining := q.QP.Query()
	a := q.attr
	a.QPState, a.SQDraining = verbs.QPState(t.State), draining
	setPath(&a, &t)
	return a, nil
}

// ModifyRateLimit sets the rate limit of the QP. The typical packet size is of no use.
func (q *qp) ModifyRateLimit(attr verbs.QPRateLimitAttr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.SetRate(uint64(attr.RateLimit)*1000, int64(attr.MaxBurstSz))
	q.attr.RateLimit = attr.RateLimit
	return nil
}

// SetKeepAlive sets the idle time after which the QP checks its peer.
func (q *qp) SetKeepAlive(idle time.Duration) error {
	q.QP.SetKeepAlive(idle)
	return nil
}

// AttachMcast attaches the QP to a multicast group, which has no MLID on RoCE.
func (q *qp) AttachMcast(gid verbs.GID, _ uint16) error {
	if t, _ := q.QP.Query(); !q.ctx.dev.onFirst(t.Port) {
		return fail(verbs.EOPNOTSUPP, "a QP of port %d: groups are joined on the interface of port 1 only", t.Port)
	}
	group := addrOf(gid)
	if q.groups[group] == 0 {
		if err := q.Attach(group); err != nil {
			return verbsError("", err)
		}
	}
	if q.groups == nil {
		q.groups = make(map[netip.Addr]int)
	}
	q.groups[group]++
	return nil
}

// DetachMcast detaches the QP from a multicast group, unless it is attached by another GID too.
func (q *qp) DetachMcast(gid verbs.GID, _ uint16) error {
	group := addrOf(gid)
	if q.groups[group] > 1 {
		q.groups[group]--
		return nil
	}
	if err := q.Detach(group); err != nil {
		return verbsError("", err)
	}
	delete(q.groups, group)
	return nil
}

// Destroy removes the QP.
func (q *qp) Destroy() error {
	q.QP.Destroy()
	return nil
}

// QueryECE returns no options: the device has no enhancements.
func (*qp) QueryECE() (verbs.ECE, error) { return verbs.ECE{}, nil }

// SetECE accepts only zero options.
func (*qp) SetECE(e verbs.ECE) error {
	if e.Options != 0 {
		return fail(verbs.EOPNOTSUPP, "options %#x of vendor %#x: must be 0", e.Options, e.VendorID)
	}
	return nil
}
