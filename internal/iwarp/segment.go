package iwarp

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// sink is the kind of place to which a segment's payload goes.
type sink uint8

const (
	toNothing sink = iota // no payload, or one that is ignored
	toRegion              // a WRITE: memory of an STag
	toReceive             // a SEND: the buffers of a receive
	toRead                // a Read Response: the buffer of a READ
	toSmall               // a message with a header of its own
)

// placement is where the next byte of the current segment belongs.
type placement struct {
	sink sink
	stag uint32
	to   uint64
}

// message is the untagged message of queue 0 that is being received.
type message struct {
	open bool // its last segment has not come
	op   iwarp.Opcode
	recv transport.RecvWQE
	held bool // recv was taken from its queue and is not complete
	room uint64
	mo   uint64 // bytes received
	sge  int    // the SGE to fill next
	off  uint32 // the offset in it
}

// header begins a segment. It checks all that can be checked before the payload arrives.
func (q *QP) header(s iwarp.Segment) *refusal {
	q.seg, q.place, q.got = s, placement{}, 0
	if c, ok := iwarp.Check(s, q.size); !ok {
		return refuse(c)
	}
	q.seg = s[:s.HeaderLen()]
	n := q.size - s.HeaderLen()
	begin := !q.heard
	if s.Tagged() {
		if s.Opcode() == iwarp.Write {
			return q.onWrite(s, n)
		}
		return q.onResponse(s, n)
	}
	queue := s.QN()
	if s.MSN() != q.msn[queue] {
		return refuse(iwarp.InvalidMSN)
	}
	if queue != iwarp.QueueSend {
		return q.onControl(s, n)
	}
	if begin && !q.par.Initiator && q.par.RTR == iwarp.RTRSend && n == 0 && s.Last() && s.Opcode() == iwarp.Send {
		return nil // the first message of a peer-to-peer connection completes no receive
	}
	return q.onSend(s, n)
}

// onWrite checks the memory of a segment of a WRITE. Without payload no STag is needed.
func (q *QP) onWrite(s iwarp.Segment, n int) *refusal {
	if n == 0 {
		return nil
	}
	q.place = placement{sink: toRegion, stag: s.STag(), to: s.TO()}
	_, w, r := q.region(s.STag(), s.TO(), uint64(n), mr.RemoteWrite, taggedCodes)
	w.Release()
	return r
}

// codes are what a Terminate reports for each reason of mr.
type codes struct{ key, pd, bounds, wrap, access iwarp.Code }

var (
	taggedCodes = codes{iwarp.TaggedSTag, iwarp.TaggedStream, iwarp.TaggedBounds, iwarp.TaggedWrap, iwarp.ReadAccess}
	readCodes   = codes{iwarp.ReadSTag, iwarp.ReadStream, iwarp.ReadBounds, iwarp.ReadWrap, iwarp.ReadAccess}
)

// region returns n bytes of memory that the peer names. The window, if not nil, must be released.
func (q *QP) region(stag uint32, to, n uint64, need mr.Access, c codes) ([]byte, *mr.Window, *refusal) {
	var err error
	if q.Access&need != need {
		err = mr.ErrAccess
	} else {
		var b []byte
		var w *mr.Window
		if b, w, err = q.Regions.CheckRemote(stag, to, n, q.PD, q.ID, need); err == nil {
			return b, w, nil
		}
	}
	r := &refusal{why: fmt.Sprintf("STag 0x%x, offset 0x%x, %d bytes: %v", stag, to, n, err)}
	switch {
	case errors.Is(err, mr.ErrPD):
		r.code = c.pd
	case errors.Is(err, mr.ErrAccess):
		r.code = c.access
	case errors.Is(err, mr.ErrBounds) && to+n < to:
		r.code = c.wrap
	case errors.Is(err, mr.ErrBounds):
		r.code = c.bounds
	default:
		r.code = c.key
	}
	return nil, nil, r
}

