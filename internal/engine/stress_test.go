package engine

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/spin"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// bell is a CQ's owner that sleeps until a completion comes.
type bell struct{ ring chan struct{} }

func newBell() *bell { return &bell{make(chan struct{}, 1)} }

func (b *bell) Completion() {
	select {
	case b.ring <- struct{}{}:
	default:
	}
}

func (b *bell) Error() {}

// sleep waits for n completions without ever polling.
func (b *bell) sleep(t *testing.T, cq *CQ, n int) bool {
	for n > 0 {
		if err := cq.Arm(false); err != nil {
			t.Error(err)
			return false
		}
		if got := cq.pop(n, 0, func(int, *transport.CQE) {}); got > 0 {
			n -= got
			continue
		}
		select {
		case <-b.ring:
		case <-time.After(20 * time.Second):
			t.Error("a wake-up was lost: no completion in 20 s")
			return false
		}
	}
	return true
}

// noSecondLook makes the background goroutines sleep without limit, so that a lost wake-up hangs the test instead of
// causing a delay. It is called before the engine is created, which stops before the cleanup.
func noSecondLook(t *testing.T, dozeToo bool) {
	idle, gone, doze, seldom := minIdle, pollerGone, maxDoze, seldomPoll
	t.Cleanup(func() { minIdle, pollerGone, maxDoze, seldomPoll = idle, gone, doze, seldom })
	minIdle = maxIdle
	if dozeToo {
		seldomPoll = math.MaxInt64
		pollerGone, maxDoze = int64(maxIdle), maxIdle
	}
}

// Many goroutines post to QPs of two shards, sleep, and take the shards for other reasons. Every request must
// complete although no program polls.
func TestNoWakeUpIsLost(t *testing.T) {
	noSecondLook(t, false)
	e := testEngine(t, 2, Config{})
	var done sync.WaitGroup
	var stop atomic.Bool
	for i := range 4 {
		b := newBell()
		cq := e.NewCQ(256, 1+i, b)
		qa, qb := pair(t, e, cq, e.NewCQ(256, i, silent{}))
		t.Cleanup(qa.Destroy)
		t.Cleanup(qb.Destroy)
		done.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for !stop.Load() {
				n := 1 + rng.IntN(3)
				for range n {
					if err := postWrite(qa, 0); err != nil {
						t.Error(err)
						return
					}
				}
				if !b.sleep(t, cq, n) {
					return
				}
				if rng.IntN(50) == 0 {
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
				}
			}
		})
	}
	done.Go(func() { // holders without work of their own
		for !stop.Load() {
			e.Quiesce()
		}
	})
	time.Sleep(stressTime)
	stop.Store(true)
	done.Wait()
}

// The same with a poller in the mix, which comes and goes: the goroutines in the background have to notice.
func TestNoWakeUpIsLostWhenAPollerLeaves(t *testing.T) {
	noSecondLook(t, false)
	e := testEngine(t, 1, Config{})
	polled, b := e.NewCQ(256, 0, silent{}), newBell()
	slept := e.NewCQ(256, 0, b)
	qa, qb := pair(t, e, polled, polled)
	qc, qd := pair(t, e, slept, slept)
	for _, q := range []*QP{qa, qb, qc, qd} {
		t.Cleanup(q.Destroy)
	}
	var done sync.WaitGroup
	var stop atomic.Bool
	done.Go(func() {
		for !stop.Load() {
			if err := postWrite(qa, 0); err != nil {
				t.Error(err)
				return
			}
			for start := time.Now(); ; {
				n, err := polled.Poll(1, func(int, *transport.CQE) {})
				if n == 1 {
					break
				}
				if err != nil || time.Since(start) > 20*time.Second {
					t.Error("no completion in 20 s of polling", err)
					return
				}
			}
			time.Sleep(time.Duration(rand.IntN(2500)) * time.Microsecond)
		}
	})
	done.Go(func() {
		for !stop.Load() {
			if err := postWrite(qc, 0); err != nil {
				t.Error(err)
				return
			}
			if !b.sleep(t, slept, 1) {
				return
			}
		}
	})
	time.Sleep(stressTime)
	stop.Store(true)
	done.Wait()
}

// A program that polls and then asks for an event is served at once: the goroutine that stood back for it comes back.
func TestArmingHandsOverAtOnce(t *testing.T) {
	noSecondLook(t, true)
	e := testEngine(t, 1, Config{})
	b := newBell()
	cq := e.NewCQ(256, 0, b)
	qa, qb := pair(t, e, cq, cq)
	t.Cleanup(qa.Destroy)
	t.Cleanup(qb.Destroy)
	rng := rand.New(rand.NewPCG(3, 4))
	for start := time.Now(); time.Since(start) < stressTime; {
		for range rng.IntN(3) {
			cq.progress()
			time.Sleep(time.Duration(rng.IntN(2)) * 50 * time.Microsecond)
		}
		if err := cq.Arm(false); err != nil {
			t.Fatal(err)
		}
		if err := postWrite(qa, 0); err != nil {
			t.Fatal(err)
		}
		if !b.sleep(t, cq, 1) {
			return
		}
	}
}

// kicker is a port that makes a shard's goroutine be woken in the middle of its step, and says when it parks.
type kicker struct {
	link.Port
	shard  *shard
	steps  int
	parked chan int // after how many steps
}

func (*kicker) Capabilities() link.PortCapabilities { return link.PortCapabilities{} }

func (k *kicker) Recv(*link.RxBatch) int {
	if k.steps++; k.steps <= 3 {
		k.shard.bg.wake()
	}
	return 0
}

func (k *kicker) Wait(time.Duration) { k.parked <- k.steps }
func (k *kicker) Wake()              {}

// stepsOf runs a shard over port, which is the kicker or contains it, and returns the number of its steps before it
// first parks.
func (k *kicker) stepsOf(port link.Port) (n int) {
	k.shard = newShard(&Engine{now: func() int64 { return 1 << 40 }}, 0, port)
	k.shard.bg.linger = spin.ParkAtOnce()
	k.shard.bg.start()
	n = <-k.parked
	k.shard.bg.closed.Store(true)
	go func() {
		for range k.parked {
		}
	}()
	k.shard.bg.stop()
	close(k.parked)
	return n
}

// A wake-up during a step leads to another step, not to a sleep.
func TestWakeUpDuringAStep(t *testing.T) {
	k := &kicker{parked: make(chan int)}
	if n := k.stepsOf(k); n != 4 {
		t.Errorf("parked after %d steps, the third of which was told to go on", n)
	}
}

const stressTime = time.Second

// flooded is a port that has packets only for the screen, in the first reads.
type flooded struct {
	kicker
	screened int
}

func (f *flooded) Recv(b *link.RxBatch) int {
	f.steps++
	b.Screened = f.steps <= f.screened
	return 0
}

// TestScreenedPacketsKeepAwake: while the screen drops packets the goroutine reads on, since each packet would wake it.
func TestScreenedPacketsKeepAwake(t *testing.T) {
	f := &flooded{kicker{parked: make(chan int)}, 7}
	if n := f.stepsOf(f); n <= 7 {
		t.Errorf("parked after %d steps, of which 7 had packets", n)
	}
}
