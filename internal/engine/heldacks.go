package engine

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// A program that answers each message at once, as in a remote procedure call, sees the completion before the
// acknowledgement is sent. The acknowledgement then leaves together with the answer, in one GSO run. Otherwise the
// program would wait for a system call of several microseconds before it can post the answer.
//
// Through shared memory nothing is held: an acknowledgement there costs less than the packet engine, and the peer
// processes it while the program prepares the answer.
//
// Acknowledgements are held only in the step of a poller, only for QPs whose last messages were answered, and only
// until the first step of the shard after graceTime: a program may poll another CQ before it answers. holdTime is a
// deadline of the shard like those of its QPs: if the program neither posts nor polls, the background goroutine sends
// the acknowledgements.

const (
	// maxHeld is the maximum number of acknowledgements that a shard holds.
	maxHeld = 16
	// graceTime is how long an acknowledgement is held although the program polls again, ns: a poll of sockets that finds
	// nothing takes less than half of it.
	graceTime = int64(3e3)
	// holdTime is how long an acknowledgement is held if the program does not poll, ns. A later answer does not count
	// as one.
	holdTime = int64(20e3)
	// Acknowledgements of a QP are held if its Sched.Answers is at least minAnswers. An answer adds 1, up to
	// maxAnswers. A message without an answer subtracts noAnswer.
	minAnswers = 4
	maxAnswers = 32
	noAnswer   = 4
)

// heldAcks lists the QPs of a shard whose acknowledgements are held. They are not in the run queue.
type heldAcks struct {
	qps   [maxHeld]*transport.QP
	n     int
	grace int64 // until then a step of the shard sends none of them
	until int64 // transport.Never if n is 0
	gone  int   // no longer held, and not sent yet: counted in owed
}

// owed is the number of acknowledgements that all shards of the process hold.
var owed atomic.Int32

// Owed returns where the number of acknowledgements stands that this process holds, for programs that are about to
// exit: after 0 was seen, those of the messages polled before have been sent.
func Owed() *atomic.Int32 { return &owed }

// settle subtracts from owed what has been sent.
func (h *heldAcks) settle() {
	if h.gone > 0 {
		owed.Add(int32(-h.gone))
		h.gone = 0
	}
}

// forget is for the end of the engine: what is still held is not sent.
func (h *heldAcks) forget() {
	h.gone += h.n
	h.n, h.until = 0, transport.Never
	clear(h.qps[:])
	h.settle()
}

// holds reports whether the acknowledgement of qp, the only packet that it has to send, is held. It notes the time of
// acknowledgements that are not.
func (s *shard) holds(qp *transport.QP) bool {
	d := &qp.Sched
	if d.AckAt != 0 {
		d.Answers = max(0, d.Answers-noAnswer)
	}
	d.AckAt = s.now
	h := &s.acks
	if !s.polling || d.Answers < minAnswers || h.n == maxHeld {
		return false
	}
	if qp.Near(s.tx) {
		d.Answers = 0 // asks again after minAnswers answers
		return false
	}
	if h.n == 0 {
		h.grace, h.until = s.now+graceTime, s.now+holdTime
		if !s.bg.watch.Load() {
			s.bg.watch.Store(true)
		}
	}
	h.qps[h.n] = qp
	h.n++
	owed.Add(1)
	return true
}

// answered notes that the program has posted requests to qp, and that an acknowledgement held for it leaves with them.
func (s *shard) answered(qp *transport.QP) {
	d := &qp.Sched
	if d.AckAt == 0 {
		return
	}
	if s.now-d.AckAt <= holdTime {
		d.Answers = min(d.Answers+1, maxAnswers)
	} else {
		d.Answers = max(0, d.Answers-noAnswer)
	}
	d.AckAt = 0
	h := &s.acks
	for i := range h.n {
		if h.qps[i] == qp {
			h.n--
			h.gone++
			h.qps[i] = h.qps[h.n]
			h.qps[h.n] = nil
			break
		}
	}
	if h.n == 0 {
		h.until = transport.Never
	}
}

// sendHeld puts the QPs whose acknowledgements are held into the run queue.
func (s *shard) sendHeld() {
	h := &s.acks
	for i, qp := range h.qps[:h.n] {
		qp.Sched.Answers = max(0, qp.Sched.Answers-noAnswer)
		qp.Sched.AckAt = 0
		s.runq.push(qp)
		h.qps[i] = nil
	}
	h.gone += h.n
	h.n, h.until = 0, transport.Never
}
