// Package gsi gives umad and rdmacm QP 1 of a device, and what Linux does for connection management in the kernel.
// libibverbs has nothing of the kind, so it is no part of package verbs. It imports internal/link, internal/seam
// and verbs.
package gsi

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// Driver is implemented by a verbs.DriverPD whose device lets programs have QP 1.
type Driver interface {
	// CreateGSI makes QP 1, a UD QP in everything but its number. EBUSY if it exists already.
	CreateGSI(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error)
	CommIDs() (prefix uint32, bits int)
	ClaimService(id uint64, at netip.Addr) (release func(), err error)
	WatchPeers(f func(PeerDeath)) (stop func())
	Screen(s link.Screen)
	// NewLastWill is nil if no other process would send it.
	NewLastWill(local, remote netip.Addr, tclass, hopLimit uint8, pkey uint16) LastWill
}

// KernelManaged is implemented by a verbs.DriverDevice whose QP 1 belongs to the kernel.
type KernelManaged interface {
	// KernelManaged returns the reason, a clause.
	KernelManaged() string
}

// Refused returns EOPNOTSUPP for a device whose connections only the kernel can manage, else nil. It does not open the
// device.
func Refused(dev *verbs.Device) error {
	if drv, ok := seam.Of(dev).(KernelManaged); ok {
		return &verbs.Error{Op: "create_gsi", Obj: dev.Name(), Errno: verbs.EOPNOTSUPP, Detail: drv.KernelManaged()}
	}
	return nil
}

// Connected is implemented by a verbs.DriverQP whose flushed requests can give the reason for the end of the
// connection.
type Connected interface {
	// Ended stores why the QP is about to be moved to ERR: a clause.
	Ended(why string)
}

// Ended stores why the QP's connection has ended, for the requests that are flushed when the QP is moved to ERR then.
func Ended(qp *verbs.QP, why string) {
	if drv, ok := seam.Of(qp).(Connected); ok {
		drv.Ended(why)
	}
}

// Moving is implemented by a verbs.DriverQP that the kernel's connection manager moves to another state.
type Moving interface {
	// Moved stores the state that the QP is in now.
	Moved(s verbs.QPState)
}

// Moved stores the state to which the kernel's connection manager has moved the QP.
func Moved(qp *verbs.QP, s verbs.QPState) {
	if drv, ok := seam.Of(qp).(Moving); ok {
		drv.Moved(s)
	}
}

// Addressed is a driver's address handle that selects the P_Key of the datagrams that QP 1 sends to it.
type Addressed interface {
	// SetPKeyIndex sets the index in the P_Key table of the handle's port. It is called before the first send.
	SetPKeyIndex(index uint16)
}

// SetPKeyIndex selects the P_Key of datagrams that QP 1 sends with an address handle. It must be called before the
// first send.
func SetPKeyIndex(ah *verbs.AH, index uint16) {
	if drv, ok := seam.Of(ah).(Addressed); ok {
		drv.SetPKeyIndex(index)
	}
}

// PeerDeath is the death of the process of a connection's peer, or the peer's silence.
type PeerDeath struct {
	QPN     uint32 // the device's
	DestQPN uint32
	Peer    netip.Addr
	Silent  bool // the peer may be alive: it did not answer keep-alive
}

// LastWill is a management datagram that is sent to QP 1 of a peer when this process ends without Drop;
// nothing at first. It is safe for concurrent use.
type LastWill interface {
	// Set replaces the datagram. It is copied. Behind byte 96 there are only zeros.
	Set(mad []byte)
	// Drop revokes the will: nothing is sent. It is called once, after the last Set.
	Drop()
}

// CreateQP makes QP 1 of the device, to and from which management datagrams go (ib_create_qp with IB_QPT_GSI in
// Linux). init and the QP are those of a UD QP, and the Q_Key must be 0x80010000. There is one such QP for each device:
// EBUSY if another process or port has it, ENOSYS if the device keeps it for itself.
func CreateQP(pd *verbs.PD, init *verbs.QPInitAttr) (*verbs.QP, error) {
	const op = "create_gsi"
	drv, ok := seam.Of(pd).(Driver)
	switch {
	case init.Type != verbs.QPTypeUD:
		return nil, &verbs.Error{Op: op, Errno: verbs.EINVAL, Detail: "QP 1 is a UD QP, not " + init.Type.String()}
	case !ok:
		return nil, &verbs.Error{Op: op, Errno: verbs.ENOSYS, Err: verbs.ErrNotSupported}
	}
	qp, err := seam.CreateQP(op, pd, init, drv.CreateGSI)
	if err != nil {
		return nil, err
	}
	return qp.(*verbs.QP), nil
}

// PD is the protection domain of a *umad.Port, whose QP 1 the functions below are about. Package umad sets it.
var PD func(port any) *verbs.PD

func of(port any) Driver {
	drv, _ := seam.Of(PD(port)).(Driver)
	return drv
}

// CommIDs is what communication IDs of connection management begin with, so that answers find this process among those
// that share the device: their upper bits equal those of prefix. 0 bits: any ID will do. (ib_cm does this in the
// kernel.)
func CommIDs(port any) (prefix uint32, bits int) { return of(port).CommIDs() }

// ClaimService makes requests for a service ID that come to a local address reach QP 1 of this process (ib_cm_listen in
// the kernel). An invalid address stands for all. release gives it back; a process may claim an ID several times.
// EADDRINUSE if another process that shares the device has it.
func ClaimService(port any, id uint64, at netip.Addr) (release func(), err error) {
	release, err = of(port).ClaimService(id, at)
	if err != nil {
		errno := syscall.EIO
		errors.As(err, &errno)
		return nil, &verbs.Error{Op: "claim_service", Errno: errno, Err: err}
	}
	return release, nil
}

// Screen sets the screen, which drops datagrams for QP 1 before their packets are checked and copied; nil: there is
// none. Its methods may still be called shortly after Screen(nil). Some links do not call it.
func Screen(port any, s link.Screen) { of(port).Screen(s) }

// WatchPeers calls f once for each QP of the device whose peer's process has died, and for each one whose peer does not
// answer keep-alive. A reliable QP is in ERR by then. The death is noticed of processes of this host that are reached
// through shared memory. f must neither block nor call the device. It may run a last time while stop runs, not
// afterwards.
func WatchPeers(port any, f func(PeerDeath)) (stop func()) { return of(port).WatchPeers(f) }

// NewLastWill makes room for a datagram from a local address to a peer that the other processes which share the device
// send when this one has ended without Drop. nil if there are none that would, or no more room. (In the kernel ib_cm
// sends such datagrams itself.)
func NewLastWill(port any, local, remote netip.Addr, tclass, hopLimit uint8, pkey uint16) LastWill {
	return of(port).NewLastWill(local, remote, tclass, hopLimit, pkey)
}
