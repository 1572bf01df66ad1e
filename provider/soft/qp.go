package soft

import (
	"sync"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// qp is a QPDriver.
type qp struct {
	*engine.QP
	ctx *context
	pd  *pd  // nil for XRC_RECV
	xrc bool // XRC_SEND

	mu   sync.Mutex
	attr verbs.QPAttr // as Modify set them since RESET
}

// CreateQP makes a QP. The first one of a device takes its UDP port.
func (p *pd) CreateQP(init *verbs.QPDriverInit, up verbs.QPUpcalls) (verbs.QPDriver, error) {
	return p.createQP(0, init, up)
}

// CreateGSI makes QP 1.
func (p *pd) CreateGSI(init *verbs.QPDriverInit, up verbs.QPUpcalls) (verbs.QPDriver, error) {
	return p.createQP(wire.GSIQPN, init, up)
}

// createQP makes a QP with that number, or one that the engine chooses if it is 0.
func (p *pd) createQP(num uint32, init *verbs.QPDriverInit, up verbs.QPUpcalls) (verbs.QPDriver, error) {
	if err := working(init.SendCQ, init.RecvCQ); err != nil {
		return nil, err
	}
	switch init.Type {
	case verbs.QPTypeRawPacket:
		if p.ctx.dev.hasFrames() {
			return p.createRaw(init, up)
		}
		fallthrough
	default:
		return nil, fail(verbs.ENOSYS, "the device has no %v QPs; it has RC, UC, UD and XRC", init.Type)
	case verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeXRCSend:
	}
	if err := checkQPEx(init); err != nil {
		return nil, err
	}
	if init.Cap.MaxInlineData > maxInline {
		return nil, fail(verbs.EINVAL, "MaxInlineData %d is not possible; 0 to %d are", init.Cap.MaxInlineData, maxInline)
	}
	q := &qp{ctx: p.ctx, pd: p, xrc: init.Type == verbs.QPTypeXRCSend}
	c := &init.Cap
	if init.SendOps&verbs.QPExWithAtomicWrite != 0 {
		c.MaxInlineData = max(c.MaxInlineData, wire.AtomicWriteLen)
	}
	in := engine.QPInit{
		Type: transport.Type(init.Type), Num: num, PD: p.num, SigAll: init.SigAll, PortMTU: p.ctx.dev.port.Load().activeMTU().Bytes(),
		SQ:      transport.NewSendQueue(int(c.MaxSendWR), int(c.MaxSendSGE), int(c.MaxInlineData)),
		SendCQ:  init.SendCQ.(*cq).CQ,
		Regions: p.ctx.regions,
	}
	if !q.xrc {
		q.takeReceives(&in, init)
	}
	c.MaxSendWR, c.MaxSendSGE, c.MaxInlineData = uint32(in.SQ.Free()), uint32(in.SQ.MaxSGE()), uint32(in.SQ.MaxInline())
	in.Up = qpUpcalls{up}
	var err error
	if q.QP, err = p.ctx.eng.CreateQP(in); err != nil {
		return nil, verbsError("", err)
	}
	return q, nil
}

// takeReceives gives a QP what its receives need.
func (q *qp) takeReceives(in *engine.QPInit, init *verbs.QPDriverInit) {
	in.RecvCQ = init.RecvCQ.(*cq).CQ
	switch s := init.SRQ.(type) {
	case *srq:
		in.RQ = s.q
		return
	case *tmSRQ:
		in.RQ, in.RecvCQ = s.q, s.cq.CQ
		in.SQ = transport.NewSendQueue(int(init.Cap.MaxSendWR)+transport.OwnRequests, int(init.Cap.MaxSendSGE), int(init.Cap.MaxInlineData))
		in.SQ.OwnSlots()
		return
	}
	c := &init.Cap
	in.RQ = transport.NewRecvQueue(int(c.MaxRecvWR), int(c.MaxRecvSGE), false, q.pd.num)
	c.MaxRecvWR, c.MaxRecvSGE = uint32(in.RQ.Cap()), uint32(in.RQ.MaxSGE())
}

// checkQPEx refuses what the device lacks of an extended QP.
func checkQPEx(init *verbs.QPDriverInit) error {
	switch {
	case init.SendOps&^sendOps != 0:
		return fail(verbs.EOPNOTSUPP, "the device does not have %v; it has %v", init.SendOps&^sendOps, sendOps)
	case init.CreateFlags != 0:
		return fail(verbs.EOPNOTSUPP, "the device does not have the flags %v", init.CreateFlags)
	case init.MaxTSOHeader != 0:
		return fail(verbs.EOPNOTSUPP, "the device does not have TSO for %v QPs, only for RAW_PACKET", init.Type)
	case init.RWQIndTbl != nil:
		return fail(verbs.EOPNOTSUPP, "the device does not spread what %v QPs receive, only RAW_PACKET", init.Type)
	}
	return nil
}

// qpUpcalls passes what a QP reports up.
type qpUpcalls struct{ up verbs.QPUpcalls }

// Event reports an event.
func (u qpUpcalls) Event(ev transport.Event) { u.up.Event(verbs.EventType(ev)) }

// StateChanged reports a move of the QP by itself.
func (u qpUpcalls) StateChanged(s transport.State) { u.up.StateChanged(verbs.QPState(s)) }

// QPN is the QP's number.
func (q *qp) QPN() uint32 { return q.Num() }

// Modify changes attributes and state.
func (q *qp) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	t, m, err := q.toAttr(attr, mask)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.QP.Modify(&t, m); err != nil {
		return verbsError("", err)
	}
	if attr.QPState == verbs.QPSReset {
		q.attr = verbs.QPAttr{}
	} else {
		merge(&q.attr, attr, mask)
	}
	return nil
}

// Query reads attributes and state.
func (q *qp) Query() (verbs.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, draining := q.QP.Query()
	a := q.attr
	a.QPState, a.SQDraining = verbs.QPState(t.State), draining
	migrating(&a, &t)
	return a, nil
}

// AttachMcast attaches the QP to a group.
func (q *qp) AttachMcast(gid verbs.GID) error {
	if err := q.Attach(addrOf(gid)); err != nil {
		return verbsError("", err)
	}
	return nil
}

// DetachMcast detaches the QP from a group.
func (q *qp) DetachMcast(gid verbs.GID) error {
	if err := q.Detach(addrOf(gid)); err != nil {
		return verbsError("", err)
	}
	return nil
}

// Destroy removes the QP.
func (q *qp) Destroy() error {
	q.QP.Destroy()
	return nil
}
