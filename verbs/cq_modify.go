package verbs

// ModifyCQAttr says what CQ.Modify changes (struct ibv_modify_cq_attr).
type ModifyCQAttr struct {
	AttrMask CQAttrMask // CQAttrModerate, or nothing
	Moderate ModerateCQ
}

// ModerateCQ holds completion events back (struct ibv_moderate_cq). A CQ with a notification requested raises its
// event when Count of the completions that it was asked for have come, or Period after the first of them. A Count of
// 0 is any number, a Period of 0 any time: with the one the event waits for the time only, with the other for
// completions only, however long. Both 0, or a Count of 1, is no moderation. DeviceAttrEx.CQModCaps tells the maxima.
type ModerateCQ struct {
	Count  uint16
	Period uint16 // microseconds
}

// Modify changes attributes of the CQ (ibv_modify_cq). On success attr holds actual values. An event that was held
// back comes at once. EINVAL for an unknown attribute or values above the device's, ENOSYS if the device cannot. A
// failure changes nothing.
func (cq *CQ) Modify(attr *ModifyCQAttr) error {
	const op = "modify_cq"
	cq.mu.Lock()
	defer cq.mu.Unlock()
	switch {
	case cq.life.closed.Load():
		return errClosed(op, cq.obj())
	case attr == nil:
		return newError(op, cq.obj(), EINVAL, "there are no attributes")
	case attr.AttrMask&^CQAttrModerate != 0:
		return newError(op, cq.obj(), EINVAL, "unknown attributes %v; there is %v", attr.AttrMask&^CQAttrModerate, CQAttrModerate)
	}
	drv, ok := cq.drv.(CQModerator)
	if !ok {
		return newError(op, cq.obj(), ENOSYS, "the device does not moderate completion events")
	}
	if attr.AttrMask == 0 {
		return nil
	}
	dev, err := cq.ctx.QueryDeviceEx()
	if err != nil {
		return err
	}
	if m, caps := attr.Moderate, dev.CQModCaps; m.Count > caps.MaxCQCount || m.Period > caps.MaxCQPeriod {
		return newError(op, cq.obj(), EINVAL, "count %d and period %d us are not possible; 0 to %d and 0 to %d us are",
			m.Count, m.Period, caps.MaxCQCount, caps.MaxCQPeriod)
	}
	return driverError(op, cq.obj(), drv.Moderate(attr.Moderate))
}
