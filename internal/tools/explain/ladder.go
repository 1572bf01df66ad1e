package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/printable"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A step is one line of the ladder: a message of one or more packets, a response, or a management datagram.
type step struct {
	at       time.Duration // since the first packet
	src, dst netip.Addr
	qpn      uint32 // destination
	text     string
	packets  int
	notes    []string // remarks on retransmissions, errors and drops
	own      int      // how many notes come from its own capture
	bytes    int
	op       wire.Opcode // of the first packet
	first    uint32      // PSN of the first packet
	last     uint32
	open     bool // the last packet has not been seen
	final    bool // further packets do not belong to it
	back     bool // the arrow points to the left; set when the step is printed
	ends     *ends
	ports    string // of a stream: the TCP ports
	data     bool   // of a stream: the line has the length
}

// ends are the processes of a flow, as far as captures name them.
type ends struct{ from, to string }

// name returns the address, of two processes on one address with the process.
func (s *step) name(a netip.Addr, right bool) string {
	if s.src != s.dst || s.ends == nil || s.ends.from == "" && s.ends.to == "" {
		return a.String()
	}
	process := map[bool]string{false: s.ends.from, true: s.ends.to}[right != s.back]
	if process == "" { // a capture of one end, as VERBENA_PCAP makes it
		return a.String() + " (another process)"
	}
	return a.String() + " " + printable.Text(process)
}

// endsOf returns the processes of a packet's flow, with what the packet adds. Within one address each packet to QP 1
// has its own, as all processes there receive them.
func (l *ladder) endsOf(p *packet, qpn uint32) *ends {
	f := flow{p.src, p.dst, qpn}
	e := l.ends[f]
	if e == nil {
		if len(l.ends) > mostFlows {
			clear(l.ends)
		}
		e = &ends{}
		if p.src != p.dst || qpn != wire.GSIQPN || p.tcp != nil {
			l.ends[f] = e
		}
	}
	e.learn(p)
	return e
}

// learn adds what a packet says of the processes.
func (e *ends) learn(p *packet) {
	if p.outbound {
		e.from = p.process
	}
	if p.inbound {
		e.to = p.process
	}
}

// flow is the direction to a QP.
type flow struct {
	src, dst netip.Addr
	qpn      uint32
}

// ladder combines packets into steps.
type ladder struct {
	steps   []*step // the newest
	emitted int     // how many of steps have been passed on
	begun   time.Time
	running map[flow]*step  // messages whose last packet has not been seen
	highest map[flow]uint32 // the PSN after the last new request
	ends    map[flow]*ends
	recent  []*packet // to detect the second sight of a packet
	streams map[direction]*stream
	held    int // bytes that wait in streams

	packets  int
	messages int // steps since the beginning
	naks     int
	rnrs     int
	again    int

	fpdus      int
	terminates int
}

func newLadder() *ladder {
	return &ladder{running: make(map[flow]*step), highest: make(map[flow]uint32), ends: make(map[flow]*ends),
		streams: make(map[direction]*stream)}
}

// seenRecently is the largest number of packets between the two sights of one packet when both ends are
// captured.
const seenRecently = 256

// twice reports whether the other end's capture already has the packet. It adds the receiver's comment to
// the step.
func (l *ladder) twice(p *packet) bool {
	if !p.inbound && !p.outbound {
		return false
	}
	for i, q := range l.recent {
		if q.inbound != p.inbound && q.src == p.src && q.dst == p.dst && string(q.data) == string(p.data) {
			l.recent = append(l.recent[:i], l.recent[i+1:]...)
			if q.ends != nil {
				q.ends.learn(p)
			}
			if _, why, ok := strings.Cut(p.comment, "; "); ok && len(l.steps) > 0 && p.inbound {
				l.note(p, printable.Text(why))
			}
			return true
		}
	}
	if len(l.recent) == seenRecently {
		l.recent = l.recent[1:]
	}
	l.recent = append(l.recent, p)
	return false
}

