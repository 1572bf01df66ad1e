package explain

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// iWARP: messages of RDMAP in TCP streams. A stream is followed from its begin, or from a start-up frame of MPA on. A
// capture of both ends has each piece twice, as one with retransmissions: pieces that were seen are skipped.

// part is a piece of a TCP stream.
type part struct {
	from, to netip.AddrPort
	seq      uint32
	syn      bool
	fin, rst bool
	data     []byte
}

// direction is one direction of a TCP connection.
type direction struct{ from, to netip.AddrPort }

// phase is what a direction of a stream is known to be.
type phase uint8

const (
	unknown  phase = iota // its begin was not seen
	starting              // before the start-up frame
	framed                // FPDUs
	foreign               // not MPA, or not readable any more
)

// stream is one direction of a connection.
type stream struct {
	phase   phase
	next    uint32 // the number of the byte to come
	buf     []byte // bytes that are not complete yet
	later   []part // pieces behind a gap
	crc     bool
	running [iwarp.Queues + 1]*step // messages whose last segment has not been seen: by queue, then tagged ones
	over    bool                    // its end was seen
}

const (
	// mostLater bounds the pieces behind a gap.
	mostLater = 256
	// mostHeld bounds the bytes of all streams that wait for others. Beyond it all are forgotten.
	mostHeld = 64 << 20
)

// stream adds a piece of a TCP stream. It reports whether that is one of iWARP.
func (l *ladder) stream(p *packet) bool {
	t := p.tcp
	d := direction{t.from, t.to}
	s := l.streams[d]
	if t.syn || s == nil {
		if len(l.streams) > mostFlows {
			clear(l.streams)
			l.held = 0
		} else if s != nil {
			l.forget(s)
		}
		s = &stream{}
		l.streams[d] = s
	}
	switch {
	case t.syn:
		s.phase, s.next = starting, t.seq+1
		return true
	case s.phase == unknown && bytes.HasPrefix(t.data, []byte("MPA ID Re")):
		s.phase, s.next = starting, t.seq
	case s.phase == unknown || s.phase == foreign:
		return false
	}
	if l.begun.IsZero() {
		l.begun = p.at
	}
	l.take(s, p, *t)
	for again := true; again; {
		again = false
		if s.phase == foreign {
			l.forget(s)
		}
		for i, x := range s.later {
			if int32(x.seq-s.next) <= 0 {
				s.later = append(s.later[:i], s.later[i+1:]...)
				l.held -= len(x.data)
				l.take(s, p, x)
				again = true
				break
			}
		}
	}
	if l.held > mostHeld {
		clear(l.streams)
		l.held = 0
	}
	return s.phase != foreign
}

// take takes a piece at its place.
func (l *ladder) take(s *stream, p *packet, t part) {
	switch ahead := int32(t.seq - s.next); {
	case t.rst:
		l.finish(s, p, "the connection is cut")
		return
	case ahead > 0 && len(s.later) < mostLater:
		t.data = bytes.Clone(t.data)
		l.held += len(t.data)
		s.later = append(s.later, t)
		return
	case ahead > 0:
		l.line(p, "bytes of the stream are missing in the capture; the rest of it is not explained")
		s.phase = foreign
		return
	case -int64(ahead) <= int64(len(t.data)):
		t.data = t.data[-ahead:]
		s.next += uint32(len(t.data))
		s.buf = append(s.buf, t.data...)
		l.held += len(t.data)
	case len(t.data) > 0 || t.seq+1 == s.next:
		return // it was seen
	}
	if len(t.data) > 0 {
		n := len(s.buf)
		l.read(s, p)
		l.held -= n - len(s.buf)
	}
	if t.fin {
		l.finish(s, p, "end of the stream")
	}
}

// forget drops the bytes of a stream that wait for others.
func (l *ladder) forget(s *stream) {
	l.held -= len(s.buf)
	for _, x := range s.later {
		l.held -= len(x.data)
	}
	s.buf, s.later = nil, nil
}

// finish ends a direction.
func (l *ladder) finish(s *stream, p *packet, text string) {
	if !s.over && s.phase == framed {
		l.line(p, text)
	}
	s.over = true
	s.next++
}

// read takes the complete frames from a stream.
func (l *ladder) read(s *stream, p *packet) {
	for len(s.buf) > 0 && s.phase != foreign {
		n := 0
		if s.phase == starting {
			n = l.start(s, p)
		} else {
			n = l.fpdu(s, p)
		}
		if n == 0 {
			return
		}
		s.buf = s.buf[n:]
	}
	s.buf = nil
}

// start reads a start-up frame, and returns its length; 0 if it is not complete.
func (l *ladder) start(s *stream, p *packet) int {
	const reply = "MPA ID Rep"
	f, n, err := iwarp.ParseStart(s.buf, bytes.HasPrefix(s.buf, []byte(reply)))
	switch {
	case errors.Is(err, iwarp.ErrShort):
		return 0
	case err != nil:
		s.phase = foreign
		return 0
	}
	s.phase, s.crc = framed, f.CRC
	if back := l.streams[direction{p.tcp.to, p.tcp.from}]; back != nil && f.Reply {
		back.crc = f.CRC
	}
	text := "MPA request"
	switch {
	case f.Reject:
		text = "MPA reply: rejected"
	case f.Reply:
		text = "MPA reply"
	}
	text += fmt.Sprintf(", revision %d", f.Rev)
	if f.CRC {
		text += ", CRCs"
	}
	if f.Markers {
		text += ", markers"
	}
	if f.Enhanced && !f.Reject {
		text += fmt.Sprintf(", IRD %d, ORD %d", f.IRD, f.ORD)
	}
	if f.PeerToPeer {
		text += ", peer-to-peer"
	}
	if len(f.Private) > 0 {
		text += fmt.Sprintf(", %d bytes of private data", len(f.Private))
	}
	l.line(p, text)
	return n
}

