package engine

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Bounds of a step.
const (
	txPackets = 128
	// txBytes holds 15 packets of 4096 bytes, which form one GSO run, and the longer first packet of a WRITE: 64
	// KiB of payload.
	txBytes = 68 << 10
	// rxBatches bounds the batches received before the shard sends. A Recv of fewer packets than rxMany has
	// probably emptied the port.
	rxBatches = 4
	rxMany    = 32
	// txBatches bounds the batches sent before the shard receives again.
	txBatches = 16
	// turnPackets is the number of packets that one QP sends per turn.
	turnPackets = 32
)

// step runs the shard once: receive packets, fire timers, process doorbells, send packets. It reports whether there
// is more to do at once. The shard is held.
func (s *shard) step(now int64) (busy bool) {
	s.now = now
	s.rx.Now = now
	lost := s.lost.Load() && s.lost.Swap(false)
	n := 0
	s.took = false
	for range rxBatches {
		n = s.receive()
		s.took = s.took || n > 0
		// Packets that the screen has dropped come at a high rate, or not again. To park now would cost a wake-up for each.
		busy = busy || n > 0 || s.rx.Screened
		if n < rxMany && (!lost || n == 0) {
			break
		}
	}
	switch {
	case !lost:
	case n > 0: // packets that the process sent before it ended may still be unread
		s.lost.Store(true)
	default:
		s.failLost()
	}
	if s.acks.n > 0 && now >= s.acks.grace {
		s.sendHeld()
		s.polling = false
	}
	s.wheel.advance(now, s.fire)
	s.raiseEvents(now)
	more := s.serve()
	s.stalled = s.stalled && more && !busy
	return more || busy
}

// receive delivers the packets and acknowledgements of one Recv, and returns their number.
func (s *shard) receive() int {
	n := s.port.Recv(&s.rx)
	if n == 0 {
		return 0
	}
	if len(s.rx.Acks) > 0 {
		s.deliverAcks()
	}
	s.prefetchBatch()
	packets := s.rx.Packets
	for i := range packets {
		p := &packets[i]
		if p.Away != nil {
			p.Away.Batch = packets[i:]
		}
		s.deliver(p)
	}
	s.endCounts()
	return n
}

// deliverAcks passes the acknowledgements of counted requests to their QPs. One that is followed by another one of the
// same connection is covered by that.
func (s *shard) deliverAcks() {
	acks := s.rx.Acks
	for i := range acks {
		a := &acks[i]
		if i+1 < len(acks) && acks[i+1].Life == a.Life {
			continue
		}
		qp := a.From.(*transport.QP)
		qp.OnCounted(s.now, a)
		s.afterAck(qp)
	}
	clear(acks) // the batch keeps no QP from being collected
}

// afterAck puts a QP that has received an acknowledgement into the run queue, or only sets its timer if its turn would
// do no more.
func (s *shard) afterAck(qp *transport.QP) {
	switch {
	case qp.Sched.Queued:
	case qp.Due() == transport.DueNothing:
		s.setTimer(qp)
	default:
		s.runq.push(qp)
	}
}

// finish does what is due for a QP that is about to stop: it delivers the packets that have arrived, and sends replies.
// An adapter processes packets as they come, so a program expects the completions of what the peer has acknowledged or
// sent before.
func (s *shard) finish(qp *QP) {
	if qp.State().Receives() {
		s.takeArrived()
	}
	s.flushReplies(&qp.QP)
}

// takeArrived delivers the packets that have arrived.
func (s *shard) takeArrived() {
	s.rx.Now, s.rx.All = s.now, true
	s.inbox.drain(s) // what another shard's port has received for this one
	for range arrivedBatches {
		if s.receive() == 0 {
			break
		}
	}
	s.rx.All = false
}

// arrivedBatches bounds the batches of takeArrived: peers may send all the time.
const arrivedBatches = 16

// serve does the work that needs no packet: work published by others, and sending. It reports whether there is more
// to send at once.
func (s *shard) serve() (more bool) {
	s.answerDoors()
	s.inbox.drain(s)
	more = s.transmit()
	if s.cqBroke.Load() {
		s.failQPs()
		more = s.transmit() || more
	}
	s.acks.settle()
	s.kickOthers()
	return more
}

// deliver passes a packet to its QP.
func (s *shard) deliver(p *link.RxPacket) {
	qpn := wire.BTH(p.Data).DestQPN()
	if qpn == wire.MulticastQPN {
		s.multicast(p)
		return
	}
	s.deliverTo(qpn, p)
}

func (s *shard) deliverTo(qpn uint32, p *link.RxPacket) {
	qp := s.last
	if qp == nil || qp.Num != qpn {
		if qp = s.find(qpn, p); qp == nil {
			return
		}
		s.last = qp
	}
	if s.tap != nil {
		s.onTapped(qp, p)
	} else if plain := qp.OnPacket(s.now, p); p.Counter != nil {
		s.counts.add(s, qp, p, plain)
		return
	}
	if wire.BTH(p.Data).Opcode().Operation() == wire.Ack {
		s.afterAck(qp)
		return
	}
	s.runq.push(qp)
}

