package verbs

import (
	"errors"
	"fmt"
)

// CreateQP makes an XRC_RECV QP in the domain (ibv_create_qp_ex with an XRCD). It has neither queues nor CQs nor a PD: what
// it receives goes to the SRQ of the domain that the sender names. Only init.Type, which must be QPTypeXRCRecv, and
// init.Context count. Others of the domain may open it too; see Context.OpenQP.
func (d *XRCD) CreateQP(init *QPInitAttr) (*QP, error) {
	const op = "create_qp_ex"
	if init == nil {
		return nil, newError(op, d.obj(), EINVAL, "there are no attributes")
	}
	if init.Type != QPTypeXRCRecv {
		return nil, newError(op, d.obj(), EINVAL, "%v QPs belong to a PD; XRC_RECV QPs belong to an XRC domain", init.Type)
	}
	qp := &QP{ctx: d.ctx, xrcd: d}
	return qp.create(op, d.obj(), init, d.drv.CreateQP)
}

// QPOpenAttr says which QP to open (struct ibv_qp_open_attr). Fields count if CompMask names them; a CompMask of 0 stands for
// those that are not zero. All but Context are needed.
type QPOpenAttr struct {
	CompMask QPOpenAttrMask
	QPNum    uint32
	XRCD     *XRCD
	Context  any // anything; QP.QPContext returns it
	Type     QPType
}

// OpenQP gives another handle of an XRC_RECV QP of an XRC domain (ibv_open_qp): events of the QP come to each handle, any of
// them can modify the QP, and it lives until the last one is closed.
//
// EINVAL: fields are missing, a type other than QPTypeXRCRecv, or the domain has no such QP.
func (ctx *Context) OpenQP(attr *QPOpenAttr) (*QP, error) {
	const op = "open_qp"
	if attr == nil {
		return nil, newError(op, ctx.obj(), EINVAL, "there are no attributes")
	}
	if err := attr.check(ctx); err != nil {
		return nil, badInput(op, ctx.obj(), err)
	}
	qp := &QP{ctx: ctx, xrcd: attr.XRCD}
	init := QPInitAttr{Type: attr.Type}
	if m := attr.CompMask; m == 0 || m&QPOpenContext != 0 {
		init.Context = attr.Context
	}
	qp, err := qp.create(op, attr.XRCD.obj(), &init, func(_ *QPDriverInit, up QPUpcalls) (QPDriver, error) {
		return attr.XRCD.drv.OpenQP(attr.QPNum, up)
	})
	if err != nil {
		return nil, err
	}
	now, err := qp.drv.Query()
	if err != nil {
		_ = qp.Close()
		return nil, driverError(op, qp.obj(), err)
	}
	qp.settle(uint64(QPSReset), now.QPState)
	return qp, nil
}

func (a *QPOpenAttr) check(ctx *Context) error {
	const needed = QPOpenNum | QPOpenXRCD | QPOpenType
	m := a.CompMask
	if m == 0 {
		m = needed
	}
	switch missing, unknown := needed&^m, m&^qpOpenAll; {
	case unknown != 0:
		return fmt.Errorf("unknown fields %v", unknown)
	case missing != 0:
		return fmt.Errorf("missing %v", missing)
	case a.XRCD == nil:
		return errors.New("there is no XRC domain")
	case a.XRCD.ctx != ctx:
		return errors.New("the XRC domain was opened in another context")
	case a.Type != QPTypeXRCRecv:
		return fmt.Errorf("%v QPs cannot be shared; XRC_RECV QPs can", a.Type)
	case a.QPNum > 0xffffff:
		return fmt.Errorf("QP number %#x is too large; it has 24 bits", a.QPNum)
	}
	return nil
}

// XRCD is the XRC domain of an XRC_RECV QP; nil for others.
func (qp *QP) XRCD() *XRCD { return qp.xrcd }

// hasRQ tells whether the QP has a receive queue of its own.
func (i *QPInitAttr) hasRQ() bool {
	return i.SRQ == nil && i.Type != QPTypeXRCSend && i.Type != QPTypeXRCRecv
}

// dropUnused forgets what an XRC QP does not have.
func (i *QPInitAttr) dropUnused() {
	switch i.Type {
	case QPTypeXRCRecv:
		i.SendCQ, i.Cap = nil, QPCap{}
		fallthrough
	case QPTypeXRCSend:
		i.RecvCQ, i.SRQ = nil, nil
		i.Cap.MaxRecvWR, i.Cap.MaxRecvSGE = 0, 0
	}
}

// currentPort is the port that the QP uses, 0 before INIT. Only the driver knows what others have done to a shared QP.
func (qp *QP) currentPort() (uint8, error) {
	if qp.xrcd == nil {
		return qp.port, nil
	}
	now, err := qp.drv.Query()
	return now.PortNum, err
}

// peerType is the type of the QPs that one of type t is connected to.
func (t QPType) peerType() QPType {
	switch t {
	case QPTypeXRCSend:
		return QPTypeXRCRecv
	case QPTypeXRCRecv:
		return QPTypeXRCSend
	}
	return t
}
