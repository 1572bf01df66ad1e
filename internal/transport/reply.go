package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// replies is what the responder still has to send, in the order of PSNs, and what it keeps
// for duplicates. It never grows: a ring of resources, one for each READ and atomic that
// the peer may have outstanding, and behind those one place for an ACK or NAK.
//
// The one place is enough. An ACK replaces an older one, since it covers it. A READ response or atomic
// acknowledge covers every earlier SEND and WRITE too, so an ACK that waits when one is queued behind it
// is dropped. A NAK ends what can be said.
type replies struct {
	ring []resource // a power of two
	head uint32     // index of the next resource; indices run freely
	kept uint32     // so many before head are valid
	todo uint32     // none before it is pending
	tail tail
	took int // PSNs of the packet sent last: what it takes of a turn
}

// resource is a READ, an atomic, a FLUSH or an ATOMIC WRITE that was executed (IBTA 9.7.5.1.4: responder resources).
type resource struct {
	kind     resKind
	op       wire.Opcode // but for a READ
	pending  bool        // an answer is to be sent
	answered bool        // it was sent before, at least once
	begun    bool        // the first packet of the present answer was sent

	first, last uint32 // PSNs
	msn         uint32

	rkey uint32 // READ: what was asked for
	pd   uint32 // in this domain
	addr uint64
	size uint32
	left uint32 // READ: what is still to be sent: from address at, PSN next
	next uint32
	at   uint64
	was  uint64 // atomic: what the memory held
}

type resKind uint8

const (
	resRead resKind = iota + 1
	resOnce
)

// tail is the reply behind all READ responses and atomic acknowledges.
type tail struct {
	kind  tailKind
	acked bool // seq and msn hold an ACK; with tailSeqNAK, in case it turns out needless
	seq   uint32
	msn   uint32
	nak   uint8
}

type tailKind uint8

const (
	tailNone   tailKind = iota
	tailAck             // of seq
	tailSeqNAK          // PSN sequence error; its PSN is the one expected when it is sent
	tailRNR             // no receive for the request at seq
	tailFatal           // the NAK of a QP that has gone to ERR, and its last word
)

func (q *replies) reset() {
	q.todo, q.kept = q.head, 0
	q.tail = tail{}
}

func (q *replies) pending() bool { return q.todo != q.head || q.tail.kind != tailNone }

// abort drops what was not sent when the QP goes to ERR, unless its last word is among it: the
// answers in front of a NAK must reach the peer before it, or the peer would wait for them.
func (q *replies) abort() {
	if q.tail.kind != tailFatal {
		q.todo = q.head
		q.tail = tail{}
	}
}

func (q *replies) at(i uint32) *resource { return &q.ring[i&uint32(len(q.ring)-1)] }
func (q *replies) oldest() uint32        { return q.head - q.kept }

// newResource is the place for another READ or atomic, nil if the peer has more of them
// outstanding than it may. It is not taken before queue.
func (r *responder) newResource() *resource {
	// A power of two, like rxe, which rounds up both ends' depths and then uses them to the full.
	depth := 0
	if n := r.qp.attr.MaxDestRdAtom; n > 0 {
		depth = ceilPow2(n)
	}
	if depth != len(r.ring) {
		r.resize(depth)
	}
	if depth == 0 {
		return nil
	}
	// The peer has this one's answer when it asks for more, unless the answer has never been sent.
	if res := r.at(r.head); r.kept == uint32(depth) && res.pending && !res.answered {
		return nil
	}
	return r.at(r.head)
}

// resize changes how many resources there are. The newest stay.
func (r *responder) resize(depth int) {
	old := r.replies
	r.ring = make([]resource, depth)
	r.kept = min(old.kept, uint32(depth))
	for i := r.oldest(); i != r.head; i++ {
		*r.at(i) = *old.at(i)
	}
	r.keepTodo()
}

// queue takes the place that newResource gave. The caller has stepped over its PSNs.
func (r *responder) queue(res *resource) {
	res.pending, res.msn = true, r.msn
	r.head++
	r.kept = min(r.kept+1, uint32(len(r.ring)))
	r.keepTodo()
	r.covers(res)
}

// requeue has resource i answered again, from where its next says.
func (r *responder) requeue(i uint32) {
	res := r.at(i)
	res.pending, res.msn = true, r.msn
	if int32(i-r.todo) < 0 {
		r.todo = i
	}
	r.covers(res)
}

// keepTodo moves todo past resources that are no longer kept.
func (q *replies) keepTodo() {
	if q.head-q.todo > q.kept {
		q.todo = q.oldest()
	}
}

