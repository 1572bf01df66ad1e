package engine

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/prefetch"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// manyQPs is the number of QPs of a device from which on their memory is prefetched. That of fewer QPs stays in the
// caches of a core, where asking for it only takes time: about 3 KiB for each QP.
const manyQPs = 500

// crowded is the number of engines with that many QPs. It is one for all, because its line is in the caches always: a
// QP, or the way from it to its engine, is not.
var crowded atomic.Int32

// Crowded reports whether the memory of a QP should be asked for before it is used.
func Crowded() bool { return crowded.Load() > 0 }

// prefetchBatch asks for what the first packets of the shard's batch will use, unless there are few QPs.
func (s *shard) prefetchBatch() {
	n := min(len(s.rx.Packets), prefetched)
	if n < 2 || !Crowded() {
		return
	}
	var numbers [prefetched]uint32
	for i := range n {
		numbers[i] = wire.BTH(s.rx.Packets[i].Data).DestQPN()
		s.eng.qps.qps.Prefetch(numbers[i])
	}
	var qps [prefetched]*transport.QP
	for i, number := range numbers[:n] {
		if s.eng.shardOf(number) != s {
			continue
		}
		if qp := s.eng.qps.get(number); qp != nil {
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
