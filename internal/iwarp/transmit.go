package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// kind is where the payload of a message comes from.
type kind uint8

const (
	nothing  kind = iota
	data          // the SGEs or the inline data of a work request
	response      // memory that the peer reads
	plain         // the QP itself
)

// outgoing is the message that is being sent.
type outgoing struct {
	kind   kind
	op     iwarp.Opcode
	slot   uint32
	answer bool // it is the oldest response
	inv    uint32
	msn    uint32
	stag   uint32
	to     uint64
	pos    uint32 // bytes built
	left   uint32
	sge    int    // the SGE to read next
	off    uint32 // the offset in it
	small  int    // plain: bytes of the QP's control
	wait   outstanding
}

// Limits of the output that is built before the stream takes it.
const (
	maxSegments = 8
	maxSummed   = 2 // with CRCs, whose payload is copied
)

// stream is the output that is built and that the stream has not taken.
type stream struct {
	ctl   [iwarp.AtomicRequestLen]byte // the data of a plain message
	out   []*segment
	spare []*segment
	skip  int    // bytes of out[0] that were taken
	taken uint64 // bytes taken by the stream
	built uint64 // bytes built
}

// segment is one FPDU to send.
type segment struct {
	head [headLen + iwarp.MaxTerminate]byte // length, header, the data of a plain message
	n    int                                // bytes of head
	body [][]byte                           // memory of the program, or buf
	buf  []byte                             // a copy of the payload
	crc  uint32                             // with CRCs: of head and body as far as they are built
	tail [3 + iwarp.CRCLen]byte             // pad and CRC
	t    int                                // bytes of tail
	len  int                                // of the FPDU
}

// control returns the place for n bytes of data of a plain message.
func (q *QP) control(m *outgoing, n int) []byte {
	m.small, m.left = n, uint32(n)
	return q.ctl[:n]
}

// open makes m the message to send.
func (q *QP) open(m outgoing) {
	if in := m.op.Info(); !in.Tagged {
		m.msn = q.number(in.Queue)
	}
	q.msg = m
}

// idle reports whether the stream has taken everything that was built.
func (q *QP) idle() bool { return len(q.out) == 0 && q.msg.kind == nothing }

// Vectors appends the bytes that the stream should take next to dst, in order. They stay valid until Written is called,
// or a method that can end the QP, such as Feed.
func (q *QP) Vectors(dst [][]byte) [][]byte {
	most := maxSegments
	if q.par.CRC {
		most = maxSummed
	}
	for q.state == transport.RTS && len(q.out) < most && (q.msg.kind != nothing || q.begin()) {
		q.build()
	}
	from := len(dst)
	for _, s := range q.out {
		dst = append(dst, s.head[:s.n])
		dst = append(dst, s.body...)
		dst = append(dst, s.tail[:s.t])
	}
	for skip := q.skip; skip > 0; { // the bytes of the first segment that were taken
		n := min(skip, len(dst[from]))
		dst[from] = dst[from][n:]
		skip -= n
		if len(dst[from]) == 0 {
			from++
		}
	}
	return compact(dst)
}

// compact removes empty slices.
func compact(v [][]byte) [][]byte {
	n := 0
	for _, b := range v {
		if len(b) > 0 {
			v[n], n = b, n+1
		}
	}
	return v[:n]
}

// Written reports that the stream has taken n bytes of Vectors. Work requests complete with it.
func (q *QP) Written(n int) {
	q.taken += uint64(n)
	n += q.skip
	for len(q.out) > 0 && n >= q.out[0].len {
		n -= q.out[0].len
		q.release(q.out[0])
		q.out = q.out[:copy(q.out, q.out[1:])]
	}
	q.skip = n
	if q.state == transport.RTS {
		q.complete()
	}
}

func (q *QP) release(s *segment) {
	s.body = s.body[:0]
	s.buf = unloan(s.buf)
	q.spare = append(q.spare, s)
}

func (q *QP) allocate() *segment {
	if n := len(q.spare); n > 0 {
		s := q.spare[n-1]
		q.spare = q.spare[:n-1]
		return s
	}
	return new(segment)
}