// covers drops an ACK that the answer of res makes needless.
func (q *replies) covers(res *resource) {
	if t := &q.tail; t.acked && psn.Less(t.seq, res.next) {
		t.acked = false
		if t.kind == tailAck {
			t.kind = tailNone
		}
	}
}

// find looks for the kept resource that uses PSN seq.
func (q *replies) find(kind resKind, seq uint32) (uint32, bool) {
	for i := q.oldest(); i != q.head; i++ {
		res := q.at(i)
		if res.kind == kind && !psn.Less(seq, res.first) && !psn.Less(res.last, seq) {
			return i, true
		}
	}
	return 0, false
}

// ack acknowledges everything up to seq, the PSN of a SEND or WRITE.
func (r *responder) ack(seq uint32) {
	t := &r.tail
	if t.kind == tailRNR || t.kind == tailFatal || t.acked && psn.Less(seq, t.seq) {
		return
	}
	t.acked, t.seq, t.msn = true, seq, r.msn
	if t.kind == tailNone {
		t.kind = tailAck
	}
}

// nakSequence asks for the packets from the expected one on (IBTA C9-106). It covers an ACK.
func (r *responder) nakSequence() { r.tail.kind = tailSeqNAK }

// nakNotReady asks for the expected packet once more, after the time of min_rnr_timer. What the
// peer has sent behind it is dropped in silence, as adapters do. (rxe adds a sequence error NAK to the RNR NAK,
// which makes some senders come back at once and count it as a retry.)
func (r *responder) nakNotReady() {
	r.qp.Counters.RNRNakSent++
	r.naked, r.lost = true, r.epsn
	r.tail = tail{kind: tailRNR, seq: r.epsn, msn: r.msn, nak: wire.SynRNR | r.qp.attr.MinRNRTimer&31}
}

// forgetNotReady drops an RNR NAK that was not sent, for the packet has come again and found a receive.
func (r *responder) forgetNotReady() {
	if r.tail.kind == tailRNR {
		r.tail = tail{}
	}
}

// nakFatal refuses the request at PSN seq for good. Answers to earlier requests leave first.
func (r *responder) nakFatal(syndrome uint8, seq uint32) {
	for i := r.todo; i != r.head; i++ {
		if res := r.at(i); !psn.Less(res.first, seq) || res.next == seq {
			res.pending = false
		}
	}
	r.tail = tail{kind: tailFatal, seq: seq, msn: r.msn, nak: syndrome}
}

// transmit appends at most budget replies to tx and tells whether there is more to send at once.
func (r *responder) transmit(_ int64, tx *link.TxBatch, budget int) (more bool) {
	for ; r.todo != r.head; r.todo++ {
		for res := r.at(r.todo); res.pending; budget -= r.took {
			r.took = 1
			if budget <= 0 || !r.send(res, tx) {
				return true
			}
		}
	}
	if r.tail.kind == tailNone {
		return false
	}
	return budget <= 0 || !r.sendTail(tx)
}

func (r *responder) send(res *resource, tx *link.TxBatch) bool {
	if res.kind == resRead {
		return r.sendRead(res, tx)
	}
	return r.sendOnce(res, tx)
}

// sendTail appends the ACK or NAK and tells whether there was room for it.
func (r *responder) sendTail(tx *link.TxBatch) bool {
	t := r.tail
	syndrome := t.nak
	switch t.kind {
	case tailAck:
		syndrome = wire.SynAck
	case tailSeqNAK:
		if psn.Less(r.lost, r.epsn) { // everything that was dropped has come meanwhile
			r.naked = false
			if !t.acked {
				r.tail = tail{}
				return true
			}
			syndrome = wire.SynAck
			break
		}
		syndrome, t.seq, t.msn = wire.SynSeqErr, r.epsn, r.msn
	}
	b := tx.Alloc(r.qp.path, r.qp.attr.DestQPN, wire.BTHLen+wire.AETHLen)
	if b == nil {
		return false
	}
	r.putBTH(b, wire.Ack, 0, t.seq)
	wire.AETH(b[wire.BTHLen:]).Put(syndrome, t.msn)
	r.tail = tail{}
	return true
}

// putBTH begins a reply.
func (r *responder) putBTH(b []byte, op wire.Opcode, pad int, seq uint32) {
	a := &r.qp.attr
	wire.BTH(b).Put(r.qp.prefix()|op, pad, a.PKey, a.DestQPN, seq, r.qp.baseFlags)
}
