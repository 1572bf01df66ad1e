package engine

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// A shard runs a part of the device's QPs. Everything from rx on belongs to its holder.
//
// Holding. held is a lock that data path users only try. Work for a held shard is published where its
// holder looks: doorbells, inbox, cqBroke. No wake-up is lost: a publisher first publishes, then
// tries the lock; a holder first lets go, then looks at what was published (release). All of these
// are sequentially consistent atomics. If the publisher's try failed, it came before the holder's letting
// go, hence the publishing came before the holder's look, which therefore sees it. Either the
// publisher or a holder acts; that a second holder slipped in between does not matter, since it looks as well when it lets go.
type shard struct {
	eng   *Engine
	index int
	port  link.Port

	held     atomic.Bool
	waiters  atomic.Int32 // goroutines that must have the shard; those that only try stand back
	doors    atomic.Pointer[transport.QP]
	inbox    inbox
	cqBroke  atomic.Bool  // a CQ of this shard's QPs overflowed
	lost     atomic.Bool  // a process has ended; its peers among this shard's QPs must learn it
	timer    atomic.Int64 // when the wheel has something to do
	lastPoll atomic.Int64 // when a program polled actively

	bg background

	rx       link.RxBatch
	tx       *link.TxBatch
	sole     *transport.QP // whose packets are all of those in tx; nil if there are several QPs
	resent   uint64        // how many it had sent again before
	loans    loans
	tap      link.Tap // nil unless somebody captures; tx has it too
	runq     runQueue
	blocked  runQueue // QPs for whose next packet there is no place now; empty between turns
	stalled  bool     // the last turn sent nothing: there was no place for any packet
	wheel    wheel
	events   []*CQ  // whose completion events are held back
	eventsAt int64  // the first of them is due
	kicks    uint64 // shards whose inbox got something in this step
	counters counters
	peers    map[netip.Addr]*peer
	fire     func(*transport.QP) // bound once, so that no closure is made for each step
	now      int64               // of the step
}

func newShard(e *Engine, index int, port link.Port) *shard {
	s := &shard{eng: e, index: index, port: port}
	s.peers = make(map[netip.Addr]*peer)
	s.tx = link.NewTxBatch(txPackets, txBytes)
	if d, ok := port.(link.Direct); ok {
		s.tx.Direct = d
	}
	s.tx.EndWithTrain = true
	s.loans.init(s.tx)
	s.wheel.start(e.now())
	s.eventsAt = transport.Never
	s.timer.Store(transport.Never)
	s.fire = s.onTimer
	s.bg.init(s)
	return s
}

// tryHold takes the shard if nobody has it or waits for it.
func (s *shard) tryHold() bool {
	return s.waiters.Load() == 0 && s.held.CompareAndSwap(false, true)
}

// hold takes the shard, waiting for it. Holders keep it for microseconds.
func (s *shard) hold() {
	if s.held.CompareAndSwap(false, true) {
		return
	}
	s.waiters.Add(1)
	for n := 1; !s.held.CompareAndSwap(false, true); n++ {
		runtime.Gosched()
		if n%16 == 0 {
			yieldCPU() // the holder's thread may be waiting for this core
		}
		// No shorter sleep than a millisecond comes true, and nobody else takes the shard during it.
		if n%maxSpin == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	s.waiters.Add(-1)
}

// maxSpin is how often a goroutine that must have a shard tries before it sleeps for a while.
const maxSpin = 1 << 14

// A holder that lets go helps those who published work meanwhile so many times; then the background goroutine has to.
const maxHelp = 8

// release lets the shard go and sees to the work that others published while it was held.
func (s *shard) release() {
	for n := 0; ; n++ {
		next := s.nextTimer()
		more := !s.runq.empty()
		if next != s.timer.Load() {
			s.timer.Store(next)
		}
		s.held.Store(false)
		if !s.published() {
			if more {
				s.kick()
			} else {
				s.bg.deadline(next)
			}
			return
		}
		if n == maxHelp {
			s.kick()
			return
		}
		if !s.tryHold() {
			return // whoever has it now looks too when it lets go
		}
		s.now = s.eng.now()
		s.serve()
	}
}

// published tells whether others left work here that needs the shard held, and needs no packet to arrive.
func (s *shard) published() bool {
	return s.doors.Load() != nil || s.cqBroke.Load() || s.lost.Load() || !s.inbox.empty()
}

// poll runs the shard for a poller, unless somebody is running it.
func (s *shard) poll(now int64, active bool) {
	if active {
		s.lastPoll.Store(now)
	}
	if s.tryHold() {
		s.step(now)
		s.release()
	}
}
