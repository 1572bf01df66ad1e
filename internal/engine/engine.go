package engine

import (
	"cmp"
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/secret"
	"github.com/verbena-rdma/verbena/internal/spin"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// longestPacket is the longest packet of a transport: the largest path MTU plus all headers.
const longestPacket = 4096 + 64

// MaxShards is the maximum number of shards of an engine.
const MaxShards = 64

// Config holds the parameters of an engine.
type Config struct {
	// Open opens the link, which has one port per shard. It is called for the first QP; the engine closes the
	// link.
	Open func() (link.Link, error)
	// Started, if not nil, is called once the link is open and the shards run. It may call SetTap.
	Started func(*Engine)
	// PeerDied, if not nil, is called once for each QP whose peer process has died, with both QPNs and the peer's
	// address. silent is set if the peer may be alive: it did not answer keep-alive. PeerDied must not block or call
	// the engine.
	PeerDied func(qpn, destQPN uint32, peer netip.Addr, silent bool)
	// Now returns the time in ns; it never decreases. nil: the monotonic clock.
	Now func() int64
	// Manual disables the background goroutines: Poll, EndPost and Step do all work.
	Manual bool
	// FirstQPN is the first QPN to assign; XRC SRQ numbers start at the next one. 0: random.
	FirstQPN uint32
	// Ports tells QPs of the device's ports; see transport.Config.
	Ports transport.Ports
	// Limits; 0 means the default in parentheses.
	MaxQPs         int // (2^20-16)
	MaxMcastGroups int // (8192)
	MaxMcastQPs    int // per group (1024)
}

// Engine is the data path of a device.
type Engine struct {
	open     func() (link.Link, error)
	onStart  func(*Engine)
	peerDied func(qpn, destQPN uint32, peer netip.Addr, silent bool)
	now      func() int64
	virtual  bool // now is the program's clock, whose time may wait until all goroutines sleep
	manual   bool
	firstQPN uint32 // 0: QPNs are assigned in a secret order
	qps      qpTable
	mcast    mcastTable
	ports    transport.Ports
	srqns    numbers // numbers of XRC SRQs
	sleepers sleepers
	slowdown int64 // see spin.Slowdown

	mu      sync.Mutex // guards opening and closing
	started atomic.Bool
	// The following fields are set before started becomes true.
	link     link.Link
	near     link.Neighbours // of the link; may be nil
	wills    link.LastWills  // of the link; may be nil
	window   int             // bytes in flight to one peer; 0: bounded per QP only
	shards   []*shard
	lastHome atomic.Uint32
	// If the link assigns QPN slots: the slot of each shard, and the shard by the upper 8 bits of a QPN.
	// Otherwise spans is nil, and the shard is the QPN modulo the shard count.
	spans  []span
	spanOf [256]uint8
}

// New returns an engine. The link is opened for the first QP, so a device can be queried while another process has
// its port.
func New(c Config) *Engine {
	e := &Engine{
		open: c.Open, onStart: c.Started, peerDied: c.PeerDied, now: c.Now, manual: c.Manual,
		srqns: numbers{most: maxSRQN, last: c.FirstQPN}, ports: c.Ports,
	}
	if e.virtual = e.now != nil; !e.virtual {
		e.now = spin.NewClock().Now
	}
	if !e.manual {
		e.slowdown = spin.Slowdown(e.now)
	}
	e.qps.max = cmp.Or(c.MaxQPs, 1<<20-minQPN)
	e.firstQPN = c.FirstQPN
	e.qps.whole = newSpan(minQPN, maxQPN, c.FirstQPN)
	if c.FirstQPN == 0 {
		e.srqns.order = secret.NewSequence(maxSRQN, nil)
	}
	e.mcast.init(cmp.Or(c.MaxMcastGroups, 8192), cmp.Or(c.MaxMcastQPs, 1024))
	return e
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
		return fmt.Errorf("engine: the link has %d ports: must be 1 to %d: %w", len(ports), MaxShards, syscall.EINVAL)
	}
	e.link = l
	c := l.Capabilities()
	e.window = c.RecvBuffer / 2
	for i, p := range ports {
		e.shards = append(e.shards, newShard(e, i, p))
	}
	e.number(c.QPNs)
	e.near, e.wills = c.Neighbours, c.LastWills
	if e.near != nil {
		e.near.OnLost(e.notePeerLost)
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

// ReserveNum reserves a QPN for a QP that the engine does not run, such as one of raw packets. FreeNum frees it.
func (e *Engine) ReserveNum() (uint32, error) { return e.qps.reserve(0, 1) }

// FreeNum frees a number of ReserveNum.
func (e *Engine) FreeNum(n uint32) { e.qps.remove(n) }

// Link returns the engine's link, nil before the first QP.
func (e *Engine) Link() link.Link {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.link
}

// LastWills returns that of the link; nil before the first QP, and if the link has none.
func (e *Engine) LastWills() link.LastWills {
	if !e.started.Load() {
		return nil
	}
	return e.wills
}

// Close stops the engine and closes its link. All QPs must have been destroyed.
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
		s.acks.forget()
		s.release()
	}
	e.qps.close()
	return e.link.Close()
}

