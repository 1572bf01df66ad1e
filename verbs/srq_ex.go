package verbs

import (
	"errors"
	"fmt"
)

// SRQInitAttrEx says what SRQ to make (struct ibv_srq_init_attr_ex). Fields count if CompMask names them; a CompMask of 0
// stands for those that are not zero.
type SRQInitAttrEx struct {
	Context  any     // anything; SRQ.SRQContext returns it
	Attr     SRQAttr // SRQLimit is ignored
	CompMask SRQInitAttrMask
	Type     SRQType // SRQTypeBasic if it does not count
	PD       *PD     // always
	XRCD     *XRCD   // type XRC
	CQ       *CQ     // types XRC and TM: of what is received
	TMCap    TMCap   // type TM
}

// TMCap holds the sizes of an SRQ with tag matching (struct ibv_tm_cap).
type TMCap struct {
	MaxNumTags uint32
	MaxOps     uint32
}

// fields tells which fields count.
func (a *SRQInitAttrEx) fields() SRQInitAttrMask {
	if a.CompMask != 0 {
		return a.CompMask
	}
	var m SRQInitAttrMask
	for _, f := range []struct {
		set bool
		bit SRQInitAttrMask
	}{
		{a.Type != 0, SRQInitType}, {a.PD != nil, SRQInitPD}, {a.XRCD != nil, SRQInitXRCD}, {a.CQ != nil, SRQInitCQ},
		{a.TMCap != TMCap{}, SRQInitTM},
	} {
		if f.set {
			m |= f.bit
		}
	}
	return m
}

// CreateSRQEx makes a shared receive queue of any type (ibv_create_srq_ex). init.Attr gets the actual sizes, which are not
// below those asked for.
//
// An SRQ of type XRC has a CQ of its own, in which everything completes that XRC_RECV QPs of its domain receive for it,
// and a number, which peers put in RemoteSRQN; see SRQ.Num.
//
// An SRQ of type TM matches tags; see SRQ.PostOps. TMCap.MaxNumTags is 1..TMCaps.MaxNumTags, MaxOps 1..TMCaps.MaxOps. All that
// its QPs receive, which are of type RC, completes in its CQ, whatever their RecvCQ.
//
// EINVAL: fields that the type needs are missing, or sizes out of range; see PD.CreateSRQ. EOPNOTSUPP: the device lacks
// the type. ENOMEM without resources.
func (ctx *Context) CreateSRQEx(init *SRQInitAttrEx) (*SRQ, error) {
	const op = "create_srq_ex"
	if init == nil {
		return nil, newError(op, ctx.obj(), EINVAL, "there are no attributes")
	}
	a := *init
	if err := a.check(ctx); err != nil {
		return nil, badInput(op, ctx.obj(), err)
	}
	srq := &SRQ{pd: a.PD, context: a.Context}
	create := func(attr *SRQAttr) (err error) {
		srq.drv, err = srq.pd.drv.CreateSRQ(attr, (*srqUpcalls)(srq))
		return err
	}
	switch a.Type {
	case SRQTypeBasic:
	case SRQTypeXRC:
		srq.xrcd, srq.cq = a.XRCD, a.CQ
		create = func(attr *SRQAttr) error {
			drv, err := srq.xrcd.drv.CreateSRQ(srq.pd.drv, srq.cq.drv, attr, (*srqUpcalls)(srq))
			if err == nil {
				srq.drv, srq.num = drv, drv.SRQN()
			}
			return err
		}
	case SRQTypeTM:
		var err error
		if create, err = srq.createTM(&a); err != nil {
			return nil, err
		}
	}
	if err := srq.create(op, &a.Attr, create); err != nil {
		return nil, err
	}
	init.Attr, init.TMCap = a.Attr, a.TMCap
	return srq, nil
}

// check says what is wrong with the fields, and clears those that do not count.
func (a *SRQInitAttrEx) check(ctx *Context) error {
	m := a.fields()
	if unknown := m &^ srqInitAll; unknown != 0 {
		return fmt.Errorf("unknown fields %v", unknown)
	}
	if m&SRQInitType == 0 {
		a.Type = SRQTypeBasic
	}
	needs, ok := map[SRQType]SRQInitAttrMask{
		SRQTypeBasic: SRQInitPD, SRQTypeXRC: SRQInitPD | SRQInitXRCD | SRQInitCQ, SRQTypeTM: SRQInitPD | SRQInitCQ | SRQInitTM,
	}[a.Type]
	switch {
	case !ok:
		return fmt.Errorf("%v is not an SRQ type; there are BASIC, XRC and TM", a.Type)
	case needs&^m != 0:
		return fmt.Errorf("type %v: missing %v", a.Type, needs&^m)
	case a.PD == nil || needs&SRQInitXRCD != 0 && a.XRCD == nil || needs&SRQInitCQ != 0 && a.CQ == nil:
		return fmt.Errorf("type %v needs %v, one of which is nil", a.Type, needs)
	case a.PD.ctx != ctx || needs&SRQInitXRCD != 0 && a.XRCD.ctx != ctx || needs&SRQInitCQ != 0 && a.CQ.ctx != ctx:
		return errors.New("the PD, the XRC domain or the CQ belongs to another context")
	}
	return nil
}

// Num is the number by which peers name an SRQ of type XRC, 24 bits (ibv_get_srq_num). EINVAL for SRQs of other types, which have none.
func (srq *SRQ) Num() (uint32, error) {
	switch {
	case srq.life.closed.Load():
		return 0, errClosed("get_srq_num", srq.obj())
	case srq.xrcd == nil:
		return 0, newError("get_srq_num", srq.obj(), EINVAL, "only an SRQ of type XRC has a number")
	}
	return srq.num, nil
}

// XRCD is the XRC domain of an SRQ of type XRC; nil for others.
func (srq *SRQ) XRCD() *XRCD { return srq.xrcd }

// CQ is the completion queue of an SRQ of type XRC or TM; nil for others.
func (srq *SRQ) CQ() *CQ { return srq.cq }
