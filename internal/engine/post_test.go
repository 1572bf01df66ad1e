package engine

import (
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// A poster holds the shard if that is free, and otherwise locks the queue.
func TestPosterHoldsTheShard(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(64, 0, silent{})
	qp, _ := pair(t, m.Engine, cq, m.NewCQ(64, 0, silent{}))
	s := qp.shard
	begin := func(held bool) *transport.SendQueue {
		t.Helper()
		q, err := qp.BeginPost()
		if err != nil {
			t.Fatal(err)
		}
		if q.Held() != held {
			t.Errorf("the poster holds the shard: %t, want %t", q.Held(), held)
		}
		return q
	}
	add := func(q *transport.SendQueue) {
		q.Next().Op = transport.OpWrite // +checklocksforce: BeginPost
		q.Commit()                      // +checklocksforce: BeginPost
	}
	posted := func(n uint32, shard uint32) {
		t.Helper()
		if got := qp.SQ.Posted(); got != n || s.held.Load() != shard {
			t.Errorf("%d requests were posted, the shard is %#x, want %d and %#x", got, s.held.Load(), n, shard)
		}
	}
	q := begin(true)
	posted(0, postsTo|qp.Num())
	add(q)
	qp.EndPost()
	posted(1, free)

	s.hold()
	add(begin(false))
	qp.EndPost()
	posted(2, busy)
	s.release()
	posted(2, free)

	qp.SQ.LockShared() // as a poster that has found the shard held
	if s.holdToPost(qp.Num(), qp.SQ) {
		t.Error("two posters have the queue")
	}
	posted(2, free)
	qp.SQ.UnlockShared()

	if err := qp.Modify(&transport.Attr{State: transport.Reset}, transport.MaskState); err != nil {
		t.Fatal(err)
	}
	if _, err := qp.BeginPost(); err != transport.ErrState {
		t.Errorf("in RESET: error %v", err)
	}
	posted(2, free)
}

// A poster that locks the queue waits while the holder of the shard posts to the same QP, and only then.
func TestPosterWaitsForTheHolder(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(64, 0, silent{})
	one, other := pair(t, m.Engine, cq, cq)
	if _, err := one.BeginPost(); err != nil {
		t.Fatal(err)
	}
	began := make(chan *QP)
	for _, qp := range []*QP{one, other} {
		go func() {
			if _, err := qp.BeginPost(); err != nil {
				t.Error(err)
			}
			began <- qp
		}()
	}
	if qp := <-began; qp != other {
		t.Fatal("a second poster has the queue")
	}
	select {
	case <-began:
		t.Fatal("a second poster has the queue")
	case <-time.After(20 * time.Millisecond):
	}
	one.EndPost()
	<-began
	one.EndPost()
	other.EndPost()
}

// Goroutines post to one QP at the same time, and others hold the shard. Each request completes once, and those of a
// goroutine in their order.
func TestPostersOfOneQP(t *testing.T) {
	e := testEngine(t, 1, Config{})
	cq := e.NewCQ(256, 0, silent{})
	qp, far := pair(t, e, cq, e.NewCQ(16, 0, silent{}))
	t.Cleanup(qp.Destroy)
	t.Cleanup(far.Destroy)
	const posters, each = 4, 2000
	var done sync.WaitGroup
	for i := range posters {
		done.Go(func() {
			for n := 0; n < each; {
				switch err := postWrite(qp, uint64(i)<<32|uint64(n)); err {
				case nil:
					n++
				case transport.ErrQueueFull:
					if _, err := cq.Poll(0, nil); err != nil {
						t.Error(err)
						return
					}
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	var next [posters]uint64
	end := time.Now().Add(20 * time.Second)
	for got := 0; got < posters*each && time.Now().Before(end); {
		n, err := cq.Poll(16, func(_ int, c *transport.CQE) {
			if i := c.WRID >> 32; c.Status != transport.Success || next[i] != c.WRID&(1<<32-1) {
				t.Errorf("poster %d: completion %d, status %v, want %d", i, c.WRID&(1<<32-1), c.Status, next[i])
			} else {
				next[i]++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	done.Wait()
	for i, n := range next {
		if n != each {
			t.Errorf("%d requests of poster %d have completed", n, i)
		}
	}
}
