package engine

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// lostGrace is the time between the end of a peer's process and the failure of its QPs. Programs end when they are
// done, and their peers often are too, but a last message that nobody awaits is on its way: the pingpong programs end
// so. On an adapter such a message fails after its retries, when the program has seen the completions before it and has
// ended as well. A poll that returns the failure together with them makes the program fail.
const lostGrace = 2 * time.Millisecond

// notePeerLost reports that a peer process may have ended, and returns after lostGrace. It may be called from any
// goroutine.
func (e *Engine) notePeerLost() {
	for _, s := range e.shards {
		s.bg.wake() // receives what the process sent
	}
	time.Sleep(lostGrace)
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
	if f := qp.shard.eng.peerDied; f != nil && !qp.Sched.DeathReported {
		f(qp.Num(), qp.QP.Attr().DestQPN, qp.Path().Dst, false)
	}
	qp.Sched.DeathReported = true
}
