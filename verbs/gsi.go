package verbs

// GSIDriver is a PDDriver whose device lets programs have QP 1, the queue pair of management datagrams.
type GSIDriver interface {
	// CreateGSI makes QP 1, a UD QP in everything but its number. EBUSY if it exists already.
	CreateGSI(init *QPDriverInit, up QPUpcalls) (QPDriver, error)
}

// CreateGSI makes QP 1 of the device, to and from which management datagrams go (ib_create_qp with IB_QPT_GSI in
// Linux; libibverbs has nothing of the kind). init and the QP are those of a UD QP, and the Q_Key must be 0x80010000.
// There is one such QP for each device: EBUSY if somebody has it. ENOSYS if the device keeps it for itself. Programs use package
// umad, which shares it.
func (pd *PD) CreateGSI(init *QPInitAttr) (*QP, error) {
	const op = "create_gsi"
	if init != nil && init.Type != QPTypeUD {
		return nil, newError(op, pd.obj(), EINVAL, "QP 1 is a UD QP, not %v", init.Type)
	}
	drv, ok := pd.drv.(GSIDriver)
	if !ok {
		return nil, &Error{Op: op, Obj: pd.obj(), Errno: ENOSYS, Err: ErrNotSupported}
	}
	return pd.createQP(op, init, drv.CreateGSI)
}
