package engine

import "github.com/verbena-rdma/verbena/internal/transport"

// A goroutine that posts requests keeps others from posting to the same queue, and then runs the shard. If the shard is
// free, it takes that first, and needs no lock of the queue: shard.held says to which QP its holder posts. Otherwise it
// takes the queue's lock. The two exclude each other: the first stores its QP in shard.held and then looks whether the
// queue is locked, the second locks the queue and then looks whether the holder of the shard posts to it. At least one
// sees the other. The first then gives way, and the second waits.

// BeginPost returns the send queue, to which nobody else posts until EndPost. The caller adds work requests and then
// calls EndPost. In a state that does not permit sends it returns transport.ErrState instead (V-QPS-04).
//
// +checklocksignore: EndPost unlocks the queue.
func (qp *QP) BeginPost() (*transport.SendQueue, error) {
	q := &qp.OwnSQ
	if !qp.shard.holdToPost(qp.QP.Num, q) {
		q.LockShared()
		qp.shard.awaitPost(qp.QP.Num)
	}
	if st := qp.State(); st == transport.Reset || st == transport.Init || st == transport.RTR {
		qp.abandonPost(q)
		return nil, transport.ErrState
	}
	return q, nil
}

// EndPost ends what BeginPost has begun and sends the work requests.
//
// +checklocksignore: BeginPost has locked the queue.
func (qp *QP) EndPost() {
	q, s := &qp.OwnSQ, qp.shard
	if q.Held() {
		q.PublishHeld()
		s.sendPosted(&qp.QP)
		return
	}
	q.Publish()
	q.UnlockShared()
	s.ring(&qp.QP)
}

// abandonPost is EndPost without requests.
//
// +checklocksignore: BeginPost has locked the queue.
func (qp *QP) abandonPost(q *transport.SendQueue) {
	if q.Held() {
		q.PublishHeld()
		qp.shard.release()
		return
	}
	q.UnlockShared()
}

// Values of shard.held.
const (
	free    = 0
	busy    = 1
	postsTo = 1 << 24 // with the number of the QP
)

// holdToPost takes the shard, if it is free, for a goroutine that posts to the queue of QP num. It returns false if the
// poster must lock the queue.
func (s *shard) holdToPost(num uint32, q *transport.SendQueue) bool {
	if q.HasOwn() || s.waiters.Load() != 0 || !s.held.CompareAndSwap(free, postsTo|num) {
		return false
	}
	if !q.Hold() {
		s.release()
		return false
	}
	return true
}

// awaitPost waits while the holder of the shard posts to QP num. The caller has locked the queue.
func (s *shard) awaitPost(num uint32) {
	for n := 1; s.held.Load() == postsTo|num; n++ {
		pause(n)
	}
}

// sendPosted is ring for a poster that holds the shard. It releases the shard.
func (s *shard) sendPosted(qp *transport.QP) {
	if !s.sendShort(qp) {
		s.held.Store(busy) // others may post to the QP meanwhile
		s.now = s.eng.now()
		s.answer(qp)
		s.serve()
	}
	s.release()
}
