package transport

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Rights in qp_access_flags that a peer's WRITE or ATOMIC WRITE, READ, atomic and FLUSH require.
const (
	accessWrite  = uint32(mr.RemoteWrite)
	accessRead   = uint32(mr.RemoteRead)
	accessAtomic = uint32(mr.RemoteAtomic)
	accessFlush  = uint32(mr.FlushGlobal)
)

// A fault is a reason to refuse a request.
type fault struct {
	nak    uint8  // syndrome of the NAK sent to an RC or XRC peer
	event  Event  // raised on an RC or XRC QP, unless 0 (V-AE-13, V-AE-14)
	status Status // of the receive that the message has taken
	reason string
}

// The faults. Two of them differ from rdma_rxe or between sources:
//   - A QP that does not permit WRITE, READ or atomics at all answers invalid request, as rxe does; a region that
//     does not permit them answers remote access error.
//   - A SEND longer than its receive is an invalid request to the sender and a length error at the receiver, as IBTA
//     specifies; rxe answers remote operational error.
var (
	faultOrder = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr,
		"the peer sent a packet out of order in its message"}
	faultOpcode = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr,
		"the peer requested an operation that the QP does not permit or support"}
	faultSendPacket = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr,
		"the peer sent a packet whose length does not match the path MTU"}
	faultSendTooLong = &fault{wire.SynInvReq, 0, LocLenErr, "the message is longer than the receive's scatter list"}
	faultWriteLength = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr,
		"the peer sent an RDMA WRITE whose length does not match its packets"}
	faultReadLength = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr,
		"the peer requested a READ of more than 2^31 bytes"}
	faultTooMany = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr,
		"the peer has more READs and atomics outstanding than max_dest_rd_atomic"}
	faultMisaligned = &fault{wire.SynInvReq, EventQPAccessErr, RemInvReqErr,
		"the address of the peer's atomic is not a multiple of 8"}
	faultAccess     = &fault{wire.SynAccess, EventQPAccessErr, LocAccessErr, "the peer has no access to the memory"}
	faultInvalidate = &fault{wire.SynAccess, EventQPAccessErr, LocAccessErr, "the peer may not invalidate this key"}
	faultSRQ        = &fault{wire.SynInvReq, EventQPReqErr, RemInvReqErr,
		"the peer named an SRQ that is not in the QP's XRC domain"}
	faultReceive = &fault{wire.SynOpErr, 0, LocProtErr, "the receive has an invalid SGE"}

	// notReady: no receive is posted yet. The QP does not fail.
	notReady = &fault{reason: "no receive is posted"}
	// notYet: earlier requests must be answered first. The QP does not fail.
	notYet = &fault{reason: "the window to invalidate is being read"}
	// revoked: the sender has revoked the payload of a packet by reference. The packet is treated as lost.
	revoked = &fault{reason: "the sender has revoked the payload"}
)

// refuse moves the QP to ERR because of the request at PSN seq and sends a NAK to an RC or XRC peer. The receive that
// the message has taken completes first, with the fault's status; all others are flushed.
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
	left := qp.leave(Err, cause)
	if r.held {
		r.fail(f.status, cause)
	}
	if qp.Type.reliable() {
		r.nakFatal(f.nak, seq)
		event = f.event
	}
	if left {
		qp.failed(event)
	}
}

// denied describes the memory access or the packet out of order that the responder refused last.
type denied struct {
	err  error
	key  uint32
	addr uint64
	n    uint64
}

// ours returns the n bytes at addr of an SGE of a receive, in domain pd.
func (r *responder) ours(key uint32, addr, n uint64, pd uint32) ([]byte, bool) {
	b, err := r.qp.Regions.Check(key, addr, n, pd, mr.LocalWrite)
	if err != nil {
		r.denied = denied{err, key, addr, n}
		return nil, false
	}
	return b, true
}

// unmapped notes a copy that failed. It returns false.
func (r *responder) unmapped(key uint32, addr, n uint64) bool {
	r.denied = denied{mr.ErrUnmapped, key, addr, n}
	return false
}

// theirs returns the n bytes at addr in the region or window of key, if the peer has the right need in domain pd. The
// caller releases the window when it no longer uses the bytes.
func (r *responder) theirs(key uint32, addr, n uint64, pd uint32, need mr.Access) ([]byte, *mr.Window, bool) {
	b, w, err := r.qp.Regions.CheckRemote(key, addr, n, pd, r.qp.id, need)
	if err != nil {
		r.denied = denied{err, key, addr, n}
		return nil, nil, false
	}
	return b, w, true
}

// count increments the counter that the kernel has for this kind of fault.
func (r *responder) count(f *fault) {
	switch f {
	case faultAccess, faultInvalidate:
		r.qp.Counters.RespRemoteAccessErrs++
	case faultSendPacket, faultSendTooLong, faultWriteLength, faultReadLength:
		r.qp.Counters.RespLocalLengthError++
	}
}
