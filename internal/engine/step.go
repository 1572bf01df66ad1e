package engine

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Sizes of a shard's turns.
const (
	txPackets = 128
	// txBytes are 15 packets of 4096 bytes, which leave in one piece, and the first one of a WRITE, which is longer: 64 KiB of payload.
	txBytes = 68 << 10
	// rxBatches bounds what one step receives before it answers; a Recv of fewer packets than
	// rxMany has probably emptied the port.
	rxBatches = 4
	rxMany    = 32
	// txBatches bounds what one step sends before it receives again.
	txBatches = 16
	// turnPackets is what one QP sends before the next one's turn.
	turnPackets = 32
)

// step runs the shard once: packets in, timers, doorbells, packets out. It tells whether there is more to do at once.
// The shard is held.
func (s *shard) step(now int64) (busy bool) {
	s.now = now
	s.rx.Now = now
	lost := s.lost.Load() && s.lost.Swap(false)
	n := 0
	for range rxBatches {
		n = s.port.Recv(&s.rx)
		for i := range n {
			s.deliver(&s.rx.Packets[i])
		}
		busy = busy || n > 0
		if n < rxMany && (!lost || n == 0) {
			break
		}
	}
	switch {
	case !lost:
	case n > 0: // not everything that the process sent is received yet
		s.lost.Store(true)
	default:
		s.failLost()
	}
	s.wheel.advance(now, s.fire)
	s.raiseEvents(now)
	more := s.serve()
	s.stalled = s.stalled && more && !busy
	return more || busy
}

// serve does what needs no packet to arrive: work published by others, and sending.
// It tells whether there is more to send at once.
func (s *shard) serve() (more bool) {
	s.answerDoors()
	s.inbox.drain(s)
	more = s.transmit()
	if s.cqBroke.Load() {
		s.failQPs()
		more = s.transmit() || more
	}
	s.kickOthers()
	return more
}

// deliver hands a packet to the QP that it is for.
func (s *shard) deliver(p *link.RxPacket) {
	qpn := wire.BTH(p.Data).DestQPN()
	if qpn == wire.MulticastQPN {
		s.multicast(p)
		return
	}
	s.deliverTo(qpn, p)
}

func (s *shard) deliverTo(qpn uint32, p *link.RxPacket) {
	if owner := s.eng.shardOf(qpn); owner != s {
		owner.inbox.put(qpn, p)
		s.kicks |= 1 << owner.index
		return
	}
	qp := s.eng.qps.get(qpn)
	if qp == nil {
		s.counters.unknownQPN++
		if s.tap != nil {
			s.tap.Received(p, qpn, 0, "; dropped: there is no such QP")
		}
		return
	}
	if s.tap != nil {
		s.onTapped(qp, p)
	} else {
		qp.OnPacket(s.now, p)
	}
	s.runq.push(qp)
}

func (s *shard) onTimer(qp *transport.QP) {
	qp.OnTimer(s.now)
	s.runq.push(qp)
}

// transmit lets the QPs of the run queue send, in turns, and sets their timers. It tells whether
// it stopped with more to send. ACKs for everything received in this step leave here.
func (s *shard) transmit() (more bool) {
	s.stalled = true
	for range txBatches {
		if s.runq.empty() {
			break
		}
		s.fill()
		s.stalled = s.stalled && s.tx.Count() == 0
		if !s.tx.Empty() {
			if s.tap != nil {
				s.tap.Sent()
			}
			if !s.send() {
				break
			}
		}
	}
	for qp := s.blocked.pop(); qp != nil; qp = s.blocked.pop() {
		s.runq.push(qp)
	}
	return !s.runq.empty()
}

// lastWords lets the replies of a QP leave that is about to forget them: who sees that a message has arrived may destroy the QP
// at once, and the sender shall hear of the arrival all the same. They have left already unless the link had no place for them, which
// does not last long: it takes a packet or loses it.
func (s *shard) lastWords(qp *transport.QP) {
	for n := 0; qp.Replying() && n < maxFarewell; n++ {
		if n > 0 {
			time.Sleep(farewellPause)
		}
		s.runq.push(qp)
		s.transmit()
	}
}

// Together they are longer than a link holds packets back.
const (
	maxFarewell   = 500
	farewellPause = 100 * time.Microsecond
)

// fill takes QPs from the run queue until the batch has no room for another packet.
func (s *shard) fill() {
	for s.room() {
		qp := s.runq.pop()
		if qp == nil {
			return
		}
		if qp.Sched.Dead {
			continue
		}
		if s.tap != nil {
			s.tap.From(qp.Num, qp.MTU())
		}
		before := s.tx.Count()
		if before == 0 {
			s.sole, s.resent = qp, qp.Counters.RetransmitPackets
		}
		switch more := qp.Pending() && qp.Transmit(s.now, s.tx, turnPackets); {
		case more && s.tx.Count() == before && before < cap(s.tx.Packets):
			s.blocked.push(qp) // there was room in the batch, but none where the link wants to have the packet
		case more:
			s.runq.push(qp)
		}
		if s.sole != qp && s.tx.Count() > before {
			s.sole = nil
		}
		s.setTimer(qp)
	}
}

// room tells whether the batch surely takes a packet of any size, so that a QP whose turn it is can use it.
func (s *shard) room() bool {
	return s.tx.Count() < cap(s.tx.Packets) && s.tx.Room(s.eng.maxPacket)
}

// setTimer arms qp's timer if it must fire earlier than it would. A deadline that moved away, as
// that of an ACK does with each ACK, is left: the timer fires, finds nothing to do and is set
// again. That saves the wheel's work for each packet.
func (s *shard) setTimer(qp *transport.QP) {
	d := qp.Deadline()
	armed := qp.Sched.TimerSlot != 0
	switch {
	case d == transport.Never:
		s.wheel.cancel(qp)
	case !armed || d < qp.Sched.Deadline:
		s.wheel.arm(qp, d)
	}
}

// runQueue is the list of QPs that must be looked at: they got a packet, a doorbell or a timer, or have more to send.
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

// pop removes the first QP, nil if there is none.
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
