package engine

import (
	"sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/prefetch"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// manyQPs is the number of QPs of a device from which on a post asks for the memory of its QP. That of fewer QPs stays
// in the caches of a core, where asking for it only takes time: about 1.1 KiB for each QP.
const manyQPs = 500

// veryManyQPs is the number from which on more is asked for: what received packets and the next posts will use. With
// 1,000 QPs that takes longer than it saves.
const veryManyQPs = 2500

// crowded and packed are the numbers of engines with that many QPs. They are for all, because their line is in the
// caches always: a QP, or the way from it to its engine, is not.
var crowded, packed atomic.Int32

// Crowded reports whether PrefetchSend and PrefetchRecv should be called before a post.
func Crowded() bool { return crowded.Load() > 0 }

// Packed reports whether PrefetchFollowers should be called after a post.
func Packed() bool { return packed.Load() > 0 }

// prefetchBatch asks for what the first packets of the shard's batch will use, if there are very many QPs.
func (s *shard) prefetchBatch() {
	n := min(len(s.rx.Packets), prefetched)
	if n < 2 || !Packed() {
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
			outer(qp).prefetchFor(&s.rx.Packets[i])
			qps[i] = qp
		}
	}
	for i, qp := range qps[:n] { // they have arrived meanwhile
		switch {
		case qp == nil:
		case isAck(&s.rx.Packets[i]):
			qp.PrefetchOldest()
		default:
			qp.PrefetchReceive()
			outer(qp).user.Fetch() // the program answers, or posts another receive
		}
	}
}

// outer returns the QP of which qp is a part, without reading it. All QPs in the table of an engine are such parts.
func outer(qp *transport.QP) *QP {
	return (*QP)(unsafe.Add(unsafe.Pointer(qp), -int(unsafe.Offsetof(QP{}.QP))))
}

// inner returns &qp.QP. That expression would read the QP, since the compiler checks for nil in this way.
func (qp *QP) inner() *transport.QP {
	return (*transport.QP)(unsafe.Add(unsafe.Pointer(qp), unsafe.Offsetof(qp.QP)))
}

// isAck reports whether a packet is an acknowledgement of an RC QP.
func isAck(p *link.RxPacket) bool { return wire.BTH(p.Data).Opcode() == wire.RC|wire.Ack }

// prefetchFor asks for what a packet uses of the QP, without reading the QP.
func (qp *QP) prefetchFor(p *link.RxPacket) {
	const ownRQ, ownSQ = unsafe.Offsetof(qp.OwnRQ), unsafe.Offsetof(qp.OwnSQ)
	if isAck(p) {
		qp.prefetchPart(ownSQ, unsafe.Sizeof(qp.OwnSQ))
		qp.inner().PrefetchRequester()
		return
	}
	qp.inner().PrefetchResponder()
	qp.prefetchPart(0, ownSQ) // user
	if p.Counter != nil {
		qp.prefetchPart(ownRQ, transport.UsedOfRQ)
		return
	}
	qp.prefetchPart(ownSQ, ownRQ-ownSQ+transport.UsedOfRQ) // whether something is posted is looked at
	qp.inner().PrefetchDue()
}

// PrefetchSend asks for what a request that is posted to the QP uses of it, without reading the QP.
func (qp *QP) PrefetchSend() {
	qp.prefetchPart(0, unsafe.Offsetof(qp.OwnSQ)+unsafe.Sizeof(qp.OwnSQ))
	qp.inner().PrefetchRequester()
}

// PrefetchRecv asks for what a receive that is posted to the QP uses of it, without reading the QP.
func (qp *QP) PrefetchRecv() {
	qp.prefetchPart(unsafe.Offsetof(qp.OwnRQ), transport.UsedOfRQ)
	qp.inner().PrefetchPost()
}

// prefetchPart asks for n bytes of the fields before transport.QP, without reading the QP.
func (qp *QP) prefetchPart(offset, n uintptr) { prefetch.Part(qp, offset, offset+n) }

// PrefetchFollowers asks for what the next posts will use, after a post to the QP. Programs with many peers post to
// them in the same order again and again, so each QP remembers which one was posted to after it. What the third next
// post uses is asked for now, and the send queue's slot, which is found through the QP, for the second next.
func (qp *QP) PrefetchFollowers() {
	if before := qp.shard.posted.Swap(qp); before != nil && before != qp && before.follower.Load() != qp {
		before.followerUser.Store(qp.user.First())
		before.follower.Store(qp)
	}
	next := qp.follower.Load()
	if next == nil {
		return
	}
	second := next.follower.Load()
	if second == nil {
		return
	}
	second.OwnSQ.PrefetchNext()
	if third := second.follower.Load(); third != nil {
		third.PrefetchSend()
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
