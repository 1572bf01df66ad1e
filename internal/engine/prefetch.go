package engine

import (
	"sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/prefetch"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// manyQPs is the number of QPs of a device from which on their memory is prefetched. That of fewer QPs stays in the
// caches of a core, where asking for it only takes time: about 3 KiB for each QP.
const manyQPs = 500

// veryManyQPs is the number from which on more of it is: the receives, the programs' objects, and what the next posts
// will use. With 1,000 QPs that takes longer than it saves.
const veryManyQPs = 2500

// crowded and packed are the numbers of engines with that many QPs. They are for all, because their line is in the
// caches always: a QP, or the way from it to its engine, is not.
var crowded, packed atomic.Int32

// Crowded reports whether the memory of a QP should be asked for before it is used.
func Crowded() bool { return crowded.Load() > 0 }

// Packed reports whether more of it should be, and PrefetchFollowers be called.
func Packed() bool { return packed.Load() > 0 }

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
	if !Packed() {
		return
	}
	for _, qp := range qps[:n] {
		if qp != nil {
			qp.PrefetchReceive()
			qp.Owner.(*QP).user.Fetch() // the program answers, or posts another receive
		}
	}
}

// PrefetchFollowers asks for what the next posts will use, after a post to the QP. Programs with many peers post to
// them in the same order again and again, so each QP remembers which one was posted to after it. What the third next
// post uses is asked for now, and the send queue's slot, which is found through the QP, for the next one.
func (qp *QP) PrefetchFollowers() {
	if before := qp.shard.posted.Swap(qp); before != nil && before != qp && before.follower.Load() != qp {
		before.followerUser.Store(qp.user.First())
		before.follower.Store(qp)
	}
	next := qp.follower.Load()
	if next == nil {
		return
	}
	next.SQ.PrefetchNext()
	second := next.follower.Load()
	if second == nil {
		return
	}
	if third := second.follower.Load(); third != nil {
		prefetch.Part(third, 0, unsafe.Offsetof(third.QP))
		transport.PrefetchSend(&third.QP)
		qp.user.FetchLike(second.followerUser.Load())
	}
}

// unfollow forgets a QP that is destroyed, and which one follows it. One QP may still have it as its follower, for
// which it is only memory that is not collected yet.
func (s *shard) unfollow(qp *QP) {
	qp.follower.Store(nil)
	qp.followerUser.Store(nil)
	s.posted.CompareAndSwap(qp, nil)
}

// prefetched is the number of packets of a batch that are looked at: as many as a Recv through shared memory returns.
const prefetched = 16