// build builds the next segment of the message.
func (q *QP) build() {
	m, s := &q.msg, q.allocate()
	header := iwarp.UntaggedLen
	if m.op.Info().Tagged {
		header = iwarp.TaggedLen
	}
	n := min(int(m.left), q.MaxULPDU-header)
	last := n == int(m.left)
	s.n = iwarp.LengthLen + header
	if h := s.head[iwarp.LengthLen:]; header == iwarp.TaggedLen {
		iwarp.PutTagged(h, m.op, last, m.stag, m.to+uint64(m.pos))
	} else {
		iwarp.PutUntagged(h, m.op, last, m.inv, m.msn, m.pos)
	}
	if m.kind == plain {
		s.n += copy(s.head[s.n:], q.ctl[:m.small])
	}
	q.prefix(s, header+n)
	switch m.kind {
	case data:
		if !q.gather(s, m, n) {
			return
		}
	case response:
		if !q.read(s, m, n) {
			return
		}
	}
	if m.kind != plain {
		q.Counters.TxDataBytes += uint64(n)
	}
	q.seal(s)
	q.builtSegment(m)
	m.pos, m.left = m.pos+uint32(n), m.left-uint32(n)
	if last {
		q.finishMessage(m)
	}
}

// prefix puts the length of the ULPDU, n bytes, before a complete header.
func (q *QP) prefix(s *segment, n int) {
	binary.BigEndian.PutUint16(s.head[:], uint16(n))
	if q.par.CRC {
		s.crc = iwarp.UpdateCRC(0, s.head[:s.n])
	}
}

// seal completes a segment, and gives it to the stream.
func (q *QP) seal(s *segment) {
	n := int(binary.BigEndian.Uint16(s.head[:]))
	pad := iwarp.Pad(n)
	s.t = pad + iwarp.CRCLen
	s.tail = [3 + iwarp.CRCLen]byte{}
	if q.par.CRC {
		iwarp.PutCRC(s.tail[pad:], iwarp.UpdateCRC(s.crc, s.tail[:pad]))
	}
	s.len = iwarp.FPDULen(n)
	q.built += uint64(s.len)
	q.out = append(q.out, s)
}

// finishMessage ends a message whose last segment was built. Immediate data follow their WRITE.
func (q *QP) finishMessage(m *outgoing) {
	was := *m
	*m = outgoing{}
	switch {
	case was.answer:
		q.asked--
		q.answers = q.answers[:copy(q.answers, q.answers[1:])]
		return
	case was.op == iwarp.ReadRequest || was.op == iwarp.AtomicRequest:
		q.waiting = append(q.waiting, was.wait)
	}
	if was.kind != data && was.small == 0 || was.wait.own {
		return // the first message of a peer-to-peer connection
	}
	w := q.SQ.At(was.slot)
	if w.Op == transport.OpWriteImm && was.op == iwarp.Write {
		imm := outgoing{kind: plain, op: opcodeOf(w), slot: was.slot}
		iwarp.PutImmediate(q.control(&imm, iwarp.ImmediateLen), w.Imm, w.Length)
		q.open(imm)
		return
	}
	e := q.entry(was.slot)
	e.built, e.end = true, q.built
}

// gather adds n bytes of a work request to a segment. If they are not readable any more, the stream ends.
func (q *QP) gather(s *segment, m *outgoing, n int) bool {
	w := q.SQ.At(m.slot)
	if w.Flags&transport.Inline != 0 {
		b := w.Inline[m.pos : m.pos+uint32(n)]
		if s.body = append(s.body, b); q.par.CRC {
			s.crc = iwarp.UpdateCRC(s.crc, b)
		}
		return true
	}
	for n > 0 {
		for m.off == w.SGEs[m.sge].Length {
			m.sge, m.off = m.sge+1, 0
		}
		g := &w.SGEs[m.sge]
		k := min(n, int(g.Length-m.off))
		b, err := q.Regions.Check(g.LKey, g.Addr+uint64(m.off), uint64(k), q.PD, 0)
		if err == nil && q.par.CRC && !q.copied(s, b, n) {
			err = mr.ErrUnmapped
		}
		if err != nil {
			q.fault(fmt.Sprintf("SGE %d: %v", m.sge, err))
			return false
		}
		if !q.par.CRC {
			s.body = append(s.body, b)
		}
		m.off += uint32(len(b))
		n -= len(b)
	}
	return true
}

