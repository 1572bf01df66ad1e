package engine

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// notePeerLost reports that a peer process may have ended. It may be called from any goroutine.
func (e *Engine) notePeerLost() {
	for _, s := range e.shards {
		s.lost.Store(true)
		s.bg.wake()
	}
}

// Revoke implements transport.Revoker.
func (s *shard) Revoke(qp *transport.QP) {
	if s.tx.ByReference != nil && qp.Path() != nil {
		s.tx.ByReference.Revoke(qp.Path())
	}
}

// failLost fails the QPs whose peer process has ended. Everything that the process sent was received before.
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
			qp.Owner.(*QP).reportDeath()
		}
	}
}

// reportDeath reports, once per connection, that the peer process has died, also if the QP has failed before. The
// shard is held.
func (qp *QP) reportDeath() {
	if f := qp.shard.eng.peerDied; f != nil && !qp.deathReported {
		f(qp.Num(), qp.QP.Attr().DestQPN, qp.Path().Dst, false)
	}
	qp.deathReported = true
}
