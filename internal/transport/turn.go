package transport

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// The SRQ that a request of an XRC connection names may belong to another process of the domain. That process executes
// the request. An XRC_RECV QP is at home in the process that created it, where its packets arrive. Every other process
// with an SRQ that the peer has named has a guest of it: a QP of the same number and attributes. One of them has the
// turn: the expected PSN, and the duty to answer. The home forwards packets to it. The first packet of a message for
// an SRQ of another process moves the turn: from a guest to the home, and from the home to a guest. A repeated READ,
// atomic, FLUSH or ATOMIC WRITE is answered where it was executed, since only that process has its response.
//
// Packets may be lost between processes, as on any link. A Turn may not.

// A Relay is how an XRC_RECV QP reaches itself in the other processes of the domain: that of the home leads to its
// guests, that of a guest to the home. It is called with the shard held, copies packets, and does not block.
type Relay interface {
	// Elsewhere reports whether SRQ srqn is one of another process.
	Elsewhere(srqn uint32) bool
	// Pass moves the turn to the process of SRQ srqn, or to the home, together with the packet that names the SRQ. It
	// returns false if there is no such process.
	Pass(srqn uint32, t Turn, p *link.RxPacket) bool
	// Forward sends a packet to the process that has the turn, or to the home, which knows it.
	Forward(p *link.RxPacket)
	// Repeat sends a request that was executed, but not here, to every process that may have done it.
	Repeat(p *link.RxPacket)
	// Aged tells the others that the PSN epsn is expected; see OnAged.
	Aged(epsn uint32)
	// End ends the guests: the QP is in ERR, and the receive that a guest has taken is flushed, or in RESET.
	End(flush bool)
}

// A Turn is the state of a responder between two messages.
type Turn struct {
	epsn, msn   uint32
	gapReported bool
	lost        uint32
	tail        tail
}

// TurnLen is the length of an encoded Turn in bytes.
const TurnLen = 23

// Bits of byte 20 of an encoded Turn.
const (
	turnGap = 1 << iota
	turnAcked
)

// Append appends the encoding.
func (t *Turn) Append(b []byte) []byte {
	for _, v := range [...]uint32{t.epsn, t.msn, t.lost, t.tail.seq, t.tail.msn} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	var flags byte
	if t.gapReported {
		flags |= turnGap
	}
	if t.tail.acked {
		flags |= turnAcked
	}
	return append(b, flags, byte(t.tail.kind), t.tail.nak)
}

// ParseTurn decodes a Turn. It reports whether it is one that a responder passes on.
func ParseTurn(b []byte) (t Turn, ok bool) {
	if len(b) != TurnLen {
		return t, false
	}
	for i, v := range [...]*uint32{&t.epsn, &t.msn, &t.lost, &t.tail.seq, &t.tail.msn} {
		if *v = binary.BigEndian.Uint32(b[4*i:]); *v > psn.Mask {
			return t, false
		}
	}
	flags := b[20]
	t.gapReported, t.tail.acked = flags&turnGap != 0, flags&turnAcked != 0
	t.tail.kind, t.tail.nak = tailKind(b[21]), b[22]
	return t, t.tail.kind <= tailSeqNAK
}

// pass moves the turn to the process of SRQ num, whose message begins with p. Responses leave first: they precede the
// next acknowledgement.
func (r *responder) pass(num uint32, p *link.RxPacket) {
	if r.todo != r.head {
		r.gapReported, r.lost = true, r.epsn
		r.nakSequence()
		return
	}
	r.established()
	r.forgetNotReady()
	t := Turn{r.epsn, r.msn, r.gapReported, r.lost, r.tail}
	if !r.qp.Relay.Pass(num, t, p) {
		r.refuse(faultSRQ, r.epsn)
		return
	}
	r.away, r.since, r.tail = true, r.epsn, tail{}
}

// TakeTurn continues where another process has stopped. The caller delivers the packet of the Turn next.
func (qp *QP) TakeTurn(t Turn) {
	r := &qp.resp
	r.away = false
	r.epsn, r.msn, r.gapReported, r.lost, r.tail = t.epsn, t.msn, t.gapReported, t.lost, t.tail
	r.dupNext, r.fresh = noRun, false
	r.expire(r.epsn)
}

// onRelayed handles a request while another process has the turn.
func (r *responder) onRelayed(p *link.RxPacket, info *wire.Info) {
	seq := wire.BTH(p.Data).PSN()
	switch {
	case r.executed(seq, info):
		r.duplicate(wire.Packet(p.Data), info)
	case !r.qp.Guest && info.Flags&answered != 0 && psn.Less(seq, r.since):
		r.qp.Relay.Repeat(p)
	default:
		r.qp.Relay.Forward(p)
	}
}

// answered is the set of flags of requests whose responses are kept where they were executed.
const answered = wire.IsRead | atMostOnce

// executed reports whether the response to the request at PSN seq is kept here.
func (r *responder) executed(seq uint32, info *wire.Info) bool {
	kind := resAtMostOnce
	switch {
	case info.Flags&answered == 0:
		return false
	case info.Flags&wire.IsRead != 0:
		kind = resRead
	}
	_, ok := r.find(kind, seq)
	return ok
}

// executedElsewhere reports whether the request at PSN seq was executed before, and not here.
func (r *responder) executedElsewhere(seq uint32, info *wire.Info) bool {
	return info.Flags&answered != 0 && psn.Less(seq, r.epsn) && !r.executed(seq, info)
}

// OnRepeat answers a request of Repeat if it was executed here.
func (qp *QP) OnRepeat(now int64, p *link.RxPacket) {
	h := wire.BTH(p.Data)
	if qp.resp.executed(h.PSN(), h.Opcode().Info()) {
		qp.OnPacket(now, p)
	}
}

// OnAged drops responses that are too old, since another process expects the PSN epsn: it would mistake them for those
// of later requests.
func (qp *QP) OnAged(epsn uint32) {
	r := &qp.resp
	r.expire(epsn)
	if oldest := psn.Add(epsn, -maxAge); psn.Less(r.since, oldest) {
		r.since = oldest
	}
}

// MirrorMigration gives a guest the alternate path and the migration state of its home, whose path it has.
func (qp *QP) MirrorMigration(alt link.Path, s MigState) {
	qp.attr.Alt, qp.attr.Mig, qp.baseFlags = alt, s, wire.BTHMigReq
	if s != Migrated {
		qp.baseFlags = 0
	}
}

// OnTurnLost fails a QP whose turn another process had when it ended. Nobody knows which requests were executed.
func (qp *QP) OnTurnLost() {
	if !qp.resp.away || qp.Guest {
		return
	}
	cause := &Failure{
		Status: RemOpErr, QPN: qp.Num, DestQPN: qp.attr.DestQPN, Syndrome: wire.SynOpErr, Heard: true,
		Reason: "the process of the SRQ that the peer has named last has ended",
	}
	qp.resp.nakFatal(wire.SynOpErr, qp.resp.since)
	qp.Fail(cause, EventQPFatal)
}

// endGuests ends the QP in the other processes.
func (r *responder) endGuests(flush bool) {
	if relay := r.qp.Relay; relay != nil && !r.qp.Guest {
		relay.End(flush)
		r.away = false
	}
}

// Cause returns the failure that has moved the QP to ERR, nil if there is none.
func (qp *QP) Cause() *Failure { return qp.first }
