package iwarp

import "github.com/verbena-rdma/verbena/internal/wire/iwarp"

// Signals are WRITEs without payload. By RFC 5040 the receiver ignores STag and offset of such a WRITE, so a peer that
// does not know signals, such as siw, ignores them, and programs do not notice them.

// A Signal is a message between the layers of both ends that own the stream.
type Signal struct {
	Kind SignalKind
	Arg  uint64
}

// SignalKind is the STag of a signal.
type SignalKind uint32

const (
	// Offer: the sender listens for a peer that knows the token Arg (decision 44).
	Offer SignalKind = 0x7672_6201
	// Switch: the bytes that follow in this direction come by the way that was agreed with the token Arg.
	Switch SignalKind = 0x7672_6202
)

// isOwn reports whether an STag is that of an empty WRITE which the protocol sends by itself.
func isOwn(stag uint32) bool {
	return stag == ownSTag || SignalKind(stag) == Offer || SignalKind(stag) == Switch
}

// signals are the signals of a QP.
type signals struct {
	toSend   []Signal // oldest first
	received Signal   // the last one, until TakeSignal
	switchAt uint64   // the end of a Switch that was built, in bytes of the stream; 0: there is none
}

// Signal sends a signal after the message that is being sent. A responder may send nothing before it has received a
// segment: the signal waits.
func (q *QP) Signal(s Signal) { q.toSend = append(q.toSend, s) }

// TakeSignal returns the last signal that the peer has sent since the last call; Kind 0: none.
func (q *QP) TakeSignal() (s Signal) {
	s, q.received = q.received, Signal{}
	return s
}

// BeforeSwitch returns how many bytes of Vectors still belong before the end of a Switch; ok is false if none is being
// sent.
func (q *QP) BeforeSwitch() (n uint64, ok bool) { return q.switchAt - q.taken, q.switchAt > 0 }

// Switched ends a Switch whose last byte the stream has taken.
func (q *QP) Switched() { q.switchAt = 0 }

// beginSignal begins the oldest signal.
func (q *QP) beginSignal() bool {
	if len(q.toSend) == 0 {
		return false
	}
	s := q.toSend[0]
	q.toSend = q.toSend[1:]
	q.open(outgoing{kind: plain, op: iwarp.Write, stag: uint32(s.Kind), to: s.Arg})
	return true
}

// builtSegment notes the end of a Switch.
func (q *QP) builtSegment(m *outgoing) {
	if m.op == iwarp.Write && m.kind == plain && SignalKind(m.stag) == Switch {
		q.switchAt = q.built
	}
}

// truncated forgets a Switch that is not sent any more: of the segments that were built only the first one is left.
func (q *QP) truncated() {
	if len(q.out) == 0 || q.switchAt != q.taken+uint64(q.out[0].len-q.skip) {
		q.switchAt = 0
	}
}

// onEmptyWrite notes a signal.
func (q *QP) onEmptyWrite(s iwarp.Segment) {
	switch k := SignalKind(s.STag()); k {
	case Offer, Switch:
		q.received = Signal{k, s.TO()}
	}
}
