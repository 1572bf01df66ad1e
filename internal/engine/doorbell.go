package engine

import "github.com/verbena-rdma/verbena/internal/transport"

// ring signals that work was posted to qp, which was published before, and processes it if the shard is free.
//
// A QP is in the doorbell list at most once: its Doorbell flag is set while it is. The holder clears the flag before
// it looks at the queue, so a poster that finds it set has published before that look.
func (s *shard) ring(qp *transport.QP) {
	if s.tryHold() { // the shard is free: no need to publish
		s.sendPosted(qp)
		return
	}
	if qp.Doorbell.Rung.CompareAndSwap(false, true) {
		for {
			first := s.doors.Load()
			qp.Doorbell.Next = first
			if s.doors.CompareAndSwap(first, qp) {
				break
			}
		}
	}
	if s.tryHold() {
		s.now = s.eng.now()
		s.serve()
		s.release()
	}
}

// answer puts a QP with new work in the run queue.
func (s *shard) answer(qp *transport.QP) {
	if !qp.Sched.Dead {
		s.answered(qp)
		qp.OnDoorbell(s.now)
		s.runq.push(qp)
	}
}

// answerDoors puts the QPs of the doorbell list in the run queue, oldest first.
func (s *shard) answerDoors() {
	if s.doors.Load() != nil {
		s.answerAll()
	}
}

// answerAll is apart so that answerDoors is inlined.
func (s *shard) answerAll() {
	var inOrder *transport.QP
	for qp := s.doors.Swap(nil); qp != nil; {
		next := qp.Doorbell.Next
		qp.Doorbell.Next = inOrder
		inOrder, qp = qp, next
	}
	for qp := inOrder; qp != nil; {
		next := qp.Doorbell.Next
		qp.Doorbell.Next = nil
		qp.Doorbell.Rung.Store(false) // from now on it may ring again
		s.answer(qp)
		qp = next
	}
}

// sendShort is answer and serve for a short request, if there is nothing else to do; see transport.QP.PlaceShort.
func (s *shard) sendShort(qp *transport.QP) bool {
	near := s.tx.Direct
	if near == nil || !s.runq.empty() || s.published() || !s.tx.Empty() || s.tap != nil || s.acks.n > 0 ||
		qp.Sched.Dead || !qp.PlaceShort(near) {
		return false
	}
	near.Publish()
	s.now = s.eng.now() // here, where nobody waits for it
	qp.SentShort(s.now)
	s.answered(qp)
	s.setTimer(qp)
	return true
}
