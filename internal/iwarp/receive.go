package iwarp

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// part is where in an FPDU the stream stands.
type part uint8

const (
	inHeader  part = iota // length and DDP header
	inPayload             // the header is valid
	inTrailer             // pad and CRC
)

// headLen is the room for a length and the longest DDP header.
const headLen = iwarp.LengthLen + iwarp.UntaggedLen

// receiver is the receiving half of a QP: it splits the stream into FPDUs.
//
// With CRCs an FPDU is collected and checked before any of it takes effect: a damaged header would name memory that
// the peer did not mean. Without CRCs payload goes from the stream to its place, in pieces as they arrive.
type receiver struct {
	whole []byte // with CRCs: the FPDU as far as it has arrived

	at    part
	frame [headLen]byte // without CRCs: length and header
	have  int           // bytes of frame
	seg   iwarp.Segment // the header of the current segment
	size  int           // the length of its ULPDU
	left  int           // bytes of the payload, then of the trailer, that are still to come
	lent  *mr.Window    // of the memory that Direct has returned
	place placement
	small [64]byte // the data of a message with a header of its own
	got   int      // bytes in it

	msn [iwarp.Queues]uint32 // the number of the message expected next
	message
	writing bool     // the last segment of a WRITE has not come
	asked   int      // READs and atomics of the peer without a complete response
	answers []answer // the responses to send, oldest first
}

func (q *QP) initReceiver() {
	for i := range q.msn {
		q.msn[i] = 1
	}
}

// between reports whether the stream stands between two FPDUs and two messages.
func (q *QP) between() bool {
	if q.at != inHeader || q.have > 0 || len(q.whole) > 0 || q.message.open || q.writing {
		return false
	}
	return len(q.waiting) == 0 || q.waiting[0].got == 0 // else a Read Response is not complete
}

// Feed takes what the stream has delivered. After the end of the stream it is ignored.
func (q *QP) Feed(b []byte) {
	for len(b) > 0 && q.state == transport.RTS {
		if q.par.CRC {
			b = q.collect(b)
		} else {
			b = q.step(b)
		}
	}
}

// collect takes bytes of a stream with CRCs, up to the end of an FPDU, and returns the rest. An FPDU that has arrived
// in one piece is not copied.
func (q *QP) collect(b []byte) []byte {
	if len(q.whole) == 0 && len(b) >= iwarp.LengthLen {
		n := int(binary.BigEndian.Uint16(b))
		if !q.checkLength(n) {
			return nil
		}
		if n = iwarp.FPDULen(n); len(b) >= n {
			q.take(b[:n])
			return b[n:]
		}
	}
	if q.whole == nil {
		q.whole = loan(iwarp.LengthLen)
	}
	if have := len(q.whole); have < iwarp.LengthLen {
		n := min(iwarp.LengthLen-have, len(b))
		if q.whole, b = append(q.whole, b[:n]...), b[n:]; len(q.whole) < iwarp.LengthLen {
			return b
		}
	}
	n := int(binary.BigEndian.Uint16(q.whole))
	if !q.checkLength(n) {
		return nil
	}
	n = iwarp.FPDULen(n)
	if cap(q.whole) < n {
		long := append(loan(n), q.whole...)
		unloan(q.whole)
		q.whole = long
	}
	k := min(n-len(q.whole), len(b))
	q.whole, b = append(q.whole, b[:k]...), b[k:]
	q.takeWhole()
	return b
}

// missing returns the room for the bytes of the collected FPDU that have not arrived, nil if its length has not.
func (q *QP) missing() []byte {
	if len(q.whole) < iwarp.LengthLen {
		return nil
	}
	return q.whole[len(q.whole):iwarp.FPDULen(int(binary.BigEndian.Uint16(q.whole)))]
}

// takeWhole takes the collected FPDU if it is complete.
func (q *QP) takeWhole() {
	if len(q.missing()) == 0 {
		q.take(q.whole)
		q.whole = unloan(q.whole)
	}
}

