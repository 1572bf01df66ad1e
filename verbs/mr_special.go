package verbs

import "math"

// AllocNullMR makes a null region (ibv_alloc_null_mr): one without memory, for SGEs of local requests. Its LKey goes with any
// address and length; what is read are zeroes, what is written is lost. It has no RKey, and cannot be changed or have
// windows. EOPNOTSUPP if the device lacks it.
func (pd *PD) AllocNullMR() (*MR, error) {
	const op = "alloc_null_mr"
	drv, ok := pd.drv.(NullMRAllocator)
	if !ok {
		return nil, newError(op, pd.obj(), EOPNOTSUPP, "the device has no null regions")
	}
	return pd.newSpecialMR(op, &MR{null: true, length: math.MaxUint64, access: AccessLocalWrite}, drv.AllocNullMR)
}

// newSpecialMR makes a region that is not over memory of the process.
func (pd *PD) newSpecialMR(op string, mr *MR, register func() (MRDriver, error)) (*MR, error) {
	if !pd.life.use(kindMR) {
		return nil, errClosed(op, pd.obj())
	}
	var err error
	if mr.drv, err = register(); err != nil {
		pd.life.drop(kindMR)
		return nil, driverError(op, pd.obj(), err)
	}
	mr.pd = pd
	mr.publish(0)
	return mr, nil
}

// special tells whether the region is not over memory of the process.
func (mr *MR) special() bool { return mr.null || mr.dm != nil }

// AdviseMR gives a hint about the use of regions with AccessOnDemand (ibv_advise_mr): bring the pages of the SGEs into
// memory. It changes nothing that a program can see but the time that later requests take. Without AdviseMRFlush it
// may go on after the call.
//
// EINVAL: no SGEs, unknown flags or keys. EPERM: a region of another PD, or AdvicePrefetchWrite without
// AccessLocalWrite. EFAULT: not within the region, or not there to be read or written. EOPNOTSUPP: unknown advice, or the
// device takes none.
func (pd *PD) AdviseMR(advice AdviseMRAdvice, flags AdviseMRFlags, list ...SGE) error {
	const op = "advise_mr"
	drv, ok := pd.drv.(MRAdviser)
	switch {
	case !ok:
		return newError(op, pd.obj(), EOPNOTSUPP, "the device takes no advice")
	case advice > AdvicePrefetchNoFault:
		return newError(op, pd.obj(), EOPNOTSUPP, "the advice %v is unknown", advice)
	case flags&^AdviseMRFlush != 0:
		return newError(op, pd.obj(), EINVAL, "unknown flags %v; there is FLUSH", flags&^AdviseMRFlush)
	case len(list) == 0:
		return newError(op, pd.obj(), EINVAL, "there are no SGEs")
	case !pd.life.use(kindMR): // the PD stays while the driver is at it
		return errClosed(op, pd.obj())
	}
	defer pd.life.drop(kindMR)
	return driverError(op, pd.obj(), drv.AdviseMR(advice, flags, list))
}