// copied appends b to the segment's own copy of its payload, of which n bytes are to come, and to its CRC. Bytes under
// a CRC must not change until they are sent.
func (q *QP) copied(s *segment, b []byte, n int) bool {
	if len(s.body) == 0 {
		s.buf = loan(n)
	}
	at := len(s.buf)
	s.buf = s.buf[:at+len(b)]
	s.body = append(s.body[:0], s.buf)
	crc, ok := mr.CopyCRC(s.crc, s.buf[at:], b)
	s.crc = crc
	return ok
}

// fault fails the work request of the current message, and ends the stream in the middle of it.
func (q *QP) fault(why string) {
	q.fails(q.msg.slot, transport.LocProtErr, why)
	q.msg = outgoing{}
	q.term, q.dying = iwarp.Terminate{Code: iwarp.LocalCatastrophic}, true
	q.end(transport.LocProtErr, why)
}

// read adds n bytes of memory that the peer reads to a segment. The rights are checked for each segment, since the
// program may have withdrawn them. Memory of a window is copied. Otherwise a peer that does not read the stream would
// keep the window in use.
func (q *QP) read(s *segment, m *outgoing, n int) bool {
	if n == 0 {
		return true
	}
	d := &q.answers[0].read
	b, w, r := q.region(d.SrcSTag, d.SrcTO+uint64(m.pos), uint64(n), mr.RemoteRead, readCodes)
	if r == nil {
		switch {
		case w == nil && !q.par.CRC:
			s.body = append(s.body, b)
		case !q.copied(s, b, n):
			r = &refusal{code: iwarp.ReadSTag, why: mr.ErrUnmapped.Error()}
		}
		w.Release()
	}
	if r == nil {
		return true
	}
	head := make(iwarp.Segment, iwarp.UntaggedLen)
	iwarp.PutUntagged(head, iwarp.ReadRequest, true, 0, q.answers[0].msn, 0)
	d.Put(q.small[:])
	q.got = iwarp.ReadRequestLen
	q.die(r, head, len(head)+iwarp.ReadRequestLen)
	return false
}

// OnFault is called when the stream could not read the memory of Vectors, because the program has unmapped it. The
// stream ends without a Terminate: the position in it is lost.
func (q *QP) OnFault() { q.end(transport.WRFlushErr, mr.ErrUnmapped.Error()) }

// truncate drops what was built and not begun to be sent. With a Terminate to come, a segment that was sent in part is
// completed from a copy, since its memory belongs to the program again.
func (q *QP) truncate() {
	q.msg = outgoing{}
	keep := 0
	if q.dying && q.skip > 0 {
		keep = 1
		s := q.out[0]
		var own []byte
		for _, b := range s.body {
			at := len(own)
			own = append(own, make([]byte, len(b))...)
			mr.Copy(own[at:], b) // bytes that cannot be read are sent as 0
		}
		s.body = append(s.body[:0], own)
	}
	clear(q.out[keep:])
	q.out = q.out[:keep]
	if keep == 0 {
		q.skip = 0
	}
	q.truncated()
	if !q.dying {
		return
	}
	q.Counters.TxTerminates++
	s := q.allocate()
	iwarp.PutUntagged(s.head[iwarp.LengthLen:], iwarp.TerminateOp, true, 0, 1, 0)
	s.n = len(q.term.Append(s.head[:headLen]))
	q.prefix(s, s.n-iwarp.LengthLen)
	q.seal(s)
}

// Keep copies what the stream has not taken, so that no memory of the program is named by Vectors any more. A caller
// that lets others run before the stream has room again calls it: a region that is deregistered meanwhile must not be
// sent.
func (q *QP) Keep() {
	for _, s := range q.out {
		if len(s.body) == 0 || len(s.body) == 1 && len(s.buf) > 0 && &s.body[0][0] == &s.buf[0] {
			continue
		}
		n := 0
		for _, b := range s.body {
			n += len(b)
		}
		s.buf = loan(n)
		for _, b := range s.body {
			at := len(s.buf)
			s.buf = s.buf[:at+len(b)]
			if _, ok := mr.Copy(s.buf[at:], b); !ok {
				q.OnFault()
				return
			}
		}
		s.body = append(s.body[:0], s.buf)
	}
}

// Draining reports that a bind waits until the window has no user. The caller tries again soon, with Vectors.
func (q *QP) Draining() bool {
	if q.state != transport.RTS || q.stuck || q.head != q.cur || q.cur == q.SQ.Posted() {
		return false
	}
	w := q.SQ.At(q.cur)
	return w.Op == transport.OpBindMW && q.entry(q.cur).built
}
