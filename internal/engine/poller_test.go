package engine

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// Pollers that sleep instead of yielding are woken by each completion of their own and of other CQs. Their sleeps,
// and those of the background goroutines, are endless here, so that a lost wake-up hangs the test.
func TestNoWakeUpOfASleepingPollerIsLost(t *testing.T) {
	noSecondLook(t, false)
	longest := maxAwait
	t.Cleanup(func() { maxAwait = longest })
	maxAwait = 20 * time.Second
	e := testEngine(t, 2, Config{})
	var done sync.WaitGroup
	var stop atomic.Bool
	var sleeps atomic.Int64
	for i := range 4 {
		cq := e.NewCQ(256, 1+i, silent{})
		cq.idle.SleepUntil(math.MaxInt64)
		qa, qb := pair(t, e, cq, e.NewCQ(256, i, silent{}))
		t.Cleanup(qa.Destroy)
		t.Cleanup(qb.Destroy)
		done.Go(func() {
			for n := 0; !stop.Load(); n = (n + 1) % 4 {
				for range n + 1 {
					if err := postWrite(qa, 0); err != nil {
						t.Error(err)
						return
					}
				}
				start := time.Now()
				for left := n + 1; left > 0; {
					got, err := cq.Poll(left, func(int, *transport.CQE) {})
					if left -= got; err != nil || time.Since(start) > maxAwait/2 {
						t.Error("a wake-up was lost", err)
						return
					}
					if cq.sleeper.Load() != nil {
						sleeps.Add(1)
					}
				}
			}
		})
	}
	done.Go(func() { // holders without work
		for !stop.Load() {
			e.Quiesce()
			time.Sleep(50 * time.Microsecond)
		}
	})
	time.Sleep(stressTime)
	stop.Store(true)
	done.Wait()
	if sleeps.Load() == 0 {
		t.Error("no poller ever slept")
	}
}

// If too many pollers sleep, further ones keep polling.
func TestTooManySleepers(t *testing.T) {
	var s sleepers
	for range s.slots {
		if _, ok := s.add(&sleeper{}); !ok {
			t.Fatal("no place")
		}
	}
	if _, ok := s.add(&sleeper{}); ok {
		t.Error("a place too many")
	}
	s.remove(3)
	if slot, ok := s.add(&sleeper{}); !ok || slot != 3 {
		t.Errorf("slot %d, %v; want 3", slot, ok)
	}
}

// A poller does not sleep where time is virtual: its caller may hold a mutex, and the time of a testing/synctest bubble
// stands still while a goroutine waits for a mutex.
func TestNoPollerSleepsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		e := testEngine(t, 1, Config{Now: func() int64 { return int64(time.Since(start)) }})
		cq := e.NewCQ(16, 1, silent{})
		cq.idle.SleepUntil(math.MaxInt64)
		qp, _ := pair(t, e, cq, e.NewCQ(16, 1, silent{}))
		defer qp.Destroy()
		var mu sync.Mutex
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() {
				for range 1000 {
					mu.Lock()
					poll(t, cq)
					mu.Unlock()
				}
			})
		}
		done.Wait()
		if gone := time.Since(start); gone > 0 {
			t.Errorf("pollers slept for %v", gone)
		}
	})
}

// With one P a poller runs the shards whose goroutines wait for their sockets. The runtime would not look at these as
// long as the poller does not block.
func TestPollerWithOnePRunsAllShards(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := testEngine(t, 2, Config{})
	cq := e.NewCQ(16, 1, silent{})
	qa, qb := pair(t, e, cq, e.NewCQ(16, 1, silent{}))
	defer qa.Destroy()
	defer qb.Destroy()
	s := e.shards[0]
	if cq.shards.Load()&1 != 0 {
		s = e.shards[1]
	}
	if cq.shards.Load()>>s.index&1 != 0 {
		t.Fatal("the CQ has QPs of both shards")
	}
	stepped := func() int64 {
		s.hold()
		defer s.release()
		return s.now
	}
	begin := stepped()
	for range 1000 { // its own goroutine may hold it
		poller{cq}.Sched()
		if stepped() > begin {
			return
		}
	}
	t.Error("the poller does not run the other shard")
}

// A poll that takes packets is not an empty one, although none of them completes a request of the poller: it must not
// yield the core while the peer WRITEs.
func TestPollsThatReceiveAreNotEmpty(t *testing.T) {
	m := newManual(t, 1)
	a, b := m.NewCQ(64, 0, silent{}), m.NewCQ(64, 0, silent{})
	qa, qb := pair(t, m.Engine, a, b)
	defer qa.Destroy()
	defer qb.Destroy()
	for i := range uint64(200) {
		if err := postWrite(qa, i); err != nil {
			t.Fatal(err)
		}
		if n := poll(t, b); n != 0 || b.idle.Misses() > 1 {
			t.Fatalf("poll %d returned %d completions, %d polls were empty", i, n, b.idle.Misses())
		}
		for poll(t, a) == 0 {
			m.now++
		}
	}
	for i := range uint32(3) {
		poll(t, b)
		if b.idle.Misses() != i+2 {
			t.Errorf("%d polls were empty, want %d", b.idle.Misses(), i+2)
		}
	}
}