// counts is the last of consecutive counted requests to one QP. Its acknowledgement is that of all.
type counts struct {
	qp      *transport.QP // nil: none
	last    *link.RxPacket
	plain   bool // OnPacket has returned true for all of them
	several bool // requests of the batch were counted
}

// add notes a counted request of a QP, after OnPacket has returned plain.
func (c *counts) add(s *shard, qp *transport.QP, p *link.RxPacket, plain bool) {
	if c.qp == qp {
		c.last, c.plain = p, c.plain && plain
		return
	}
	if c.qp != nil {
		s.count()
	}
	c.qp, c.last, c.plain = qp, p, plain
}

// count acknowledges the requests of counts by counting, if the QP has nothing else to send. Otherwise that is for its
// next turn.
func (s *shard) count() {
	c := &s.counts
	qp := c.qp
	c.qp = nil
	counted := s.tx.Direct != nil && qp.Count(c.last)
	c.several = c.several || counted
	if !counted || !c.plain && qp.Due() != transport.DueNothing { // requests change no deadline of the QP
		s.runq.push(qp)
	}
}

// endCounts is for the end of a batch. Counted requests to one QP are not counted: one ACK packet is no more than one
// record, and the peer, which looks for the answer as soon as it has processed that, does not take the line of the
// answer away so early.
func (s *shard) endCounts() {
	c := &s.counts
	switch {
	case c.qp == nil:
	case c.several:
		s.count()
	default:
		s.runq.push(c.qp)
	}
	if c.qp, c.last = nil, nil; c.several {
		c.several = false
		s.tx.Direct.Publish()
	}
}

// find returns the QP of a packet. If there is none, or if it is one of another shard, which gets the packet, find
// returns nil.
func (s *shard) find(qpn uint32, p *link.RxPacket) *transport.QP {
	if owner := s.eng.shardOf(qpn); owner != s {
		owner.inbox.put(qpn, p)
		s.kicks |= 1 << owner.index
		return nil
	}
	qp := s.eng.qps.get(qpn)
	if qp == nil {
		s.counters.unknownQPN++
		if s.tap != nil {
			s.tap.Received(p, qpn, 0, "; dropped: there is no such QP")
		}
	}
	return qp
}

// deliverSteered passes a datagram or a frame to the QP of a flow rule, which is one of this shard.
func (s *shard) deliverSteered(m *inboxSlot) {
	qp := s.eng.qps.get(m.qpn)
	if qp == nil {
		s.counters.unknownQPN++
		return
	}
	p := &m.pkt
	if p.Data == nil {
		p = nil
	}
	qp.OnSteered(s.now, p, &m.steered)
	s.runq.push(qp)
}

func (s *shard) onTimer(qp *transport.QP) {
	qp.Sched.TimerStays = false
	qp.OnTimer(s.now)
	s.runq.push(qp)
}

// transmit lets the QPs of the run queue send in turns and sets their timers. It reports whether more is left to
// send. The ACKs of all packets received in this step are sent here.
func (s *shard) transmit() (more bool) {
	s.stalled = true
	if s.placeAcks() || s.sendOneAck() {
		return false
	}
	for range txBatches {
		if s.runq.empty() {
			break
		}
		s.collect()
		s.stalled = s.stalled && s.tx.Count() == 0
		if !s.tx.Empty() {
			if s.tap != nil {
				s.tap.Sent()
			}
			if !s.send() {
				break
			}
		}
		s.raiseSignals()
	}
	s.raiseSignals()
	for qp := s.blocked.pop(); qp != nil; qp = s.blocked.pop() {
		s.runq.push(qp)
	}
	return !s.runq.empty()
}

// placeAcks sends the acknowledgements of the first QPs of the run queue, as long as they have nothing else to send and
// their peers are processes of this host. A QP whose ring is full is blocked. It reports whether that was all.
func (s *shard) placeAcks() (all bool) {
	d := s.tx.Direct
	if d == nil || s.tap != nil || !s.tx.Empty() {
		return false
	}
	placed := false
	for qp := s.runq.first; qp != nil && !qp.Sched.Dead && qp.Due() == transport.DueAck; qp = s.runq.first {
		near, ok := qp.PlaceAck(d)
		if !near {
			break
		}
		placed = placed || ok
		if s.runq.pop(); !ok {
			s.blocked.push(qp)
		} else if s.runq.empty() {
			d.Publish() // the peer need not wait for the timer
		}
		s.setTimer(qp)
	}
	if !placed {
		return false
	}
	s.stalled = false
	if s.runq.empty() && s.blocked.empty() {
		s.raiseSignals()
		return true
	}
	d.Publish()
	return false
}

