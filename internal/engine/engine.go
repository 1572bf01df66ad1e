package engine

import (
	"iter"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
)

// longestPacket is the longest that a transport makes: the largest path MTU and all headers.
const longestPacket = 4096 + 64

// MaxShards is how many shards an engine can have.
const MaxShards = 64

// Config says how an engine is made.
type Config struct {
	// Link carries the packets. It has a port for each shard; the engine closes it.
	Link link.Link
	// Now reads the clock, nanoseconds from some start, never going back. nil: the monotonic clock.
	Now func() int64
	// Manual means that no goroutine runs in the background: Poll, PostSend and Step do everything.
	Manual bool
	// FirstQPN is the first QP number to be given; 0: a random one.
	FirstQPN uint32
	// Limits; 0 means the default.
	MaxQPs         int // 2^20-16
	MaxMcastGroups int // 8192
	MaxMcastQPs    int // 1024 per group
}

// Engine is the data path of a device.
type Engine struct {
	link      link.Link
	now       func() int64
	manual    bool
	maxPacket int
	shards    []*shard
	qps       qpTable
	mcast     mcastTable
	lastHome  atomic.Uint32
}

// New makes an engine and starts it.
func New(c Config) *Engine {
	e := &Engine{link: c.Link, now: c.Now, manual: c.Manual, maxPacket: min(c.Link.MTU(), longestPacket)}
	if e.now == nil {
		start := time.Now()
		e.now = func() int64 { return int64(time.Since(start)) }
	}
	e.qps.max = orDefault(c.MaxQPs, 1<<20-minQPN)
	e.qps.next = c.FirstQPN
	if c.FirstQPN == 0 {
		e.qps.next = minQPN + rand.Uint32N(maxQPN-minQPN)
	}
	e.mcast.init(orDefault(c.MaxMcastGroups, 8192), orDefault(c.MaxMcastQPs, 1024))
	for i, p := range c.Link.Ports() {
		e.shards = append(e.shards, newShard(e, i, p))
	}
	if !c.Manual {
		for _, s := range e.shards {
			s.bg.start()
		}
	}
	return e
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// Close stops the engine and closes its link. The QPs have been destroyed before.
func (e *Engine) Close() error {
	for _, s := range e.shards {
		s.bg.stop()
	}
	return e.link.Close()
}

// Step runs every shard once and tells whether there is more to do at once. It is for engines in manual mode.
func (e *Engine) Step() (busy bool) {
	now := e.now()
	for _, s := range e.shards {
		s.hold()
		busy = s.step(now) || busy
		s.release()
	}
	for _, s := range e.shards {
		busy = busy || s.published()
	}
	return busy
}

// NextDeadline is the time at which a timer needs the next Step, transport.Never if none does.
func (e *Engine) NextDeadline() int64 {
	next := e.shards[0].timer.Load()
	for _, s := range e.shards[1:] {
		next = min(next, s.timer.Load())
	}
	return next
}

// Quiesce returns when every step that was under way has ended. What was removed from a table before
// is not in use by any shard afterwards (V-MR-20).
func (e *Engine) Quiesce() {
	for _, s := range e.shards {
		s.hold()
		s.release()
	}
}

// shardOf is the shard that owns QP qpn.
func (e *Engine) shardOf(qpn uint32) *shard { return e.shards[qpn%uint32(len(e.shards))] }

// homeOf chooses the shard of a new QP: that of other QPs on its CQs, so that a poller has one shard to run.
// New CQs go round the shards.
func (e *Engine) homeOf(send, recv *CQ) uint32 {
	for _, cq := range []*CQ{recv, send} {
		if m := cq.shards.Load(); m != 0 {
			return uint32(bits.TrailingZeros64(m))
		}
	}
	return e.lastHome.Add(1) % uint32(len(e.shards))
}

// yield lets other goroutines run, for the poller that finds nothing.
func (e *Engine) yield() {
	if !e.manual {
		runtime.Gosched()
	}
}

// kickOthers wakes the shards that got packets from this one.
func (s *shard) kickOthers() {
	for i := range bitsOf(s.kicks) {
		s.eng.shards[i].kick()
	}
	s.kicks = 0
}

// bitsOf goes over the numbers of the bits that are set.
func bitsOf(m uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; m != 0; m &= m - 1 {
			if !yield(bits.TrailingZeros64(m)) {
				return
			}
		}
	}
}