// note adds a comment to the step of a packet that was seen before.
func (l *ladder) note(p *packet, why string) {
	h := p.data.BTH()
	for i := len(l.steps) - 1; i >= max(0, len(l.steps)-seenRecently); i-- {
		s := l.steps[i]
		if s.qpn == h.DestQPN() && s.src == p.src && s.first == h.PSN() {
			s.notes = append(s.notes, "there: "+why)
			return
		}
	}
}

// add adds a packet.
func (l *ladder) add(p *packet) {
	p.ends = l.endsOf(p, p.data.BTH().DestQPN())
	if l.twice(p) {
		return
	}
	if l.begun.IsZero() {
		l.begun = p.at
	}
	l.packets++
	l.bound()
	h := p.data.BTH()
	f := flow{p.src, p.dst, h.DestQPN()}
	op := h.Opcode()
	notes := l.notes(p, f)
	l.advance(f, h)
	if s := l.running[f]; s != nil && !s.final && !op.Is(wire.Start) && h.PSN() == (s.last+1)&0xffffff &&
		op.Is(wire.Response) == s.op.Is(wire.Response) &&
		slices.Equal(notes, s.notes[:s.own]) {
		s.packets++
		s.bytes += len(p.data.Payload())
		s.last = h.PSN()
		if op.Is(wire.End) {
			s.open = false
			delete(l.running, f)
		}
		return
	}
	s := &step{
		at: p.at.Sub(l.begun), src: p.src, dst: p.dst, qpn: h.DestQPN(), op: op, first: h.PSN(), last: h.PSN(), packets: 1,
		bytes: len(p.data.Payload()), notes: notes, own: len(notes), ends: p.ends, open: op.Is(wire.HasData) &&
			!op.Is(wire.End),
	}
	s.text = l.describe(p)
	if s.open {
		l.running[f] = s
	} else {
		delete(l.running, f)
	}
	l.steps = append(l.steps, s)
	l.messages++
}

// advance records the highest request PSN of a flow. Responses carry the PSNs of the other direction's
// requests.
func (l *ladder) advance(f flow, h wire.BTH) {
	op := h.Opcode()
	if op.Is(wire.Response) || op.Operation() == wire.Ack {
		return
	}
	if old, ok := l.highest[f]; !ok || (h.PSN()-old)&0xffffff < 1<<23 {
		l.highest[f] = (h.PSN() + 1) & 0xffffff
	}
}

// notes returns the remarks on a packet and counts them.
func (l *ladder) notes(p *packet, f flow) (notes []string) {
	h := p.data.BTH()
	if _, why, ok := strings.Cut(p.comment, "; "); ok {
		notes = append(notes, printable.Text(why))
		if strings.HasPrefix(why, "sent again") {
			l.again++
		}
	} else if next, ok := l.highest[f]; ok && reliable(h.Opcode()) && !h.Opcode().Is(wire.Response) &&
		h.Opcode().Operation() != wire.Ack {
		if back := (next - 1 - h.PSN()) & 0xffffff; back < 1<<23 && p.comment == "" {
			notes = append(notes, "sent again")
			l.again++
		}
	}
	if p.badICRC {
		notes = append(notes, "wrong ICRC: damaged, receivers drop it")
	}
	return notes
}

func reliable(op wire.Opcode) bool {
	t := op.Transport()
	return t == wire.ReadRequest.Transport() || t == wire.Opcode(0xa0)
}