// running returns the shards, none before the first QP.
func (e *Engine) running() []*shard {
	if !e.started.Load() {
		return nil
	}
	return e.shards
}

// Step runs every shard once and reports whether there is more to do at once. It is for engines in manual mode.
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

// Never is the deadline of an engine without pending timers.
const Never = transport.Never

// NextDeadline returns the time of the next timer, or Never.
func (e *Engine) NextDeadline() int64 {
	next := int64(transport.Never)
	for _, s := range e.running() {
		next = min(next, s.timer.Load())
	}
	return next
}

// Quiesce returns when every step in progress has ended. Objects removed from a table before the call are then no
// longer in use by a shard (V-MR-20).
func (e *Engine) Quiesce() {
	for _, s := range e.running() {
		s.hold()
		s.release()
	}
}

// number assigns the link's QPN ranges, if any, to the shards.
func (e *Engine) number(ranges []link.QPNRange) {
	for i, r := range ranges {
		for b := r.First >> 16; b <= r.Last>>16; b++ {
			e.spanOf[b] = uint8(i)
		}
		e.spans = append(e.spans, newSpan(r.First, r.Last, e.spanStart(r.First)))
	}
}

// spanStart returns the QPN that is assigned first in a span that begins with first; 0: any.
func (e *Engine) spanStart(first uint32) uint32 {
	if e.firstQPN == 0 {
		return 0
	}
	return max(first, minQPN)
}

// shardOf returns the shard that owns QP qpn.
func (e *Engine) shardOf(qpn uint32) *shard {
	switch {
	case e.spans == nil:
		return e.shards[qpn%uint32(len(e.shards))]
	case qpn < minQPN:
		return e.shards[0]
	}
	return e.shards[e.spanOf[qpn>>16&0xFF]]
}

// homeOf chooses the shard of a new QP: that of its CQs' vector, or of other QPs on its CQs so that a poller runs one
// shard only. Other QPs are distributed in turn, except those of XRC, which all go to the first shard: a connection
// is a pair of them, and the acknowledgement that one sends must precede the answer that the other sends.
func (e *Engine) homeOf(cqs []*CQ, typ transport.Type) uint32 {
	n := uint32(len(e.shards))
	for _, cq := range cqs {
		if cq.vector != 0 {
			return uint32(cq.vector) % n
		}
		if m := cq.shards.Load(); m != 0 {
			return uint32(bits.TrailingZeros64(m))
		}
	}
	if typ == transport.XRCSend || typ == transport.XRCRecv {
		return 0
	}
	return e.lastHome.Add(1) % n
}

// kickOthers wakes the shards whose inbox received packets in this step.
func (s *shard) kickOthers() {
	if s.kicks != 0 {
		s.kickAll()
	}
}

// kickAll is apart so that kickOthers is inlined.
func (s *shard) kickAll() {
	for i := range bitsOf(s.kicks) {
		s.eng.shards[i].kick()
	}
	s.kicks = 0
}

// bitsOf yields the indices of the bits set in m.
func bitsOf(m uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; m != 0; m &= m - 1 {
			if !yield(bits.TrailingZeros64(m)) {
				return
			}
		}
	}
}
