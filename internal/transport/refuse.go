package transport

import (
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// What a QP must permit (qp_access_flags) for a peer's WRITE, READ or atomic.
const (
	accessWrite  = uint32(mr.RemoteWrite)
	accessRead   = uint32(mr.RemoteRead)
	accessAtomic = uint32(mr.RemoteAtomic)
)

// A fault is a reason to refuse a request.
type fault struct {
	nak    uint8  // syndrome of the NAK that an RC peer gets
	event  Event  // raised for an RC QP, unless 0 (V-AE-13, V-AE-14)
	status Status // of the receive that the message holds
	reason string
}

// The faults. Two of them differ from rdma_rxe or between sources:
//   - A QP that does not permit WRITE, READ or atomics at all answers invalid request, as rxe
//     does; a region that does not permit them answers remote access error.
//   - A SEND longer than its receive is an invalid request to the sender and a length error at the
//     receiver, as IBTA has it; rxe says remote operational error.
var (
	faultOrder       = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr, "the packet does not fit the one before it in its message"}
	faultOpcode      = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr, "the QP does not permit or support the operation"}
	faultSendPacket  = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr, "the length of a SEND packet does not fit the path MTU"}
	faultSendTooLong = &fault{wire.SynInvReq, 0, LocLenErr, "the message is longer than the receive"}
	faultWriteLength = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr, "the length of an RDMA WRITE does not fit its packets"}
	faultReadLength  = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr, "an RDMA READ of more than 2^31 bytes"}
	faultTooMany     = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr, "more outstanding READs and atomics than max_dest_rd_atomic"}
	faultMisaligned  = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr, "an atomic at an address that is no multiple of 8"}
	faultAccess      = &fault{wire.SynAccess, EventQPAccessErr, LocAccessErr, "the key, range or right of remote memory"}
	faultInvalidate  = &fault{wire.SynAccess, EventQPAccessErr, LocAccessErr, "the key to invalidate is not that of a memory window"}
	faultReceive     = &fault{wire.SynOpErr, 0, LocProtErr, "the key, range or right of a scatter entry of the receive"}

	// notReady is no error: there is no receive yet.
	notReady = &fault{reason: "no receive is posted"}
)

// refuse moves the QP to ERR because of the request at PSN seq, which an RC peer learns from a NAK. The
// receive that the message holds completes first, with what went wrong; the rest is flushed.
func (r *responder) refuse(f *fault, seq uint32) {
	qp, event := r.qp, Event(0)
	r.count(f)
	cause := &Failure{
		Status: f.status, QPN: qp.Num, DestQPN: qp.attr.DestQPN,
		Reason: "refused a request of the peer: " + f.reason, Syndrome: f.nak, Heard: true,
	}
	if qp.path != nil {
		cause.Peer = qp.path.Dst.String()
	}
	if r.recv.held {
		r.fail(f.status, cause)
	}
	if qp.Type == RC {
		r.nakFatal(f.nak, seq)
		event = f.event
	}
	qp.Fail(cause, event)
}

// count counts a fault under the kernel's name for its kind.
func (r *responder) count(f *fault) {
	switch f {
	case faultAccess, faultInvalidate:
		r.qp.Counters.RespRemoteAccessErrs++
	case faultSendPacket, faultSendTooLong, faultWriteLength, faultReadLength:
		r.qp.Counters.RespLocalLengthError++
	}
}
