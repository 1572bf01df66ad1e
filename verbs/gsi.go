package verbs

import "net/netip"

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

// GSISharer is a PDDriver whose device other processes may have open at the same time.
type GSISharer interface {
	CommIDs() (prefix uint32, bits int)
	ClaimService(id uint64, at netip.Addr) (release func(), err error)
}

// CommIDs tells how communication IDs of connection management must begin, so that answers find this process among those that share
// the device: their upper bits equal those of prefix. 0 bits means that any ID will do. It is for QP 1 of CreateGSI, after
// that was called (ib_cm does this in the kernel; libibverbs has nothing of the kind).
func (pd *PD) CommIDs() (prefix uint32, bits int) {
	if s, ok := pd.drv.(GSISharer); ok {
		return s.CommIDs()
	}
	return 0, 0
}

// ClaimService makes requests for a service ID that come to a local address reach QP 1 of this process (ib_cm_listen in the kernel).
// An invalid address stands for all. release gives it back; a process may claim an ID several times. EADDRINUSE if another
// process that shares the device has it.
func (pd *PD) ClaimService(id uint64, at netip.Addr) (release func(), err error) {
	s, ok := pd.drv.(GSISharer)
	if !ok {
		return func() {}, nil
	}
	release, err = s.ClaimService(id, at)
	if err != nil {
		return nil, driverError("claim_service", pd.obj(), err)
	}
	return release, nil
}

// PeerWatcher is a PDDriver whose device notices when the process of a connection's peer dies.
type PeerWatcher interface {
	WatchPeers(f func(PeerDeath)) (stop func())
}

// PeerDeath tells of a connection whose peer's process has died.
type PeerDeath struct {
	QPN     uint32 // the device's
	DestQPN uint32
	Peer    netip.Addr
}

// WatchPeers has f called when the process of a peer has died without a word, for each QP of the device that was connected to it, once;
// the QP is in ERR by then if it is reliable. It is known of processes of this host that are reached through shared memory (in the kernel
// ib_cm speaks for them; libibverbs has nothing of the kind). f must neither block nor call the device. It may run a last time while
// stop runs, not afterwards.
func (pd *PD) WatchPeers(f func(PeerDeath)) (stop func()) {
	if w, ok := pd.drv.(PeerWatcher); ok {
		return w.WatchPeers(f)
	}
	return func() {}
}

// Heir is a PDDriver whose device is shared by processes that speak for one of them when it dies.
type Heir interface {
	Bequeath(local, remote netip.Addr, tclass, hopLimit uint8) Bequest
}

// Bequest is a management datagram that is sent to QP 1 of a peer when this process dies; nothing at first. It is safe for concurrent use.
type Bequest interface {
	// Set replaces the datagram. It is copied. Behind byte 96 there are only zeros.
	Set(mad []byte)
	// Drop is the end of it: nothing is sent. It is called once, the last of all.
	Drop()
}

// Bequeath makes room for a datagram from a local address to a peer that the other processes which share the device send when this one has ended
// without Drop. nil if there are none that would, or no more room (in the kernel ib_cm does it itself; libibverbs has nothing of the kind).
func (pd *PD) Bequeath(local, remote netip.Addr, tclass, hopLimit uint8) Bequest {
	if h, ok := pd.drv.(Heir); ok {
		return h.Bequeath(local, remote, tclass, hopLimit)
	}
	return nil
}
