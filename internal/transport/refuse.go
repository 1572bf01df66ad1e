package transport

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// What a QP must permit (qp_access_flags) for a peer's WRITE or ATOMIC WRITE, READ, atomic or FLUSH.
const (
	accessWrite  = uint32(mr.RemoteWrite)
	accessRead   = uint32(mr.RemoteRead)
	accessAtomic = uint32(mr.RemoteAtomic)
	accessFlush  = uint32(mr.FlushGlobal)
)

// A fault is a reason to refuse a request.
type fault struct {
	nak    uint8  // syndrome of the NAK that an RC or XRC peer gets
	event  Event  // raised for an RC or XRC QP, unless 0 (V-AE-13, V-AE-14)
	status Status // of the receive that the message holds
	reason string
}

// The faults. Two of them differ from rdma_rxe or between sources:
//   - A QP that does not permit WRITE, READ or atomics at all answers invalid request, as rxe
//     does; a region that does not permit them answers remote access error.
//   - A SEND longer than its receive is an invalid request to the sender and a length error at the
//     receiver, as IBTA has it; rxe says remote operational error.
var (
	faultOrder       = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr, "the peer sent a packet that does not fit the one before it in its message"}
	faultOpcode      = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr, "the peer asked for an operation that the QP does not permit or support"}
	faultSendPacket  = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr, "the peer sent a packet whose length does not fit the path MTU"}
	faultSendTooLong = &fault{wire.SynInvReq, 0, LocLenErr, "the message is longer than the receive's scatter list"}
	faultWriteLength = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr, "the peer sent an RDMA WRITE whose length does not fit its packets"}
	faultReadLength  = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr, "the peer asked to READ more than 2^31 bytes"}
	faultTooMany     = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr, "the peer has more READs and atomics outstanding than max_dest_rd_atomic"}
	faultMisaligned  = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr, "the peer asked for an atomic at an address that is no multiple of 8"}
	faultAccess      = &fault{wire.SynAccess, EventQPAccessErr, LocAccessErr, "the peer asked for memory that it may not touch"}
	faultInvalidate  = &fault{wire.SynAccess, EventQPAccessErr, LocAccessErr, "the peer asked to invalidate a key that it may not"}
	faultSRQ         = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr, "the peer named an SRQ that the QP's XRC domain does not have"}
	faultReceive     = &fault{wire.SynOpErr, 0, LocProtErr, "an entry of the receive's scatter list is wrong"}

	// notReady is no error: there is no receive yet.
	notReady = &fault{reason: "no receive is posted"}
	// notYet is none either: what came before the packet must be answered first.
	notYet = &fault{reason: "the window to invalidate is being read"}
	// revoked is a packet by reference whose sender has taken its memory back: it is as good as lost.
	revoked = &fault{reason: "the sender has taken the payload back"}
)

// refuse moves the QP to ERR because of the request at PSN seq, which an RC or XRC peer learns from a NAK. The
// receive that the message holds completes first, with what went wrong; the rest is flushed.
func (r *responder) refuse(f *fault, seq uint32) {
	qp, event := r.qp, Event(0)
	r.count(f)
	cause := &Failure{
		Status: f.status, QPN: qp.Num, DestQPN: qp.attr.DestQPN,
		Reason: f.reason, Syndrome: f.nak, Heard: true,
	}
	switch d := &r.denied; f {
	case faultSendTooLong:
		cause.Reason += fmt.Sprintf(", which has %d bytes", r.recv.room)
	case faultOrder:
		cause.Reason += ": " + d.err.Error()
	case faultInvalidate:
		cause.Reason += fmt.Sprintf(": key %#x: %v", d.key, d.err)
	case faultAccess, faultReceive:
		cause.Reason += fmt.Sprintf(": key %#x, address %#x, %d bytes: %v", d.key, d.addr, d.n, d.err)
	}
	if qp.path != nil {
		cause.Peer = qp.path.Dst.String()
	}
	if r.recv.held {
		r.fail(f.status, cause)
	}
	if qp.Type.reliable() {
		r.nakFatal(f.nak, seq)
		event = f.event
	}
	qp.Fail(cause, event)
}

// denied is the memory access, or the packet out of order, that the responder refused last, for the story of the failure.
type denied struct {
	err  error
	key  uint32
	addr uint64
	n    uint64
}

// ours finds the n bytes at addr of an entry of a receive's scatter list, in domain pd.
func (r *responder) ours(key uint32, addr, n uint64, pd uint32) ([]byte, bool) {
	b, err := r.qp.Regions.Check(key, addr, n, pd, mr.LocalWrite)
	if err != nil {
		r.denied = denied{err, key, addr, n}
		return nil, false
	}
	return b, true
}

// theirs finds n bytes at addr in the region or window of key, for the peer, who needs a right in domain pd. The
// window must be released once the bytes are no longer used.
func (r *responder) theirs(key uint32, addr, n uint64, pd uint32, need mr.Access) ([]byte, *mr.Window, bool) {
	b, w, err := r.qp.Regions.CheckRemote(key, addr, n, pd, r.qp.id, need)
	if err != nil {
		r.denied = denied{err, key, addr, n}
		return nil, nil, false
	}
	return b, w, true
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
