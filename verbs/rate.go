package verbs

import "fmt"

// QPRateLimitAttr bounds how fast a QP sends (struct ibv_qp_rate_limit_attr).
type QPRateLimitAttr struct {
	RateLimit    uint32 // kb/s; 0: no limit; else within PacketPacingCaps
	MaxBurstSz   uint32 // bytes that may go at once after a silence; 0: the device chooses
	TypicalPktSz uint16 // bytes; a hint
	CompMask     uint32 // 0
}

// ModifyRateLimit sets how fast the QP sends (ibv_modify_qp_rate_limit). The QP is in RTS or beyond. EINVAL for another state or a rate that the
// device does not have, EOPNOTSUPP if it has none for this type. A failure changes nothing. RESET ends the limit.
func (qp *QP) ModifyRateLimit(attr *QPRateLimitAttr) error {
	const op = "modify_qp_rate_limit"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	switch s := qp.State(); {
	case qp.life.closed.Load():
		return errClosed(op, qp.obj())
	case attr == nil:
		return newError(op, qp.obj(), EINVAL, "there are no attributes")
	case attr.CompMask != 0:
		return newError(op, qp.obj(), EINVAL, "unknown attributes %#x; there are none", attr.CompMask)
	case s < QPSRTS || s == QPSErr:
		return newError(op, qp.obj(), EINVAL, "not possible in %v; move the QP to RTS first", s)
	}
	drv, ok := qp.drv.(RateLimiter)
	if !ok {
		return newError(op, qp.obj(), EOPNOTSUPP, "the device does not limit the rate of %v QPs", qp.init.Type)
	}
	if err := qp.checkRate(attr.RateLimit); err != nil {
		return badInput(op, qp.obj(), err)
	}
	return driverError(op, qp.obj(), drv.ModifyRateLimit(*attr))
}

// checkRate says why a rate is not possible.
func (qp *QP) checkRate(kbps uint32) error {
	if kbps == 0 {
		return nil
	}
	dev, err := qp.ctx.QueryDeviceEx()
	if err != nil {
		return err
	}
	switch caps := dev.PacketPacingCaps; {
	case !IsQPTSupported(caps.SupportedQPTs, qp.init.Type):
		return &Error{Op: "rate limit", Errno: EOPNOTSUPP, Detail: fmt.Sprintf("the device has none for %v QPs", qp.init.Type)}
	case kbps < caps.QPRateLimitMin || kbps > caps.QPRateLimitMax:
		return fmt.Errorf("%d kb/s are not possible; 0 and %d to %d are", kbps, caps.QPRateLimitMin, caps.QPRateLimitMax)
	}
	return nil
}