// sendOneAck is transmit for a run queue with one QP that has nothing but an acknowledgement to send. Otherwise, or if
// the link had no room, it returns false.
func (s *shard) sendOneAck() bool {
	qp := s.runq.first
	if qp == nil || qp.Sched.Next != nil || qp.Sched.Dead || s.tap != nil || !s.tx.Empty() ||
		qp.Due() != transport.DueAck {
		return false
	}
	s.runq.pop()
	if !s.holds(qp) {
		s.loans.begin(s, qp)
		if qp.SendAck(s.tx) {
			s.stalled = false
			s.sole, s.resent = qp, qp.Counters.RetransmitPackets
			s.send()
		} else {
			s.blocked.push(qp)
		}
	}
	s.setTimer(qp)
	s.raiseSignals()
	return s.blocked.empty()
}

// flushReplies sends the pending replies of a QP that is about to be reset or destroyed: a program may destroy a QP
// as soon as a message has arrived, and the sender must still receive the acknowledgement. Normally nothing is
// pending, unless the link had no room. Mostly it has room again soon.
func (s *shard) flushReplies(qp *transport.QP) {
	for n := 0; qp.Replying() && n < maxFlushTries; n++ {
		if n > 0 {
			time.Sleep(flushPause)
		}
		s.runq.push(qp)
		s.transmit()
	}
}

// Together 50 ms, for which the shard stays held. If the receiver of a full ring gets no core for so long, the reply is
// lost.
const (
	maxFlushTries = 500
	flushPause    = 100 * time.Microsecond
)

// collect takes packets from the QPs of the run queue until the batch may be too full for another packet.
func (s *shard) collect() {
	for !s.runq.empty() && s.room() {
		if s.loans.only(s.tx) && s.runq.first != s.sole {
			return
		}
		qp := s.runq.pop()
		if qp.Sched.Dead {
			continue
		}
		due := qp.Due()
		if due == transport.DueNothing || due == transport.DueAck && s.holds(qp) {
			s.setTimer(qp)
			continue
		}
		if s.tap != nil {
			s.tap.From(qp.Num, qp.MTU())
		}
		before := s.tx.Count()
		if before == 0 {
			s.sole, s.resent = qp, qp.Counters.RetransmitPackets
			s.loans.begin(s, qp)
		}
		switch more := s.transmitOf(qp, due); {
		case more && s.tx.Count() == before && before < cap(s.tx.Packets):
			s.blocked.push(qp) // the batch has room, but not where the link places this packet
		case more:
			s.runq.push(qp)
		}
		if s.sole != qp && s.tx.Count() > before {
			s.sole = nil
		}
		s.setTimer(qp)
	}
}

// transmitOf lets qp append what is due to the batch. It reports whether there is more.
func (s *shard) transmitOf(qp *transport.QP, due transport.Due) (more bool) {
	if due == transport.DueAck {
		return !qp.SendAck(s.tx)
	}
	turn := turnPackets
	if s.loans.set != nil {
		turn = txPackets // no other QP may fill the rest of the batch
	}
	return qp.Transmit(s.now, s.tx, turn)
}

// room reports whether the batch has room for a packet of any size.
func (s *shard) room() bool {
	return s.tx.Count() < cap(s.tx.Packets) && s.tx.Room(longestPacket)
}

// setTimer arms qp's timer if the new deadline is earlier. A later deadline, as after each ACK, does not change the
// timer: it fires, finds nothing to do and is armed again. That saves a change of the wheel per packet. For the same
// reason a QP with one message after the other keeps its timer in between.
func (s *shard) setTimer(qp *transport.QP) {
	d := qp.Deadline()
	armed := qp.Sched.TimerSlot != 0
	switch {
	case d == transport.Never:
		if armed && !qp.Sched.TimerStays {
			s.wheel.cancel(qp)
			qp.Sched.TimerOff = s.now
		}
	case !armed:
		qp.Sched.TimerStays = s.now-qp.Sched.TimerOff < timerStays
		s.wheel.arm(qp, d)
	case d < qp.Sched.Deadline:
		s.wheel.arm(qp, d)
	}
}

// timerStays is the time, ns: a QP that sends the next message earlier than that after the acknowledgement of the last
// one keeps its timer.
const timerStays = int64(20e3)

// runQueue lists the QPs to process: they received a packet, a doorbell or a timer, or have more to send.
type runQueue struct{ first, last *transport.QP }

func (q *runQueue) empty() bool { return q.first == nil }

// push appends qp unless it is in the list.
func (q *runQueue) push(qp *transport.QP) {
	if qp.Sched.Queued {
		return
	}
	qp.Sched.Queued = true
	if q.first == nil {
		q.first = qp
	} else {
		q.last.Sched.Next = qp
	}
	q.last = qp
}

// pop removes and returns the first QP, nil if there is none.
func (q *runQueue) pop() *transport.QP {
	qp := q.first
	if qp == nil {
		return nil
	}
	q.first = qp.Sched.Next
	if q.first == nil {
		q.last = nil
	}
	qp.Sched.Next = nil
	qp.Sched.Queued = false
	return qp
}
