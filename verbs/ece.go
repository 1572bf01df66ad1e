package verbs

// ECE is what a connection of two devices of one vendor may use beyond the standard: enhanced connection establishment (struct
// ibv_ece). The programs, or their connection manager, carry it from one to the other.
type ECE struct {
	VendorID uint32 // 24 bits: OUI; 0: nobody's
	Options  uint32 // of the vendor
	CompMask uint32 // 0
}

// QueryECE tells what the QP's device can do beyond the standard (ibv_query_ece), or after SetECE what of it both
// sides can. The software device can do nothing of that kind: all is zero. EOPNOTSUPP on a device that has no such thing.
func (qp *QP) QueryECE() (ECE, error) {
	const op = "query_ece"
	drv, err := qp.ece(op)
	if err != nil {
		return ECE{}, err
	}
	e, err := drv.QueryECE()
	return e, driverError(op, qp.obj(), err)
}

// SetECE tells the QP what its peer can do beyond the standard (ibv_set_ece). It comes before the QP goes to RTR, else EINVAL. EINVAL for
// a CompMask or a VendorID of more than 24 bits, EOPNOTSUPP for options that the device does not know; the QP is then as before.
func (qp *QP) SetECE(e ECE) error {
	const op = "set_ece"
	drv, err := qp.ece(op)
	if err != nil {
		return err
	}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	switch s := QPState(qp.word.Load() & stateMask); {
	case s != QPSReset && s != QPSInit:
		return newError(op, qp.obj(), EINVAL, "the QP is in %v; RESET and INIT are possible", s)
	case e.CompMask != 0:
		return newError(op, qp.obj(), EINVAL, "unknown fields %#x; there are none", e.CompMask)
	case e.VendorID > 0xffffff:
		return newError(op, qp.obj(), EINVAL, "vendor ID %#x is too large; it has 24 bits", e.VendorID)
	}
	return driverError(op, qp.obj(), drv.SetECE(e))
}

func (qp *QP) ece(op string) (ECEDriver, error) {
	if qp.word.Load()&stateClosed != 0 {
		return nil, errClosed(op, qp.obj())
	}
	drv, ok := qp.drv.(ECEDriver)
	if !ok {
		return nil, newError(op, qp.obj(), EOPNOTSUPP, "the device has no ECE")
	}
	return drv, nil
}

// ECEDriver is a QPDriver of a device with ECE.
type ECEDriver interface {
	QueryECE() (ECE, error)
	// SetECE gets what the peer has, with the QP in RESET or INIT.
	SetECE(e ECE) error
}