// onSend checks a segment of a message of queue 0, and takes a receive for a new one.
func (q *QP) onSend(s iwarp.Segment, n int) *refusal {
	m := &q.message
	if m.open && m.op != s.Opcode() {
		return refuse(iwarp.UnexpectedOpcode)
	}
	if uint64(s.MO()) != m.mo {
		return refuse(iwarp.InvalidMO)
	}
	if !m.open {
		if !q.RQ.Take(&m.recv) {
			return refuse(iwarp.NoBuffer)
		}
		m.open, m.held, m.op, m.room = true, true, s.Opcode(), 0
		m.sge, m.off = 0, 0
		for i := range m.recv.SGEs {
			m.room += uint64(m.recv.SGEs[i].Length)
		}
	}
	if in := s.Opcode().Info(); in.Len != 0 {
		return q.beginSmall(s, n, in.Len)
	}
	if m.mo+uint64(n) > m.room {
		r := refuse(iwarp.TooLong)
		r.recv = transport.LocLenErr
		return r
	}
	q.place.sink = toReceive
	return nil
}

// beginSmall checks a message of a fixed length, which has one segment.
func (q *QP) beginSmall(s iwarp.Segment, n, want int) *refusal {
	switch {
	case s.MO() != 0:
		return refuse(iwarp.InvalidMO)
	case n > want:
		return refuse(iwarp.TooLong)
	case n < want || !s.Last():
		return refuse(iwarp.OperationOther)
	}
	q.place.sink = toSmall
	return nil
}

// onControl checks a message of the other queues.
func (q *QP) onControl(s iwarp.Segment, n int) *refusal {
	if s.Opcode() != iwarp.TerminateOp {
		return q.beginSmall(s, n, s.Opcode().Info().Len)
	}
	if s.MO() != 0 {
		return refuse(iwarp.InvalidMO)
	}
	q.place.sink = toSmall // what is too long is cut off
	return nil
}

// target returns the place of the next bytes of the segment, at most n.
func (q *QP) target(n int) ([]byte, *mr.Window, *refusal) {
	switch q.place.sink {
	case toRegion:
		return q.region(q.place.stag, q.place.to, uint64(n), mr.RemoteWrite, taggedCodes)
	case toReceive:
		b, r := q.bufferOfReceive(n)
		return b, nil, r
	case toRead:
		b, err := q.Regions.Check(q.place.stag, q.place.to, uint64(n), q.PD, mr.LocalWrite)
		if err != nil {
			return nil, nil, q.failRead(err)
		}
		return b, nil, nil
	}
	return nil, nil, nil
}

// bufferOfReceive returns the next buffer of the current receive, at most n bytes of it.
func (q *QP) bufferOfReceive(n int) ([]byte, *refusal) {
	m, pd := &q.message, q.PD
	if q.RQ.Shared() {
		pd = q.RQ.PD()
	}
	for m.off == m.recv.SGEs[m.sge].Length {
		m.sge, m.off = m.sge+1, 0
	}
	s := &m.recv.SGEs[m.sge]
	n = min(n, int(s.Length-m.off))
	b, err := q.Regions.Check(s.LKey, s.Addr+uint64(m.off), uint64(n), pd, mr.LocalWrite)
	if err != nil {
		return nil, &refusal{code: iwarp.LocalCatastrophic, recv: transport.LocProtErr,
			why: fmt.Sprintf("SGE %d of the receive: %v", m.sge, err)}
	}
	return b, nil
}

// payload places bytes of the current segment.
func (q *QP) payload(b []byte) *refusal {
	for len(b) > 0 {
		switch q.place.sink {
		case toNothing:
			return nil
		case toSmall:
			q.got += copy(q.small[q.got:], b)
			return nil
		}
		to, w, r := q.target(len(b))
		if r != nil {
			return r
		}
		n, ok := mr.Copy(to, b)
		w.Release()
		if !ok {
			return q.unmapped()
		}
		q.advance(n)
		b = b[n:]
	}
	return nil
}

// unmapped is the refusal of bytes whose place the program has unmapped.
func (q *QP) unmapped() *refusal {
	switch q.place.sink {
	case toReceive:
		return &refusal{code: iwarp.LocalCatastrophic, recv: transport.LocProtErr, why: mr.ErrUnmapped.Error()}
	case toRead:
		return q.failRead(mr.ErrUnmapped)
	}
	return &refusal{code: iwarp.TaggedSTag, why: mr.ErrUnmapped.Error()}
}

// advance moves the place by n bytes.
func (q *QP) advance(n int) {
	q.place.to += uint64(n)
	if q.place.sink == toReceive {
		q.message.off += uint32(n)
	}
}

