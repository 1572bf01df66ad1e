package engine

import (
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// longestPacket is the longest that a transport makes: the largest path MTU and all headers.
const longestPacket = 4096 + 64

// MaxShards is how many shards an engine can have.
const MaxShards = 64

// Config says how an engine is made.
type Config struct {
	// Open opens the link, which has a port for each shard. It is called for the first QP; the engine closes the link.
	Open func() (link.Link, error)
	// Started, if not nil, is called once the link is open and the shards run. It may call SetTap.
	Started func(*Engine)
	// PeerDied, if not nil, is called once for each QP whose peer's process has died, with both numbers and the peer's address. It does not
	// block, nor call the engine.
	PeerDied func(qpn, destQPN uint32, peer netip.Addr)
	// Now reads the clock, nanoseconds from some start, never going back. nil: the monotonic clock.
	Now func() int64
	// Manual means that no goroutine runs in the background: Poll, PostSend and Step do everything.
	Manual bool
	// FirstQPN is the first QP number to be given, and XRC SRQs have numbers from the next one on; 0: random ones.
	FirstQPN uint32
	// Limits; 0 means the default.
	MaxQPs         int // 2^20-16
	MaxMcastGroups int // 8192
	MaxMcastQPs    int // 1024 per group
}

// Engine is the data path of a device.
type Engine struct {
	open     func() (link.Link, error)
	onStart  func(*Engine)
	peerDied func(qpn, destQPN uint32, peer netip.Addr)
	now      func() int64
	manual   bool
	fixedQPN bool // the first QP number was given
	qps      qpTable
	mcast    mcastTable
	srqns    numbers // of XRC SRQs
	sleepers sleepers
	slow     int64 // of the pollers' patience

	mu      sync.Mutex // guards opening and closing
	started atomic.Bool
	// What follows is there once started is true.
	link      link.Link
	near      link.Neighbours // the same; nil if it knows none
	maxPacket int
	window    int // bytes in flight to one peer; 0: no bound but that of each QP
	shards    []*shard
	lastHome  atomic.Uint32
	// Where the link leads packets by ranges of QP numbers: those of each shard, and the shard by the upper 8 bits. Else spans is nil, and
	// the number is divided by the count of shards.
	spans  []span
	spanOf [256]uint8
}

// New makes an engine. It opens its link when the first QP is made, so that a device can be looked at while another
// process has its port.
func New(c Config) *Engine {
	e := &Engine{open: c.Open, onStart: c.Started, peerDied: c.PeerDied, now: c.Now, manual: c.Manual, srqns: numbers{most: maxSRQN, last: c.FirstQPN}}
	if e.now == nil {
		start := time.Now()
		e.now = func() int64 { return int64(time.Since(start)) }
	}
	if !e.manual {
		e.slow = slownessOf(e.now)
	}
	e.qps.max = orDefault(c.MaxQPs, 1<<20-minQPN)
	e.qps.next, e.fixedQPN = c.FirstQPN, c.FirstQPN != 0
	if c.FirstQPN == 0 {
		e.qps.next = minQPN + rand.Uint32N(maxQPN-minQPN)
		e.srqns.last = rand.Uint32N(maxSRQN)
	}
	e.mcast.init(orDefault(c.MaxMcastGroups, 8192), orDefault(c.MaxMcastQPs, 1024))
	return e
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// start opens the link and starts the shards, once.
func (e *Engine) start() error {
	if e.started.Load() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started.Load() {
		return nil
	}
	l, err := e.open()
	if err != nil {
		return err
	}
	ports := l.Ports()
	if len(ports) == 0 || len(ports) > MaxShards {
		_ = l.Close()
		return fmt.Errorf("engine: the link has %d ports; 1 to %d are possible: %w", len(ports), MaxShards, syscall.EINVAL)
	}
	e.link, e.maxPacket = l, min(l.MTU(), longestPacket)
	e.window = windowOf(l)
	for i, p := range ports {
		e.shards = append(e.shards, newShard(e, i, p))
	}
	e.number(l)
	e.near, _ = l.(link.Neighbours)
	if e.near != nil {
		e.near.OnLost(e.lookForLost)
	}
	if !e.manual {
		for _, s := range e.shards {
			s.bg.start()
		}
	}
	e.started.Store(true)
	if e.onStart != nil {
		e.onStart(e)
	}
	return nil
}

// ReserveNum finds a number for a QP that the engine does not run, such as one of raw packets; FreeNum gives it back.
func (e *Engine) ReserveNum() (uint32, error) { return e.qps.reserve(0, 1) }

// FreeNum gives back a number of ReserveNum.
func (e *Engine) FreeNum(n uint32) { e.qps.remove(n) }

// Link is the engine's link, nil before the first QP.
func (e *Engine) Link() link.Link {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.link
}

// Close stops the engine and closes its link. The QPs have been destroyed before.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started.Load() {
		return nil
	}
	for _, s := range e.shards {
		s.bg.stop()
		s.hold()
		s.loans.end(s.tx)
		s.release()
	}
	return e.link.Close()
}

// running lists the shards, none before the first QP.
func (e *Engine) running() []*shard {
	if !e.started.Load() {
		return nil
	}
	return e.shards
}

// Step runs every shard once and tells whether there is more to do at once. It is for engines in manual mode.
func (e *Engine) Step() (busy bool) {
	now := e.now()
	for _, s := range e.running() {
		s.hold()
		busy = s.step(now) || busy
		s.release()
	}
	for _, s := range e.running() {
		busy = busy || s.published()
	}
	return busy
}

// Never is the deadline of an engine that waits for nothing.
const Never = transport.Never

// NextDeadline is the time at which a timer needs the next Step, Never if none does.
func (e *Engine) NextDeadline() int64 {
	next := int64(transport.Never)
	for _, s := range e.running() {
		next = min(next, s.timer.Load())
	}
	return next
}

// Quiesce returns when every step that was under way has ended. What was removed from a table before
// is not in use by any shard afterwards (V-MR-20).
func (e *Engine) Quiesce() {
	for _, s := range e.running() {
		s.hold()
		s.release()
	}
}

// number asks the link which QP numbers are whose.
func (e *Engine) number(l link.Link) {
	n, ok := link.As[link.Numbered](l)
	if !ok {
		return
	}
	var spans []span
	for i := range e.shards {
		first, last, ok := n.QPNs(i)
		if !ok {
			return
		}
		for b := first >> 16; b <= last>>16; b++ {
			e.spanOf[b] = uint8(i)
		}
		spans = append(spans, newSpan(first, last, !e.fixedQPN))
	}
	e.spans = spans
}

// shardOf is the shard that owns QP qpn.
func (e *Engine) shardOf(qpn uint32) *shard {
	switch {
	case e.spans == nil:
		return e.shards[qpn%uint32(len(e.shards))]
	case qpn < minQPN:
		return e.shards[0]
	}
	return e.shards[e.spanOf[qpn>>16&0xFF]]
}

// homeOf chooses the shard of a new QP: that of its CQs' vector or of other QPs on its CQs, so that a poller has one shard to
// run. Otherwise QPs go round the shards.
func (e *Engine) homeOf(cqs []*CQ) uint32 {
	n := uint32(len(e.shards))
	for _, cq := range cqs {
		if cq.vector != 0 {
			return uint32(cq.vector) % n
		}
		if m := cq.shards.Load(); m != 0 {
			return uint32(bits.TrailingZeros64(m))
		}
	}
	return e.lastHome.Add(1) % n
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
