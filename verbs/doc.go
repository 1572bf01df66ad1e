// Package verbs is RDMA as libibverbs has it, in Go: devices, protection domains, memory regions, queue
// pairs, completion queues and everything else that the verbs manual describes, with its rules and its error numbers.
//
// A program imports it together with a provider, which brings the devices:
//
//	import (
//		"github.com/verbena-rdma/verbena/verbs"
//		_ "github.com/verbena-rdma/verbena/provider/soft"
//	)
//
// # Objects
//
// Each object is made by a method of its parent and destroyed by Close:
//
//	Devices, Open
//	  Device
//	    Context ............................ queries, asynchronous events
//	    ├── CompChannel                      completion events, a pollable descriptor
//	    ├── CQ ............................. where finished requests are reported; may use a CompChannel
//	    └── PD                               who may work with whom
//	        ├── MR ......................... memory with an lkey and an rkey
//	        ├── AH                           the way to a UD destination
//	        ├── SRQ                          receives for several QPs
//	        └── QP ......................... send queue and receive queue; uses CQs, maybe an SRQ
//
// # Lifetime
//
// An object with users cannot be closed: EBUSY, and the error says what is left; nothing has changed then. So close
// in the reverse order: QP, CQ, MR, PD, Context. Using a closed object is an error, [ErrClosed] and EINVAL, never
// undefined. The Close of a QP, CQ or SRQ waits, without limit, until every event of it that the program got is
// acknowledged (AsyncEvent.Ack, CQ.AckEvents).
//
// Memory belongs to the device from the post call until the request's completion was polled. A region keeps its
// memory reachable; memory of [AllocBuffer] cannot be freed under a region.
//
// # Concurrency
//
// Every function may be called from any goroutine at any time, on the same object too, and each call is atomic.
// PostSend, PostRecv, Poll and ReqNotify take no lock of this package and allocate nothing. The device reads and
// writes registered memory without regard to Go's memory model: look at a buffer when a completion says that it is
// yours.
//
// # Errors
//
// Errors are [*Error], often inside a [*PostError] or [*ReregError]: the operation, the object, what was wrong, what
// is allowed, and the errno of the C function, which errors.Is and errors.As find. What a device lacks is
// [ErrNotSupported], which is both ENOSYS and EOPNOTSUPP. A request that fails later does so in its [WC]: WC.Err
// tells the whole story.
//
// # Names
//
// Names are those of C in Go's spelling: ibv_create_cq is CreateCQ, IBV_WC_RETRY_EXC_ERR is WCRetryExcErr, and the
// documentation of each symbol names its twin. Enums have the values of verbs.h. Numbers that C keeps in network
// order, P_Keys and immediate data, are in host order here; GIDs and GUIDs are byte arrays in network order.
//
// # Environment
//
// This package reads no environment variables. Those of the software device are described in package provider/soft,
// above all VERBENA_DEVICES, which names the devices there shall be.
//
// # Providers
//
// [Provider] and the Driver interfaces are the seam to devices. The rules of the specification are kept on this side
// of it. The package starts no goroutine; what runs is the provider's. Imports: the standard library, golang.org/x/sys and
// internal/notify; no provider.
package verbs
