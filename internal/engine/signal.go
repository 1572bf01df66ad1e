package engine

import "github.com/verbena-rdma/verbena/internal/transport"

// signal raises the completion event of cq. An event of a QP waits until its shard, which is held, has sent a batch:
// the message is acknowledged before the program that waits for it runs. The kernel often gives the core to the program
// at once, and the program's answer could reach the peer before the acknowledgement, by another QP. Programs that look
// for the completion of their send when they have the answer must find it, as with an adapter.
func (cq *CQ) signal(qp *transport.QP) {
	if qp != nil {
		if s, ok := qp.Host.(*shard); ok {
			s.signals = append(s.signals, cq)
			return
		}
	}
	cq.up.Completion()
}

// raiseSignals raises the events that wait. The shard is held.
func (s *shard) raiseSignals() {
	if len(s.signals) > 0 {
		s.raiseAll()
	}
}

// raiseAll is apart so that raiseSignals, which rarely finds one, is inlined.
func (s *shard) raiseAll() {
	for _, cq := range s.signals {
		cq.up.Completion()
	}
	clear(s.signals)
	s.signals = s.signals[:0]
}
