// Package seam connects package verbs with the packages of this module that need more of it than programs may have:
// internal/driver and internal/gsi, which give the functions below their types. It owns nothing and imports only the
// standard library, so that verbs can import it. Packages verbs and rdmacm set the functions when they are initialised.
package seam

import "sync/atomic"

var (
	// Register makes a verbs.DriverProvider known.
	Register func(provider any)
	// NewDevice makes a *verbs.Device of a verbs.DriverDevice.
	NewDevice func(drv any) any
	// Of is the driver's object of an object of package verbs; nil for a nil pointer to what attributes and requests may
	// leave out: *verbs.AH, *MW, *CQ, *SRQ, *XRCD and *RWQIndTable.
	Of func(object any) any
	// Absent returns the reasons of the providers that have no devices; nil if all have some.
	Absent func() error
	// CreateQP makes a QP (*verbs.QP) in a *verbs.PD, of a *verbs.QPInitAttr, by a
	// func(*verbs.QPInitAttr, verbs.DriverQPEvents) (verbs.DriverQP, error). op names the operation in errors.
	CreateQP func(op string, pd, init, create any) (any, error)
	// CheckModify checks the attributes (*verbs.QPAttr) and the mask (verbs.QPAttrMask) of a call of Modify that another
	// process asks for, as verbs.QP.Modify does. The others are a verbs.DriverContext, a verbs.DriverQP and its
	// verbs.QPType.
	CheckModify func(ctx, qp, typ, attr, mask any) error
	// WatchQP has f called, in a goroutine of its own, for each asynchronous event of a QP (*verbs.QP) that says that the
	// QP has failed, with the number of the verbs.EventType. It replaces an earlier f. The program gets the event too.
	// first has the first of these events before the provider continues, and so before it reports the end of the QP's
	// stream.
	WatchQP func(qp any, first *atomic.Uint32, f func(event uint32))

	// CountEvents makes a queue of events, a *verbs.CompChannel's or the asynchronous events of a *verbs.Context, count
	// its events in a descriptor of the caller, an eventfd with EFD_SEMAPHORE, blocking or not: each event that is
	// queued, or is queued already, adds 1, and an event that is dropped with its object takes its 1 back. It is how
	// a C program reads events: it reads the descriptor, which blocks or returns EAGAIN as the program has asked,
	// and then calls TryGetEvent or TryGetAsyncEvent once for each 1 that it has read. If that returns EAGAIN, the
	// event was dropped after the read; then it reads again. GetEvent and GetAsyncEvent take the 1 of their event
	// out of the descriptor themselves.
	//
	// The descriptor stays the caller's: it must be open until the queue is closed or CountEvents is called with
	// -1, which ends the counting. EBADF for a closed descriptor, EOPNOTSUPP where there are no eventfds.
	CountEvents func(queue any, fd int) error
	// OnEvent has f called for each event that is queued in a *verbs.CompChannel, and when its device is removed. f runs
	// in the goroutine that queues the event, so it must neither wait nor call the device. It replaces an earlier f.
	OnEvent func(channel any, f func())
	// CountCMEvents is CountEvents for an *rdmacm.EventChannel, with its TryGetEvent. A program that has no package
	// rdmacm has nil here.
	CountCMEvents func(channel any, fd int) error
	// Toward is the local address for datagrams to a peer, a netip.Addr as both: that of rdmacm.ID.ResolveAddr in an
	// *rdmacm.Host, but it does not wait for the link address of the peer or router.
	Toward func(host, peer any) (any, error)
)
