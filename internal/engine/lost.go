package engine

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// lookForLost says that a process has ended that QPs may be connected to. Any goroutine calls it.
func (e *Engine) lookForLost() {
	for _, s := range e.shards {
		s.lost.Store(true)
		s.bg.wake()
	}
}

// Revoke makes messages of a QP that went by reference invalid; see transport.Revoker.
func (s *shard) Revoke(qp *transport.QP) {
	if r, ok := s.port.(link.Referrer); ok && qp.Path() != nil {
		r.Revoke(qp.Path())
	}
}

// failLost tells the QPs whose peer's process has ended. What that had sent before was received in this step.
func (s *shard) failLost() {
	for qp := range s.eng.qps.all() {
		if s.eng.shardOf(qp.Num) != s || qp.Path() == nil {
			continue
		}
		loss := s.eng.near.Lost(qp.Path())
		if loss == link.NotLost {
			continue
		}
		qp.PeerLost(s.now, loss == link.PeerDied)
		s.runq.push(qp)
		if loss == link.PeerDied {
			qp.Owner.(*QP).tellDeath()
		}
	}
}

// tellDeath says, once for each connection, that the process of the peer has died: also of a QP that has failed before. The shard is held.
func (qp *QP) tellDeath() {
	if f := qp.shard.eng.peerDied; f != nil && !qp.bereft {
		f(qp.Num(), qp.QP.Attr().DestQPN, qp.Path().Dst)
	}
	qp.bereft = true
}
