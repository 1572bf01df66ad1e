package verbs

import "fmt"

// sendOpsOf returns the operations of a QP type.
func sendOpsOf(t QPType) (ops SendOpsFlags) {
	for f := SendOpsFlags(1); f <= sendOpsAll; f <<= 1 {
		if f.opcodes()&^opcodesOf[t] == 0 {
			ops |= f
		}
	}
	return ops
}

// checkEx checks the attributes that struct ibv_qp_init_attr does not have.
func (a *QPInitAttr) checkEx(op string, owner named) error {
	if a.SendOpsFlags == 0 && a.CreateFlags == 0 && a.SourceQPN == 0 && a.MaxTSOHeader == 0 {
		return nil
	}
	ops := sendOpsOf(a.Type)
	const raw, ud = QPCreateScatterFCS | QPCreateCVLANStripping, QPCreateBlockSelfMcastLB | QPCreateSourceQPN
	switch {
	case a.SendOpsFlags&^sendOpsAll != 0:
		return newError(op, owner.obj(), EINVAL, "unknown operations %v; must be of %v", a.SendOpsFlags&^sendOpsAll,
			sendOpsAll)
	case a.CreateFlags&^qpCreateAll != 0:
		return newError(op, owner.obj(), EINVAL, "unknown flags %v; must be of %v", a.CreateFlags&^qpCreateAll, qpCreateAll)
	case a.SendOpsFlags&^ops != 0:
		return newError(op, owner.obj(), EOPNOTSUPP, "%v is not possible on a QP of type %v, which has %v",
			a.SendOpsFlags&^ops, a.Type, ops)
	case a.CreateFlags&raw != 0 && a.Type != QPTypeRawPacket:
		return newError(op, owner.obj(), EINVAL, "%v on QP type %v: must be RAW_PACKET", a.CreateFlags&raw, a.Type)
	case a.CreateFlags&ud != 0 && a.Type != QPTypeUD:
		return newError(op, owner.obj(), EINVAL, "%v on QP type %v: must be UD", a.CreateFlags&ud, a.Type)
	case a.SourceQPN != 0 && a.CreateFlags&QPCreateSourceQPN == 0:
		return newError(op, owner.obj(), EINVAL, "SourceQPN is given, but the flag SOURCE_QPN is missing")
	case a.SourceQPN > 0xffffff:
		return newError(op, owner.obj(), EINVAL, "SourceQPN %#x: must be 0 to 0xffffff", a.SourceQPN)
	case a.MaxTSOHeader != 0 && !WRTSO.in(opcodesOf[a.Type]):
		return newError(op, owner.obj(), EINVAL, "MaxTSOHeader on QP type %v: must be UD or RAW_PACKET", a.Type)
	}
	return nil
}

// Ex returns the QP's QPEx, which posts request by request; it is always the same one (ibv_qp_to_qp_ex). EINVAL if
// the QP was created without QPInitAttr.SendOpsFlags.
func (qp *QP) Ex() (*QPEx, error) {
	if qp.ex == nil {
		return nil, newError("qp_to_qp_ex", qp.obj(), EINVAL, "the QP was made without SendOpsFlags")
	}
	return qp.ex, nil
}

// QPRateLimitAttr limits the send rate of a QP (struct ibv_qp_rate_limit_attr).
type QPRateLimitAttr struct {
	RateLimit    uint32 // kb/s; 0: no limit; else within PacketPacingCaps
	MaxBurstSz   uint32 // bytes sent at once after a pause; 0: the device chooses
	TypicalPktSz uint16 // bytes; a hint
}

