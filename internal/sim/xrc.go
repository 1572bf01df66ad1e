package sim

import "github.com/verbena-rdma/verbena/verbs"

// xrcSide is what an end of an XRC pair has besides its XRC_SEND QP. Windows are left out: one of type 2 belongs to the QP
// that bound it, and requests come through another.
type xrcSide struct {
	domain *verbs.XRCD
	qp     *verbs.QP // XRC_RECV
	srq    *verbs.SRQ
	srqn   uint32
}

func (e *rcEnd) addXRC(n *node) (err error) {
	x := &e.xrc
	if x.domain, err = n.ctx.OpenXRCD(nil); err != nil {
		return err
	}
	x.srq, err = n.ctx.CreateSRQEx(&verbs.SRQInitAttrEx{
		Attr: verbs.SRQAttr{MaxWR: recvSlots, MaxSGE: uint32(e.maxSGE)}, Type: verbs.SRQTypeXRC, PD: n.pd, XRCD: x.domain, CQ: e.w.cq(n),
	})
	if err != nil {
		return err
	}
	if x.srqn, err = x.srq.Num(); err != nil {
		return err
	}
	if x.qp, err = x.domain.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}); err != nil {
		return err
	}
	n.owner[x.qp.QPN()] = e
	return nil
}

// target is the QP that the peer's requests go to.
func (e *rcEnd) target() *verbs.QP {
	if e.xrc.qp != nil {
		return e.xrc.qp
	}
	return e.qp
}

// end moves the XRC_RECV QP to ERR: a receive that it holds is flushed, those of the SRQ stay.
func (x *xrcSide) end() error {
	if x.qp == nil {
		return nil
	}
	return x.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)
}

func (x *xrcSide) close() error {
	if x.qp == nil {
		return nil
	}
	for _, closer := range []func() error{x.qp.Close, x.srq.Close, x.domain.Close} {
		if err := closer(); err != nil {
			return err
		}
	}
	return nil
}
