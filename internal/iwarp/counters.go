package iwarp

import (
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// Counters of a QP. The fields that transport.Counters has too count the same. siw has no counters whose names could be
// used; out_of_buffer is that of other drivers of the kernel.
type Counters struct {
	OutOfBuffer          uint64 // messages refused: no receive was posted
	RespLocalLengthError uint64
	RespRemoteAccessErrs uint64
	RespCQEError         uint64
	RxWriteRequests      uint64
	RxReadRequests       uint64
	RxAtomicRequests     uint64

	ReqRemoteAccessErr uint64
	ReqRemoteInvalid   uint64
	TxTerminates       uint64
	RxTerminates       uint64
	RxCRCErrors        uint64 // FPDUs with a wrong CRC
	TxDataBytes        uint64
	RxDataBytes        uint64
}

// ownSTag is the STag of the empty messages that the protocol sends by itself.
const ownSTag = 1

// countRefusal counts why the QP ends the stream. seg is the header of the segment, nil if it is about none.
func (c *Counters) countRefusal(r *refusal, seg iwarp.Segment) {
	switch {
	case r.code == iwarp.MPACRC:
		c.RxCRCErrors++
	case r.recv == transport.LocLenErr:
		c.RespLocalLengthError++
	case r.code == iwarp.NoBuffer && seg != nil && seg.QN() == iwarp.QueueSend:
		c.OutOfBuffer++
	case isProtection(r.code):
		c.RespRemoteAccessErrs++
	}
}

// countTerminate counts why the peer has ended the stream.
func (c *Counters) countTerminate(code iwarp.Code) {
	switch {
	case isProtection(code):
		c.ReqRemoteAccessErr++
	case code.Layer() < 2 && code.Type() == 2:
		c.ReqRemoteInvalid++
	}
}

// isProtection reports whether a code is about keys, bounds or rights of memory.
func isProtection(c iwarp.Code) bool { return c.Layer() < 2 && c.Type() == 1 }

// countSegment counts a segment received whose payload is in its place.
func (q *QP) countSegment(s iwarp.Segment) {
	n := q.size - len(s)
	switch q.place.sink {
	case toRegion, toReceive, toRead:
		q.Counters.RxDataBytes += uint64(n)
	}
	if s.Tagged() && s.Opcode() == iwarp.Write && s.Last() && (n > 0 || !isOwn(s.STag())) {
		q.Counters.RxWriteRequests++
	}
}