func (q *QP) checkLength(n int) bool {
	if n < iwarp.TaggedLen || n > iwarp.MaxULPDU {
		q.die(refuse(iwarp.MPALength), nil, 0)
		return false
	}
	return true
}

// take takes a complete FPDU with a CRC.
func (q *QP) take(f iwarp.FPDU) {
	if !f.Intact() {
		q.die(refuse(iwarp.MPACRC), nil, 0)
		return
	}
	s := iwarp.Segment(f.ULPDU())
	q.size = len(s)
	if r := q.header(s); r != nil {
		q.die(r, s[:min(len(s), iwarp.UntaggedLen)], len(s))
		return
	}
	r := q.payload(s.Payload())
	if r == nil {
		r = q.finish()
	}
	if r != nil {
		q.die(r, q.seg, len(s))
	}
}

// step takes bytes of a stream without CRCs, up to the end of a part of an FPDU, and returns the rest.
func (q *QP) step(b []byte) []byte {
	switch q.at {
	case inHeader:
		return q.stepHeader(b)
	case inPayload:
		n := min(q.left, len(b))
		q.left -= n
		if r := q.payload(b[:n]); r != nil {
			q.die(r, q.seg, q.size)
			return nil
		}
		q.endPayload()
		return b[n:]
	default:
		n := min(q.left, len(b))
		if q.left -= n; q.left == 0 {
			q.at, q.have = inHeader, 0
			if r := q.finish(); r != nil {
				q.die(r, q.seg, q.size)
			}
		}
		return b[n:]
	}
}

// stepHeader collects length and header: 4 bytes show how long the header is.
func (q *QP) stepHeader(b []byte) []byte {
	need := iwarp.LengthLen + iwarp.ControlLen
	if q.have >= need {
		need = iwarp.LengthLen + iwarp.Segment(q.frame[iwarp.LengthLen:]).HeaderLen()
	}
	n := min(need-q.have, len(b))
	copy(q.frame[q.have:need], b[:n])
	q.have += n
	b = b[n:]
	if q.have == need && need > iwarp.LengthLen+iwarp.ControlLen {
		q.enter(iwarp.Segment(q.frame[iwarp.LengthLen:need]))
	} else if q.have == need {
		q.size = int(binary.BigEndian.Uint16(q.frame[:]))
		s := iwarp.Segment(q.frame[iwarp.LengthLen:])
		if q.checkLength(q.size) && q.size < s.HeaderLen() {
			q.die(refuse(iwarp.MPALength), nil, 0)
		}
	}
	return b
}

// enter begins the payload of a segment without CRC.
func (q *QP) enter(s iwarp.Segment) {
	if r := q.header(s); r != nil {
		q.die(r, s, q.size)
		return
	}
	q.at, q.left = inPayload, q.size-len(s)
	q.endPayload()
}

// endPayload begins the trailer if all of the payload has come. The segment takes effect after the trailer.
func (q *QP) endPayload() {
	if q.left == 0 {
		q.at, q.left = inTrailer, iwarp.Pad(q.size)+iwarp.CRCLen
	}
}

// Direct returns memory into which the next bytes of the stream may be read without a copy, or nil: the program's, or
// with CRCs the rest of the FPDU. Placed must follow at once, with the number of bytes read.
func (q *QP) Direct() []byte {
	switch {
	case q.state != transport.RTS:
		return nil
	case q.par.CRC:
		return q.missing()
	case q.at != inPayload:
		return nil
	}
	b, w, r := q.target(q.left)
	if r != nil {
		return nil // Feed will find it again
	}
	q.lent = w
	return b
}

// Placed reports that n bytes, at least 1, were read into the memory that Direct returned. 0 reports that none were.
func (q *QP) Placed(n int) {
	q.lent.Release()
	q.lent = nil
	switch {
	case n == 0:
		return
	case q.par.CRC:
		q.whole = q.whole[:len(q.whole)+n]
		q.takeWhole()
		return
	}
	q.advance(n)
	q.left -= n
	q.endPayload()
}