// finish ends a segment whose payload is in its place.
func (q *QP) finish() *refusal {
	s, first := q.seg, !q.heard
	q.heard = true
	q.countSegment(s)
	if s.Tagged() {
		if s.Opcode() == iwarp.ReadResponse {
			return q.endResponse()
		}
		q.writing = !s.Last()
		if q.size == len(s) && s.Last() {
			q.onEmptyWrite(s)
		}
		return nil
	}
	if s.QN() == iwarp.QueueSend {
		return q.endSend(q.size - len(s))
	}
	q.msn[s.QN()]++
	switch s.Opcode() {
	case iwarp.ReadRequest:
		return q.onRead()
	case iwarp.AtomicRequest:
		return q.onAtomic()
	case iwarp.AtomicResponse:
		return q.onAtomicResponse()
	}
	q.onTerminate(first)
	return nil
}

// endSend ends a segment of queue 0 with n bytes of payload, and completes the receive after the last one.
func (q *QP) endSend(n int) *refusal {
	m, s := &q.message, q.seg
	m.mo += uint64(n)
	if !s.Last() {
		return nil
	}
	q.msn[iwarp.QueueSend]++
	if !m.open {
		return nil // the first message of a peer-to-peer connection
	}
	in := s.Opcode().Info()
	e := transport.CQE{WRID: m.recv.WRID, Op: transport.CQRecv, ByteLen: uint32(m.mo), QPN: q.Num, RQ: q.RQ,
		Solicited: in.SE}
	if in.Inv {
		if err := q.Regions.Invalidate(s.InvSTag(), q.PD, q.ID); err != nil {
			return &refusal{code: iwarp.CannotInvalidate, why: fmt.Sprintf("STag 0x%x: %v", s.InvSTag(), err),
				recv: transport.LocAccessErr}
		}
		e.Flags, e.Imm = transport.WithInv, s.InvSTag()
	}
	if in.Len == iwarp.ImmediateLen {
		e.Op, e.Flags = transport.CQRecvRDMAImm, transport.WithImm
		e.Imm, e.ByteLen = iwarp.ParseImmediate(q.small[:])
	}
	m.open, m.held, m.mo = false, false, 0
	q.RecvCQ.Push(&e)
	return nil
}

func (q *QP) completeReceive(st transport.Status, cause *transport.Failure) {
	q.message.held = false
	if st != transport.WRFlushErr {
		q.Counters.RespCQEError++
	}
	q.RecvCQ.Push(&transport.CQE{WRID: q.message.recv.WRID, Status: st, Op: transport.CQRecv, QPN: q.Num, RQ: q.RQ,
		Cause: cause})
}

// flushReceives completes every receive of a QP in ERR; of an SRQ only the one that the QP has taken.
func (q *QP) flushReceives(cause *transport.Failure) {
	if q.message.held {
		q.completeReceive(transport.WRFlushErr, cause)
	}
	if q.RQ.Shared() {
		if !q.last {
			q.last = true
			q.Host.Raise(transport.EventQPLastWQEReached)
		}
		return
	}
	for q.RQ.Take(&q.message.recv) {
		q.completeReceive(transport.WRFlushErr, cause)
	}
}

// onTerminate ends the QP because the peer has ended the stream. A request that the peer names fails with the status
// of its code. Two codes of MPA are those of siw for other reasons: only an initiator sends them, as its first message.
func (q *QP) onTerminate(first bool) {
	t, err := iwarp.ParseTerminate(q.small[:min(q.got, iwarp.MaxTerminate)])
	if c := t.Code; (c == iwarp.MPADepths || c == iwarp.MPANoRTR) && (q.par.Initiator || !first) {
		t.Code = iwarp.UnexpectedOpcode + (c - iwarp.MPADepths)
	}
	why := "the peer has terminated the stream"
	if err == nil {
		why += ": " + t.Code.String()
		q.blame(t, why)
		q.Counters.countTerminate(t.Code)
	}
	q.Counters.RxTerminates++
	q.told, q.term = true, iwarp.Terminate{Code: t.Code, SegLen: t.SegLen}
	q.end(transport.WRFlushErr, why)
	q.Host.Raise(transport.EventQPFatal)
}
