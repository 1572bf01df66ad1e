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
// device does not have, EOPNOTSUPP, in whatever state, if it has none for this type. A failure changes nothing. RESET ends the limit.
func (qp *QP) ModifyRateLimit(attr *QPRateLimitAttr) error {
	const op = "modify_qp_rate_limit"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.life.closed.Load() {
		return errClosed(op, qp.obj())
	}
	caps, err := qp.pacing()
	switch s := qp.State(); {
	case err != nil:
		return badInput(op, qp.obj(), err)
	case attr == nil:
		return newError(op, qp.obj(), EINVAL, "there are no attributes")
	case attr.CompMask != 0:
		return newError(op, qp.obj(), EINVAL, "unknown attributes %#x; there are none", attr.CompMask)
	case s < QPSRTS || s == QPSErr:
		return newError(op, qp.obj(), EINVAL, "not possible in %v; move the QP to RTS first", s)
	}
	if err := caps.check(attr.RateLimit); err != nil {
		return badInput(op, qp.obj(), err)
	}
	return driverError(op, qp.obj(), qp.drv.(RateLimiter).ModifyRateLimit(*attr))
}

// checkRate says why a rate is not possible.
func (qp *QP) checkRate(kbps uint32) error {
	caps, err := qp.pacing()
	if err != nil {
		return err
	}
	return caps.check(kbps)
}

// pacing is what the device can do for QPs of the type; EOPNOTSUPP if nothing.
func (qp *QP) pacing() (PacketPacingCaps, error) {
	dev, err := qp.ctx.QueryDeviceEx()
	if err != nil {
		return PacketPacingCaps{}, err
	}
	caps := dev.PacketPacingCaps
	if _, ok := qp.drv.(RateLimiter); !ok || !IsQPTSupported(caps.SupportedQPTs, qp.init.Type) {
		return caps, &Error{Op: "rate limit", Errno: EOPNOTSUPP, Detail: fmt.Sprintf("the device does not limit the rate of %v QPs", qp.init.Type)}
	}
	return caps, nil
}

func (c PacketPacingCaps) check(kbps uint32) error {
	if kbps != 0 && (kbps < c.QPRateLimitMin || kbps > c.QPRateLimitMax) {
		return fmt.Errorf("%d kb/s are not possible; 0 and %d to %d are", kbps, c.QPRateLimitMin, c.QPRateLimitMax)
	}
	return nil
}
