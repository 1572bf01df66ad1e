package engine

import "github.com/verbena-rdma/verbena/internal/transport"

// ring tells the shard that work was posted to qp, which was published before, and does the work if the shard is free.
//
// A QP is in the list of doorbells once: Doorbell says that it is. The holder clears it before it
// looks at the queue, so a poster that finds it set has published before that look.
func (s *shard) ring(qp *transport.QP) {
	if s.tryHold() { // nobody else would see to it, so nothing needs to be published
		s.now = s.eng.now()
		s.answer(qp)
		s.serve()
		s.release()
		return
	}
	if qp.Sched.Doorbell.CompareAndSwap(false, true) {
		for {
			first := s.doors.Load()
			qp.Sched.DoorNext = first
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
		qp.OnDoorbell(s.now)
		s.runq.push(qp)
	}
}

// answerDoors puts the QPs whose doorbell rang in the run queue, in the order in which they rang.
func (s *shard) answerDoors() {
	if s.doors.Load() == nil {
		return
	}
	var inOrder *transport.QP
	for qp := s.doors.Swap(nil); qp != nil; {
		next := qp.Sched.DoorNext
		qp.Sched.DoorNext = inOrder
		inOrder, qp = qp, next
	}
	for qp := inOrder; qp != nil; {
		next := qp.Sched.DoorNext
		qp.Sched.DoorNext = nil
		qp.Sched.Doorbell.Store(false) // from here on it may ring again
		s.answer(qp)
		qp = next
	}
}