// ModifyRateLimit sets the send rate limit of the QP (ibv_modify_qp_rate_limit). A move to RESET removes the limit. A
// failure changes nothing. EINVAL if the QP is not in RTS, SQD or SQE, or for a rate that the device does not have.
// EOPNOTSUPP, in any state, if the device has no rate limits for this type.
func (qp *QP) ModifyRateLimit(attr *QPRateLimitAttr) error {
	const op = "modify_qp_rate_limit"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.lifetime.closed.Load() {
		return errClosed(op, qp.obj())
	}
	if err := qp.ctx.checkRemoved(op, qp); err != nil {
		return err
	}
	caps, err := qp.pacing()
	switch s := qp.State(); {
	case err != nil:
		return badInput(op, qp.obj(), err)
	case attr == nil:
		return newError(op, qp.obj(), EINVAL, "the attributes are nil")
	case s < QPSRTS || s == QPSErr:
		return newError(op, qp.obj(), EINVAL, "not possible in %v; move the QP to RTS first", s)
	}
	if err := caps.check(attr.RateLimit); err != nil {
		return badInput(op, qp.obj(), err)
	}
	return driverError(op, qp.obj(), qp.drv.ModifyRateLimit(*attr))
}

// checkRate checks a rate limit in kb/s.
func (qp *QP) checkRate(kbps uint32) error {
	caps, err := qp.pacing()
	if err != nil {
		return err
	}
	return caps.check(kbps)
}

// pacing returns the device's rate limits for QPs of the type; EOPNOTSUPP if it has none.
func (qp *QP) pacing() (PacketPacingCaps, error) {
	caps := qp.ctx.attr.PacketPacingCaps
	if !IsQPTSupported(caps.SupportedQPTs, qp.init.Type) {
		return caps, &Error{Op: "rate limit", Errno: EOPNOTSUPP,
			Detail: fmt.Sprintf("the device does not limit the rate of %v QPs", qp.init.Type)}
	}
	return caps, nil
}

func (c PacketPacingCaps) check(kbps uint32) error {
	if kbps != 0 && (kbps < c.QPRateLimitMin || kbps > c.QPRateLimitMax) {
		return fmt.Errorf("rate limit %d kb/s: must be 0 or %d to %d", kbps, c.QPRateLimitMin, c.QPRateLimitMax)
	}
	return nil
}

// ECE holds the options of enhanced connection establishment: vendor extensions of a connection between devices of
// one vendor (struct ibv_ece). The programs, or their connection manager, exchange it.
type ECE struct {
	VendorID uint32 // OUI, 24 bits; 0: none
	Options  uint32 // defined by the vendor
}

// QueryECE returns the options that the QP's device supports, or after SetECE those that both sides support
// (ibv_query_ece). The software device supports none: all fields are 0. EOPNOTSUPP if the device lacks ECE.
func (qp *QP) QueryECE() (ECE, error) {
	const op = "query_ece"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.lifetime.closed.Load() {
		return ECE{}, errClosed(op, qp.obj())
	}
	if err := qp.ctx.checkRemoved(op, qp); err != nil {
		return ECE{}, err
	}
	e, err := qp.drv.QueryECE()
	return e, driverError(op, qp.obj(), err)
}

// SetECE sets the options that the peer supports (ibv_set_ece). A failure changes nothing. EINVAL if the QP is not in
// RESET or INIT, or VendorID has more than 24 bits. EOPNOTSUPP for options that the device does not know.
func (qp *QP) SetECE(e ECE) error {
	const op = "set_ece"
	if qp.word.Load()&stateClosed != 0 {
		return errClosed(op, qp.obj())
	}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.ctx.checkRemoved(op, qp); err != nil {
		return err
	}
	switch s := QPState(qp.word.Load() & stateMask); {
	case s != QPSReset && s != QPSInit:
		return newError(op, qp.obj(), EINVAL, "the QP is in %v: must be in RESET or INIT", s)
	case e.VendorID > 0xffffff:
		return newError(op, qp.obj(), EINVAL, "vendor ID %#x: must be 0 to 0xffffff", e.VendorID)
	}
	return driverError(op, qp.obj(), qp.drv.SetECE(e))
}
