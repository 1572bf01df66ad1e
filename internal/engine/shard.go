package engine

import (
	"net/netip"
	"runtime"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/spin"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// A shard runs some of the device's QPs. The fields from rx on belong to its holder.
//
// Holding: held is a lock that goroutines on the data path only try. Work for a held shard is published where its
// holder looks: doorbells, inbox, cqBroke. No wake-up is lost. A publisher first publishes, then tries the lock. A
// holder first releases the lock, then looks at what was published (release). All of these are sequentially
// consistent atomics. If the publisher's try fails, it precedes the holder's release. The publication then precedes
// the holder's look, which sees it. So either the publisher or a holder acts. Another holder in between changes
// nothing, since it looks too when it releases.
type shard struct {
	eng   *Engine
	index int
	port  link.Port

	held     atomic.Uint32 // free, busy, or postsTo with a QP number; see post.go
	waiters  atomic.Int32  // goroutines that must have the shard; those that only try stand back
	doors    atomic.Pointer[transport.QP]
	inbox    inbox
	cqBroke  atomic.Bool  // a CQ of this shard's QPs has overflowed
	lost     atomic.Bool  // a process has ended that QPs of this shard may be connected to
	timer    atomic.Int64 // time of the next timer
	lastPoll atomic.Int64 // time of the last active poll, late by at most pollNote

	bg background

	rx       link.RxBatch
	last     *transport.QP // the QP of the last packet; nil: unknown, or destroyed
	tx       *link.TxBatch
	sole     *transport.QP // the QP of all packets in tx; nil if there are several
	resent   uint64        // its RetransmitPackets before this batch
	loans    loans
	tap      link.Tap // nil unless a capture runs; also in tx
	runq     runQueue
	blocked  runQueue // QPs whose next packet the link could not take; empty between turns
	stalled  bool     // the last turn sent nothing: the link had no room
	wheel    wheel
	acks     heldAcks
	counts   counts
	polling  bool   // the step is one of a poller, so acknowledgements may be held
	took     bool   // the step has received packets
	caught   caught // completions for the poller of the step
	events   []*CQ  // CQs with moderated completion events
	eventsAt int64  // when the first of them is due
	signals  []*CQ  // CQs whose completion event is raised when the shard has sent
	kicks    uint64 // shards whose inbox received packets in this step, as bits
	counters counters
	posted   atomic.Pointer[QP] // the last one that requests were posted to, if there are many
	scratch  transport.Scratch
	attr     transport.Attr // that Modify applies, complete
	peers    map[netip.Addr]*peer
	fire     func(*transport.QP) // onTimer, bound once to avoid an allocation per step
	now      int64               // of the step
}

func newShard(e *Engine, index int, port link.Port) *shard {
	s := &shard{eng: e, index: index, port: port}
	s.peers = make(map[netip.Addr]*peer)
	s.tx = link.NewTxBatch(txPackets, txBytes)
	c := port.Capabilities()
	s.tx.Direct, s.tx.ByReference = c.Direct, c.ByReference
	s.tx.EndWithTrain, s.tx.AckLast = true, c.AckLast
	s.loans.init(s.tx)
	s.wheel.start(e.now())
	s.eventsAt, s.acks.until = transport.Never, transport.Never
	s.timer.Store(transport.Never)
	s.fire = s.onTimer
	s.bg.init(s)
	return s
}

// tryHold takes the shard if it is free and no goroutine waits for it.
func (s *shard) tryHold() bool {
	return s.waiters.Load() == 0 && s.held.CompareAndSwap(free, busy)
}

// hold takes the shard, waiting if necessary. Holders keep it for microseconds.
func (s *shard) hold() {
	if s.held.CompareAndSwap(free, busy) {
		return
	}
	s.waiters.Add(1)
	for n := 1; !s.held.CompareAndSwap(free, busy); n++ {
		pause(n) // waiters keeps others from taking the shard meanwhile
	}
	s.waiters.Add(-1)
}

// pause lets others run after try n of a goroutine that waits for the holder of a shard.
func pause(n int) {
	runtime.Gosched()
	if n%16 == 0 {
		spin.YieldCPU() // the holder's thread may be waiting for this core
	}
	if n%maxSpin == 0 {
		spin.Rest()
	}
}

// maxSpin is the number of tries before a waiter sleeps.
const maxSpin = 1 << 14

// maxHelp bounds how often release processes work published meanwhile, before it wakes the background goroutine.
const maxHelp = 8

// release releases the shard and handles the work that others published while it was held.
func (s *shard) release() {
	for n := 0; ; n++ {
		s.raiseSignals()
		next := s.nextTimer()
		more, stalled := !s.runq.empty(), s.stalled
		if more && stalled { // looks before the link has room only use up a processor
			next = min(next, s.now+int64(stallNap))
		}
		if next != s.timer.Load() {
			s.timer.Store(next)
		}
		s.held.Store(free)
		if !s.published() {
			switch {
			case more && !stalled:
				s.kick()
			case more && s.bg.state.Load() == bgDozing:
				s.kick() // nobody would look again if the program stopped polling
			default:
				s.bg.deadline(next)
			}
			return
		}
		if n == maxHelp {
			s.kick()
			return
		}
		if !s.tryHold() {
			return // the new holder looks at published work when it releases
		}
		s.now = s.eng.now()
		s.serve()
	}
}

// published reports whether others published work that needs the shard and no packet.
func (s *shard) published() bool {
	return s.doors.Load() != nil || s.cqBroke.Load() || s.lost.Load() || !s.inbox.empty()
}

// pollNote is the interval at which lastPoll is stored, ns: a store costs as much as a lock.
const pollNote = int64(5e3)

// poll runs the shard, unless it is held, for a poller that takes no completions.
func (s *shard) poll(now int64, active bool) { s.pollFor(nil, now, active, 0, 0, nil) }

// pollFor is poll for a poller of cq. It passes at most n completions to take, numbered from first, and returns their
// number.
func (s *shard) pollFor(cq *CQ, now int64, active bool, n, first int, take func(i int, e *transport.CQE)) (got int) {
	late := active && s.notePoll(now)
	if s.tryHold() {
		s.caught.begin(cq, n)
		s.polling = active
		s.step(now)
		s.polling = false
		if cq != nil && s.took {
			cq.idle.Hit() // the poller of a peer that gets WRITEs only has work and no completion
		}
		got = s.caught.end(first, take)
		s.release()
	}
	if late {
		s.noteWork(now)
	}
	return got
}

// notePoll notes a poll at the time now. It reports whether the last one is long ago, or took long.
func (s *shard) notePoll(now int64) (late bool) {
	ago := now - s.lastPoll.Load()
	if ago <= pollNote {
		return false
	}
	s.lastPoll.Store(now)
	s.bg.pace.note(1)
	return ago > seldomPoll
}

// noteWork notes the time that a poll took from the time began on: the program polled meanwhile.
func (s *shard) noteWork(began int64) {
	now := s.eng.now()
	if n := (now - began) / pollNote; n > 0 {
		s.lastPoll.Store(now)
		s.bg.pace.note(uint32(n))
	}
}
