package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// replies holds the responses to send, in PSN order, and those kept for duplicates. Its size is fixed: a ring of
// resources, one for each READ or atomic that the peer may have outstanding, followed by one ACK or NAK.
//
// One ACK or NAK is enough. An ACK replaces an older one, which it covers. A READ response or atomic acknowledge
// covers every earlier SEND and WRITE, so a waiting ACK is dropped when one is queued after it. Nothing follows a
// fatal NAK.
type replies struct {
	kept uint16 // number of valid resources before head
	took uint16 // PSNs of the last packet sent
	head uint32 // index of the next resource; masked on use
	todo uint32 // no resource before it is pending
	tail tail
	ring []resource // a power of two
}

// resource is an executed READ, atomic, FLUSH or ATOMIC WRITE (IBTA 9.7.5.1.4: responder resources).
type resource struct {
	kind     resKind
	op       wire.Opcode // not set for a READ
	pending  bool        // a response is to be sent
	answered bool        // the response was sent at least once
	begun    bool        // the first packet of the current response was sent
	again    bool        // the request was received again

	first, last uint32 // PSNs
	msn         uint32

	rkey uint32 // READ: the request
	pd   uint32 // its protection domain
	addr uint64
	size uint32
	left uint32 // READ: bytes still to send, from address at and PSN next on
	next uint32
	at   uint64
	was  uint64 // atomic: original memory content
}

type resKind uint8

const (
	resRead resKind = iota + 1
	resAtMostOnce
)

// tail is the reply after all READ responses and atomic acknowledges.
type tail struct {
	kind  tailKind
	acked bool // seq and msn hold an ACK; with tailSeqNAK it is sent if the NAK is no longer needed
	nak   uint8
	seq   uint32
	msn   uint32
}

type tailKind uint8

const (
	tailNone   tailKind = iota
	tailAck             // of seq
	tailSeqNAK          // PSN sequence error; its PSN is the one expected when it is sent
	tailRNR             // no receive for the request at seq
	tailFatal           // the NAK of a QP in ERR; nothing follows it
)

func (q *replies) reset() {
	q.todo, q.kept = q.head, 0
	q.tail = tail{}
}

func (q *replies) pending() bool { return q.todo != q.head || q.tail.kind != tailNone }

// onlyAck reports whether the only reply to send is the acknowledgement of complete messages.
func (r *responder) onlyAck() bool {
	return r.tail.kind == tailAck && r.todo == r.head && r.phase == between
}

// abort drops unsent replies when the QP enters ERR, unless a fatal NAK is among them: the responses before that NAK
// must reach the peer first, or it would wait for them.
func (q *replies) abort() {
	if q.tail.kind != tailFatal {
		q.todo = q.head
		q.tail = tail{}
	}
}

func (q *replies) at(i uint32) *resource { return &q.ring[i&uint32(len(q.ring)-1)] }
func (q *replies) oldest() uint32        { return q.head - uint32(q.kept) }

// newResource returns the slot of the next READ or atomic, nil if the peer has too many outstanding. queue takes the
// slot.
func (r *responder) newResource() *resource {
	// Rounded up to a power of two: rxe rounds up the depths of both ends and uses them fully.
	depth := 0
	if n := r.qp.attr.MaxDestRdAtom; n > 0 {
		depth = CeilPow2(n)
	}
	if depth != len(r.ring) {
		r.resize(depth)
	}
	if depth == 0 {
		return nil
	}
	// A peer sends another request after it has received the oldest response, unless that was never sent.
	if res := r.at(r.head); int(r.kept) == depth && res.pending && !res.answered {
		return nil
	}
	return r.at(r.head)
}

// resize changes the number of resources. The newest are kept.
func (r *responder) resize(depth int) {
	old := r.replies
	r.ring = make([]resource, depth)
	r.kept = min(old.kept, uint16(depth))
	for i := r.oldest(); i != r.head; i++ {
		*r.at(i) = *old.at(i)
	}
	r.keepTodo()
}

// queue takes the slot of newResource. The caller has advanced past its PSNs.
func (r *responder) queue(res *resource) {
	res.pending, res.msn = true, r.msn
	r.head++
	r.kept = min(r.kept+1, uint16(len(r.ring)))
	r.keepTodo()
	r.covers(res)
}

// requeue schedules the response of resource i again, from its field next on.
func (r *responder) requeue(i uint32) {
	res := r.at(i)
	res.pending, res.msn = true, r.msn
	if int32(i-r.todo) < 0 {
		r.todo = i
	}
	r.covers(res)
}

// keepTodo advances todo past resources that are no longer kept.
func (q *replies) keepTodo() {
	if q.head-q.todo > uint32(q.kept) {
		q.todo = q.oldest()
	}
}

