// Package verbs provides the RDMA verbs of libibverbs in Go. Most programs need these names only:
//
//   - a device: [Open], [Devices], [Context], [PD], [Context.AllocPD]
//   - memory: [PD.RegMR], [MR], [MR.SGE], [MR.RKey], [SGE], [AccessLocalWrite], [AccessRemoteRead], [AccessRemoteWrite]
//   - queue pairs: [PD.CreateQP], [QP], [QPInitAttr], [QPCap], [QPTypeRC], [QPTypeUD]
//   - connecting two of them: [QP.LocalInfo], [QPInfo], [QP.Connect], [ConnectOptions]
//   - requests: [QP.PostSend], [SendWR], [WRSend], [WRRDMAWrite], [WRRDMARead], [SendSignaled], [SendInline],
//     [QP.PostRecv], [RecvWR]
//   - completions: [Context.CreateCQ], [CQ], [CQ.Poll], [CQ.Wait], [CQ.All], [WC], [WC.Err]
//   - errors: [Error]
//
// A program imports the package together with a provider of devices:
//
//	import (
//		"github.com/verbena-rdma/verbena/verbs"
//		_ "github.com/verbena-rdma/verbena/provider/soft"
//	)
//
// The rest, by topic:
//
//   - devices and ports: [Device], [DeviceAttr], [PortAttr], [Context.QueryPort], [GID], [GIDEntry],
//     [Context.SelectGID]
//   - events: [CompChannel], [CQ.ReqNotify], [Context.GetAsyncEvent], [AsyncEvent], [EventType]
//   - states of a QP: [QP.Modify], [QPAttr], [QPAttrMask], [QPState], [QP.Query], [RNRDelay], [AckTimeout]
//   - datagrams: [AH], [AHAttr], [PD.CreateAH], [QP.AHAttrTo], [QP.AttachMcast]
//   - shared receive queues: [SRQ], [PD.CreateSRQ]; XRC: [XRCD], [Context.OpenXRCD]; tag matching: [SRQ.PostOps],
//     [TMHeader]
//   - more of memory: [AllocBuffer], [MR.Rereg], [MW], [DM], [PD.AllocNullMR], [PD.AdviseMR]
//   - more of requests: [QPEx] builds lists of them, [Flush], [TSO], [ECE], [QP.ModifyRateLimit]
//   - more of completions: [CQ.StartPoll], [CreateCQWCFlags], [CQ.Modify], [RTValues]
//   - Ethernet frames: [QPTypeRawPacket], [Flow], [FlowAttr], [Counters], [WQ], [RWQIndTable]
//   - locking and sharing: [TD], [Context.AllocParentDomain], [ImportDevice], [ForkInit]
//
// Names that begin with Driver are for the packages of this module that implement devices.
//
// # Objects
//
// Each object is made by a method of its parent and destroyed by Close:
//
//	Devices, Open
//	  Device
//	    Context ............................ queries, asynchronous events
//	    ├── CompChannel                      completion events of CQs, a pollable descriptor
//	    ├── CQ ............................. completions of requests; may use a CompChannel
//	    └── PD                               groups the objects below; they work with each other only
//	        ├── MR ......................... memory with an lkey and an rkey
//	        ├── AH                           address of a UD destination
//	        ├── SRQ                          receives for several QPs
//	        └── QP ......................... send queue and receive queue; uses CQs, optionally an SRQ
//
// # Lifetime
//
// An object with users cannot be closed: EBUSY, and the error says what is left; nothing has changed then. So close
// in the reverse order: QP, CQ, MR, PD, Context. Using a closed object is an error, [ErrClosed] and EINVAL, never
// undefined. Close of a QP, CQ, SRQ or WQ waits, without limit, until every event of it that the program retrieved is
// acknowledged (AsyncEvent.Ack, CQ.AckEvents).
//
// After [EventDeviceFatal] the device is removed. Calls that a kernel would answer return EIO, and so do calls that
// wait for events, once no event is left. Close destroys an object and returns EIO, or nil if
// RDMAV_ALLOW_DISASSOC_DESTROY is set. Close of a Context, CompChannel, TD, parent domain or import needs no device and
// returns nil. Close the context, and open the device again when it is back.
//
// Memory belongs to the device from the post call until the request's completion is polled. A region keeps its
// memory reachable; memory of [AllocBuffer] cannot be freed under a region.
//
// # Concurrency
//
// Every function may be called from any goroutine at any time, on the same object too, and each call is atomic. There
// are two exceptions, sequences of calls that belong to one goroutine: StartPoll to EndPoll of a CQ, and Start to
// Complete or Abort of a QPEx. Other goroutines that begin one wait; with [CreateCQSingleThreaded] or a [TD] they do
// not wait, and the program itself must keep them apart. PostSend, PostRecv, Poll and ReqNotify take no lock of this
// package and allocate nothing. The device reads and writes registered memory without regard to Go's memory model:
// access a buffer only after the completion of its request.
//
// # Errors
//
// Errors are [*Error], often inside a [*PostError] or [*ReregError]: the operation, the object, what was wrong, what
// is allowed, and the errno of the C function, which errors.Is and errors.As find. A missing feature of a device is
// [ErrNotSupported], which is both ENOSYS and EOPNOTSUPP. A request that fails later does so in its [WC]: WC.Err
// describes the failure.
//
// # Names
//
// Names are those of C in Go's spelling: ibv_create_cq is CreateCQ, IBV_WC_RETRY_EXC_ERR is WCRetryExcErr, and the
// documentation of each symbol names its twin. Enums have the values of verbs.h. Numbers that C keeps in network
// order, P_Keys and immediate data, are in host order here; GIDs and GUIDs are byte arrays in network order.
//
// # Environment
//
// This package reads those that the manual of libibverbs describes: IBV_SHOW_WARNINGS ([Devices]), RDMAV_FORK_SAFE and
// IBV_FORK_SAFE ([ForkInit]), RDMAV_ALLOW_DISASSOC_DESTROY (above). [AllocBuffer] reads VERBENA_SHM and
// VERBENA_SHM_DIRECT. Package provider/soft describes those of the software device, such as VERBENA_DEVICES, which
// selects the devices. docs/environment.md lists all.
//
// # Providers
//
// The types whose names begin with Driver are the interface to devices, for packages of this module. This package
// enforces the rules of the specification. It starts no goroutine; providers do. It imports the standard library,
// golang.org/x/sys, internal/fdset, internal/notify, internal/prefetch, internal/seam, internal/secret and observe; no
// provider.
package verbs