// fpdu reads an FPDU, and returns its length; 0 if it is not complete.
func (l *ladder) fpdu(s *stream, p *packet) int {
	f, err := iwarp.ParseFPDU(s.buf)
	if errors.Is(err, iwarp.ErrShort) {
		return 0
	}
	if err != nil {
		l.line(p, fmt.Sprintf("malformed FPDU: its length is %d; the rest of the stream is not explained",
			uint16(s.buf[0])<<8|uint16(s.buf[1])), "malformed")
		s.phase = foreign
		return 0
	}
	l.fpdus++
	seg := iwarp.Segment(f.ULPDU())
	var notes []string
	if s.crc && !f.Intact() {
		notes = append(notes, "wrong CRC: damaged")
	}
	if code, ok := iwarp.Check(seg, len(seg)); !ok {
		l.line(p, "malformed segment", append(notes, code.String())...)
		return len(f)
	}
	l.segment(s, p, seg, notes)
	return len(f)
}

// segment adds a segment to its message.
func (l *ladder) segment(s *stream, p *packet, seg iwarp.Segment, notes []string) {
	at := &s.running[iwarp.Queues]
	if !seg.Tagged() {
		at = &s.running[seg.QN()]
	}
	if x := *at; x != nil && !x.final && len(notes) == 0 {
		x.packets++
		x.bytes += len(seg.Payload())
		x.open = !seg.Last()
	} else {
		x = l.line(p, describeSegment(seg), notes...)
		x.bytes, x.open = len(seg.Payload()), !seg.Last()
		x.data = seg.Opcode().Info().Len == 0 && seg.Opcode() != iwarp.TerminateOp
		*at = x
		if seg.Opcode() == iwarp.TerminateOp {
			l.terminates++
		}
	}
	if seg.Last() {
		*at = nil
	}
}

// line adds a step.
func (l *ladder) line(p *packet, text string, notes ...string) *step {
	t := p.tcp
	s := &step{at: p.at.Sub(l.begun), src: p.src, dst: p.dst, qpn: uint32(t.to.Port()), text: text, packets: 1,
		notes: notes, own: len(notes), ends: l.endsOf(p, uint32(t.to.Port())),
		ports: fmt.Sprintf("port %d > %d", t.from.Port(), t.to.Port())}
	l.steps = append(l.steps, s)
	l.messages++
	return s
}

// describeSegment is the text of a message with its first segment.
func describeSegment(seg iwarp.Segment) string {
	op, data := seg.Opcode(), seg.Payload()
	if in := op.Info(); len(data) < in.Len {
		return op.String() + ", too short"
	}
	switch op {
	case iwarp.Write:
		if len(data) == 0 && seg.Last() {
			return "WRITE"
		}
		return fmt.Sprintf("WRITE at 0x%x, STag 0x%x", seg.TO(), seg.STag())
	case iwarp.ReadRequest:
		r := iwarp.ParseRead(data)
		return fmt.Sprintf("READ of %d bytes at 0x%x, STag 0x%x, request %d", r.Size, r.SrcTO, r.SrcSTag, seg.MSN())
	case iwarp.ReadResponse:
		return "answer to the READ"
	case iwarp.AtomicRequest:
		a := iwarp.ParseAtomic(data)
		kind := "FETCH & ADD"
		if a.Op == iwarp.CmpSwap {
			kind = "COMPARE & SWAP"
		}
		return fmt.Sprintf("%s at 0x%x, STag 0x%x, request %d", kind, a.TO, a.STag, seg.MSN())
	case iwarp.AtomicResponse:
		_, was := iwarp.ParseAtomicResponse(data)
		return fmt.Sprintf("answer to the atomic, 0x%x was there", was)
	case iwarp.Immediate, iwarp.ImmediateSE:
		imm, n := iwarp.ParseImmediate(data)
		return fmt.Sprintf("immediate 0x%x of a WRITE of %d bytes, message %d", imm, n, seg.MSN())
	case iwarp.TerminateOp:
		return "TERMINATE: " + reason(data)
	}
	text := strings.Replace(op.String(), "Send", "SEND", 1) + fmt.Sprintf(", message %d", seg.MSN())
	if op.Info().Inv {
		text += fmt.Sprintf(", invalidates STag 0x%x", seg.InvSTag())
	}
	return text
}

// reason is why a Terminate was sent.
func reason(data []byte) string {
	t, err := iwarp.ParseTerminate(data)
	if err != nil {
		return "it is too short"
	}
	text := t.Code.String()
	if t.DDP == nil {
		return text
	}
	s := iwarp.Segment(t.DDP)
	if s.Tagged() {
		return fmt.Sprintf("%s, because of a %v to 0x%x, STag 0x%x", text, s.Opcode(), s.TO(), s.STag())
	}
	return fmt.Sprintf("%s, because of a %v, number %d", text, s.Opcode(), s.MSN())
}