// PSNs are compared as if they were less than 2^23 apart, so resources whose last PSN is more than maxAge PSNs old are
// dropped, once per expireEvery PSNs. No request of a peer waits for its response for so long: the peer would have had
// to send that many packets meanwhile.
const (
	maxAge      = 6 << 20
	expireEvery = 1 << 20
)

// expire drops the resources that are too old when PSN next is expected.
func (q *replies) expire(next uint32) {
	for q.kept > 0 {
		if res := q.at(q.oldest()); res.pending || (next-res.last)&psn.Mask <= maxAge {
			break
		}
		q.kept--
	}
	q.keepTodo()
}

// covers drops an ACK that the response of res makes redundant.
func (q *replies) covers(res *resource) {
	if t := &q.tail; t.acked && psn.Less(t.seq, res.next) {
		t.acked = false
		if t.kind == tailAck {
			t.kind = tailNone
		}
	}
}

// find returns the index of the kept resource that uses PSN seq.
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

// nakSequence requests the packets from the expected PSN on (IBTA C9-106). The NAK also acknowledges everything
// before it.
func (r *responder) nakSequence() { r.tail.kind = tailSeqNAK }

// nakNotReady requests the expected packet again after the time of min_rnr_timer. Packets that follow it are dropped
// without a reply, as adapters do. rxe adds a sequence error NAK to the RNR NAK, which makes some senders resend at
// once and count it as a retry.
func (r *responder) nakNotReady() {
	r.qp.Counters.RNRNakSent++
	r.gapReported, r.lost = true, r.epsn
	r.tail = tail{kind: tailRNR, seq: r.epsn, msn: r.msn, nak: wire.SynRNR | r.qp.attr.MinRNRTimer&31}
}

// forgetNotReady drops an unsent RNR NAK: the packet arrived again and found a receive.
func (r *responder) forgetNotReady() {
	if r.tail.kind == tailRNR {
		r.tail = tail{}
	}
}

// nakFatal refuses the request at PSN seq. Responses to earlier requests are sent first.
func (r *responder) nakFatal(syndrome uint8, seq uint32) {
	for i := r.todo; i != r.head; i++ {
		if res := r.at(i); !psn.Less(res.first, seq) || res.next == seq {
			res.pending = false
		}
	}
	r.tail = tail{kind: tailFatal, seq: seq, msn: r.msn, nak: syndrome}
}

// transmit appends at most budget replies to tx and reports whether there is more to send at once.
func (r *responder) transmit(now int64, tx *link.TxBatch, budget int) (more bool) {
	for ; r.todo != r.head; r.todo++ {
		for res := r.at(r.todo); res.pending; budget -= int(r.took) {
			r.took = 1
			if r.qp.pace.until != 0 && res.kind == resRead {
				return false // the timer continues
			}
			if budget <= 0 || !r.send(now, res, tx) {
				return true
			}
		}
	}
	if r.tail.kind == tailNone {
		return false
	}
	return budget <= 0 || !r.sendTail(tx)
}

func (r *responder) send(now int64, res *resource, tx *link.TxBatch) bool {
	if res.kind == resRead {
		return r.sendRead(now, res, tx)
	}
	return r.sendAtMostOnce(res, tx)
}

// sendTail appends the ACK or NAK and reports whether there was room.
func (r *responder) sendTail(tx *link.TxBatch) bool {
	t := r.tail
	syndrome := t.nak
	switch t.kind {
	case tailAck:
		syndrome = wire.SynAck
	case tailSeqNAK:
		if psn.Less(r.lost, r.epsn) { // all dropped packets have arrived since
			r.gapReported = false
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
	r.putAck(b, syndrome, t.seq, t.msn)
	return true
}

// placeAck is sendTail of an acknowledgement to a process of this host.
func (r *responder) placeAck(near link.Direct) (mine, placed bool) {
	b, mine := near.Place(r.qp.path, r.qp.attr.DestQPN, wire.BTHLen+wire.AETHLen, false)
	if b == nil {
		return mine, false
	}
	r.putAck(b, wire.SynAck, r.tail.seq, r.tail.msn)
	return true, true
}

// putAck writes an acknowledgement, after which no reply is pending.
func (r *responder) putAck(b []byte, syndrome uint8, seq, msn uint32) {
	r.putBTH(b, wire.Ack, 0, seq)
	wire.AETH(b[wire.BTHLen:]).Put(syndrome, msn)
	r.tail = tail{}
}

// putBTH writes the BTH of a reply.
func (r *responder) putBTH(b []byte, op wire.Opcode, pad int, seq uint32) {
	a := &r.qp.attr
	wire.BTH(b).Put(r.qp.prefix()|op, pad, a.PKey, a.DestQPN, seq, r.qp.baseFlags)
}