// describe returns the text of a packet.
func (l *ladder) describe(p *packet) string {
	h := p.data.BTH()
	op := h.Opcode()
	info := op.Info()
	if h.DestQPN() == wire.GSIQPN {
		return management(p)
	}
	if info.AETH != 0 {
		a := p.data.AETH()
		switch {
		case a.IsRNR():
			l.rnrs++
			return fmt.Sprintf("RNR NAK: no receive posted, try PSN %d again after %v", h.PSN(), transport.RNRDelay(a.Timer()))
		case !a.IsAck():
			l.naks++
			return fmt.Sprintf("NAK %s: PSN %d", nakName(a.Syndrome()), h.PSN())
		case op.Operation() == wire.Ack:
			return fmt.Sprintf("ACK up to PSN %d, message %d", h.PSN(), a.MSN())
		}
	}
	name := kindOf(op)
	if info.RETH != 0 {
		r := p.data.RETH()
		name += fmt.Sprintf(" of %d bytes at 0x%x, rkey 0x%x", r.DMALen(), r.Addr(), r.RKey())
	}
	if info.AtomicETH != 0 {
		a := p.data.AtomicETH()
		name += fmt.Sprintf(" at 0x%x, rkey 0x%x", a.Addr(), a.RKey())
		if op.Operation() == wire.FetchAdd {
			name += fmt.Sprintf(", add 0x%x", a.SwapAdd())
		} else {
			name += fmt.Sprintf(", compare 0x%x, swap 0x%x", a.Compare(), a.SwapAdd())
		}
	}
	if info.AtomicAck != 0 {
		name += fmt.Sprintf(", 0x%x was there", p.data.AtomicAck())
	}
	if info.IETH != 0 {
		name += fmt.Sprintf(", invalidates rkey 0x%x", p.data.IETH())
	}
	if info.Imm != 0 {
		name += fmt.Sprintf(", immediate 0x%x", p.data.Imm())
	}
	return name
}

// kindOf returns the operation of an opcode without first, middle or last.
func kindOf(op wire.Opcode) string {
	switch {
	case op.Is(wire.IsSend):
		return "SEND"
	case op.Is(wire.IsWrite):
		return "WRITE"
	case op.Is(wire.IsRead):
		return "READ"
	case op.Operation() == wire.CompareSwap:
		return "COMPARE & SWAP"
	case op.Operation() == wire.FetchAdd:
		return "FETCH & ADD"
	case op.Operation() == wire.AtomicAck:
		return "answer to the atomic"
	case op.Is(wire.Response):
		return "answer to the READ"
	}
	return op.String()
}

func nakName(syndrome uint8) string {
	switch syndrome {
	case wire.SynSeqErr:
		return "PSN sequence error (a packet is missing)"
	case wire.SynInvReq:
		return "invalid request"
	case wire.SynAccess:
		return "remote access error"
	case wire.SynOpErr:
		return "remote operational error"
	}
	return fmt.Sprintf("0x%02x", syndrome)
}

// management returns the text of a connection management datagram.
func management(p *packet) string {
	if p.cut {
		return "management datagram, of which only the beginning was captured"
	}
	if m, err := wire.ParseMAD(p.data.Payload()); err == nil {
		if c, err := cmmsg.Parse(m); err == nil {
			return "CM " + c.String()
		}
	}
	return "management datagram"
}

// target is where the step's message goes.
func (s *step) target() string {
	if s.ports != "" {
		return s.ports
	}
	return fmt.Sprintf("QP 0x%06x", s.qpn)
}

// line returns the step's text with its packets.
func (s *step) line() string {
	t := s.text
	if s.ports != "" {
		if s.data {
			t += fmt.Sprintf(", %d bytes", s.bytes)
		}
		if s.packets > 1 {
			t += fmt.Sprintf(" in %d segments", s.packets)
		}
		if s.open {
			t += ", unfinished"
		}
		return t
	}
	if s.op.Is(wire.HasData) && s.qpn != wire.GSIQPN {
		t += fmt.Sprintf(", %d bytes", s.bytes)
	}
	if s.packets > 1 {
		t += fmt.Sprintf(" in %d packets, PSN %d to %d", s.packets, s.first, s.last)
	} else if s.op.Operation() != wire.Ack && s.qpn != wire.GSIQPN {
		t += fmt.Sprintf(", PSN %d", s.first)
	}
	if s.open {
		t += ", unfinished"
	}
	return t
}
