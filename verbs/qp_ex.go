package verbs

import "fmt"

// QPInitAttrEx says what extended QP to make (struct ibv_qp_init_attr_ex). What comes after CompMask counts if CompMask
// names it; a CompMask of 0 stands for what is not zero. The PD is that of PD.CreateQPEx.
type QPInitAttrEx struct {
	QPInitAttr
	CompMask     QPInitAttrMask
	CreateFlags  QPCreateFlags
	MaxTSOHeader uint16       // bytes; for WRTSO
	SendOpsFlags SendOpsFlags // what QPEx may post; 0: the QP has no QPEx
	SourceQPN    uint32       // 24 bits; UD, counts with QPCreateSourceQPN
	RWQIndTbl    *RWQIndTable // receives go to its WQs, and the QP has none of its own
	RxHashConf   *RxHashConf  // to which of them; goes with RWQIndTbl
}

// CreateQPEx makes a queue pair, as CreateQP does, with further attributes (ibv_create_qp_ex). With SendOpsFlags it has
// a QPEx, which QP.Ex returns. With RWQIndTbl and RxHashConf it spreads what it receives over work queues; it then needs no RecvCQ, and no SendCQ
// if MaxSendWR is 0. EINVAL for unknown flags or an attribute that the type does not have, EOPNOTSUPP for an
// operation or flag that the type or the device lacks.
func (pd *PD) CreateQPEx(init *QPInitAttrEx) (*QP, error) {
	const op = "create_qp_ex"
	if init == nil {
		return nil, newError(op, pd.obj(), EINVAL, "there are no attributes")
	}
	a := *init
	if err := a.check(op, pd.obj()); err != nil {
		return nil, err
	}
	if err := a.checkRSS(pd.ctx); err != nil {
		return nil, badInput(op, pd.obj(), err)
	}
	create := func(want *QPDriverInit, up QPUpcalls) (QPDriver, error) {
		want.SendOps, want.CreateFlags = a.SendOpsFlags, a.CreateFlags
		want.MaxTSOHeader, want.SourceQPN = a.MaxTSOHeader, a.SourceQPN
		if a.RWQIndTbl != nil {
			want.RWQIndTbl, want.RxHash = a.RWQIndTbl.drv, a.RxHashConf
		}
		drv, err := pd.drv.CreateQP(want, up)
		if _, all := drv.(QPExDriver); err == nil && a.SendOpsFlags != 0 && !all {
			_ = drv.Destroy()
			err = fmt.Errorf("SendOpsFlags: %w", ErrNotSupported)
		}
		return drv, err
	}
	made := &QP{pd: pd, ctx: pd.ctx, table: a.RWQIndTbl, maxTSOHeader: a.MaxTSOHeader}
	if a.MaxTSOHeader != 0 {
		dev, err := pd.ctx.QueryDeviceEx()
		if err != nil {
			return nil, err
		}
		made.maxTSO = dev.TSOCaps.MaxTSO
	}
	qp, err := made.create(op, pd.obj(), &init.QPInitAttr, create)
	if err == nil && a.SendOpsFlags != 0 {
		qp.ex = newQPEx(qp, a.SendOpsFlags)
	}
	return qp, err
}

// clear clears what does not count.
func (a *QPInitAttrEx) clear() {
	if a.CompMask == 0 {
		return
	}
	if a.CompMask&QPInitCreateFlags == 0 {
		a.CreateFlags, a.SourceQPN = 0, 0
	}
	if a.CompMask&QPInitMaxTSOHeader == 0 {
		a.MaxTSOHeader = 0
	}
	if a.CompMask&QPInitIndTable == 0 {
		a.RWQIndTbl = nil
	}
	if a.CompMask&QPInitRxHash == 0 {
		a.RxHashConf = nil
	}
	if a.CompMask&QPInitSendOpsFlags == 0 {
		a.SendOpsFlags = 0
	}
}

// sendOpsOf are the operations of a type of QP.
func sendOpsOf(t QPType) (ops SendOpsFlags) {
	for f := SendOpsFlags(1); f <= sendOpsAll; f <<= 1 {
		if f.opcodes()&^opcodesOf[t] == 0 {
			ops |= f
		}
	}
	return ops
}

// check looks at what QPInitAttr does not have, and clears what does not count.
func (a *QPInitAttrEx) check(op, obj string) error {
	a.clear()
	ops := sendOpsOf(a.Type)
	const raw, ud = QPCreateScatterFCS | QPCreateCVLANStripping, QPCreateBlockSelfMcastLB | QPCreateSourceQPN
	switch {
	case a.CompMask&^qpInitAll != 0:
		return newError(op, obj, EINVAL, "unknown fields %v; there are %v", a.CompMask&^qpInitAll, qpInitAll)
	case a.CompMask&QPInitXRCD != 0:
		return newError(op, obj, EINVAL, "a QP of an XRC domain has no PD; use XRCD.CreateQP")
	case a.SendOpsFlags&^sendOpsAll != 0:
		return newError(op, obj, EINVAL, "unknown operations %v; there are %v", a.SendOpsFlags&^sendOpsAll, sendOpsAll)
	case a.CreateFlags&^qpCreateAll != 0:
		return newError(op, obj, EINVAL, "unknown flags %v; there are %v", a.CreateFlags&^qpCreateAll, qpCreateAll)
	case a.SendOpsFlags&^ops != 0:
		return newError(op, obj, EOPNOTSUPP, "%v is not possible on a QP of type %v, which has %v", a.SendOpsFlags&^ops, a.Type, ops)
	case a.CreateFlags&raw != 0 && a.Type != QPTypeRawPacket:
		return newError(op, obj, EINVAL, "%v is not possible on a QP of type %v, only on RAW_PACKET", a.CreateFlags&raw, a.Type)
	case a.CreateFlags&ud != 0 && a.Type != QPTypeUD:
		return newError(op, obj, EINVAL, "%v is not possible on a QP of type %v, only on UD", a.CreateFlags&ud, a.Type)
	case a.SourceQPN != 0 && a.CreateFlags&QPCreateSourceQPN == 0:
		return newError(op, obj, EINVAL, "SourceQPN is given, but the flag SOURCE_QPN is missing")
	case a.SourceQPN > 0xffffff:
		return newError(op, obj, EINVAL, "SourceQPN %#x is too large; it has 24 bits", a.SourceQPN)
	case a.MaxTSOHeader != 0 && !WRTSO.in(opcodesOf[a.Type]):
		return newError(op, obj, EINVAL, "MaxTSOHeader is not possible on a QP of type %v, only on UD and RAW_PACKET", a.Type)
	}
	return nil
}

// Ex is the way to post to a QP request by request (ibv_qp_to_qp_ex), always the same one. EINVAL if the QP was not made
// by CreateQPEx with SendOpsFlags.
func (qp *QP) Ex() (*QPEx, error) {
	if qp.ex == nil {
		return nil, newError("qp_to_qp_ex", qp.obj(), EINVAL, "the QP was not made by CreateQPEx with SendOpsFlags")
	}
	return qp.ex, nil
}
