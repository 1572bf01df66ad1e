package engine

import (
	"github.com/verbena-rdma/verbena/internal/prefetch"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// manyQPs is the number of QPs of a device from which on their memory is prefetched. That of fewer QPs stays in the
// caches of a core, where asking for it only takes time: about 3 KiB for each QP.
const manyQPs = 2000

// prefetchBatch asks for what the first packets of the shard's batch will use, unless the device has few QPs.
func (s *shard) prefetchBatch() {
	n := min(len(s.rx.Packets), prefetched)
	if n < 2 || !s.eng.qps.many.Load() {
		return
	}
	var qps [prefetched]*transport.QP
	for i := range n {
		n := wire.BTH(s.rx.Packets[i].Data).DestQPN()
		if s.eng.shardOf(n) != s {
			continue
		}
		if qp := s.eng.qps.get(n); qp != nil {
			prefetch.Value(qp)
			qps[i] = qp
		}
	}
	for _, qp := range qps[:n] {
		if qp != nil {
			qp.PrefetchQueues() // reads the QP, which has arrived meanwhile
		}
	}
}

// prefetched is the number of packets of a batch that are looked at: as many as a Recv through shared memory returns.
const prefetched = 16

// prefetch asks for the memory of a QP to which a request will be posted.
func (qp *QP) prefetch() {
	if qp.shard.eng.qps.many.Load() {
		prefetch.Value(qp.QP)
		prefetch.Value(qp.SQ)
	}
}
