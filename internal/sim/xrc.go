package sim

import "github.com/verbena-rdma/verbena/verbs"

// An xrcSide is the objects of an end of an XRC pair besides its XRC_SEND QP. It has no windows: one of type 2
// belongs to the QP that bound it, and requests arrive at another.
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
	x.srq, err = n.pd.CreateSRQ(&verbs.SRQInitAttr{
		Attr: verbs.SRQAttr{MaxWR: recvSlots, MaxSGE: uint32(e.maxSGE)}, Type: verbs.SRQTypeXRC, XRCD: x.domain, CQ: n.cq(),
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

// target returns the QP that receives the requests of the peer.
func (e *rcEnd) target() *verbs.QP {
	if e.xrc.qp != nil {
		return e.xrc.qp
	}
	return e.qp
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
