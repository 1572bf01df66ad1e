package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/notify"
	"github.com/verbena-rdma/verbena/internal/spin"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// background is the goroutine that runs a shard while no program polls. Its states are:
//
//	running  in a step, or about to park
//	waiting  in port.Wait, until a packet arrives, the next timer is due, or Wake is called
//	dozing   a program polls all the time and thereby runs the shard; the goroutine sleeps and checks from
//	         time to time that the program still polls
//
// No wake-up is lost when it parks: the goroutine stores its new state and the time until which it waits, then looks
// once more at published work. Publishers publish first and then read its state.
type background struct {
	s      *shard
	state  atomic.Uint32
	until  atomic.Int64 // while waiting: when Wait returns by itself
	kicked atomic.Bool
	closed atomic.Bool
	watch  atomic.Bool   // pollers hold acknowledgements
	alert  int64         // until then dozes are short while they do: the goroutine has found some that were due
	undoze chan struct{} // ends a doze
	clock  *time.Timer   // ends a doze
	done   sync.WaitGroup
	linger spin.Linger
	room   spin.Linger // for room in the link
	turn   int64       // time of the last Gosched
	steps  int         // steps with work since then
	mem    memSpin
	pace   pace
}

const (
	bgOff uint32 = iota
	bgRunning
	bgWaiting
	bgDozing
)

const maxIdle = time.Hour

// timerLate is the delay from which the background goroutine handles a timer although a program polls, ns.
const timerLate = int64(100e3)

// alertTime is how long dozes are short after the goroutine has sent acknowledgements that were held too long, ns.
const alertTime = int64(1e9)

// Interval between two calls of Gosched.
const (
	turnTime  = 100_000 // ns
	turnSteps = 64
)

// Times of the background goroutines, and what they call. Variables, because tests change them.
var (
	// pollerGone is how long after its last poll a program counts as polling, in ns.
	pollerGone = int64(time.Millisecond)
	// maxDoze is the longest sleep while programs poll.
	maxDoze = 4 * time.Millisecond
	// minIdle is how long the goroutine of an idle shard first waits; each further wait is longer. A timer that
	// is armed meanwhile causes a wake-up only if it is due earlier, which is rare for ACK timers.
	minIdle = 20 * time.Millisecond
	// stallNap is how long the goroutine waits when the link has no room: the link does not signal room.
	stallNap = 100 * time.Microsecond
	// gosched lets other goroutines run.
	gosched = runtime.Gosched
)

func (b *background) init(s *shard) {
	b.s = s
	b.mem.time = spin.CPUTime
	b.undoze = make(chan struct{}, 1)
}

func (b *background) start() {
	b.clock = time.NewTimer(0)
	b.state.Store(bgRunning)
	b.done.Add(1)
	go b.loop()
}

// stop ends the goroutine and waits for it.
func (b *background) stop() {
	if b.state.Load() == bgOff {
		return
	}
	b.closed.Store(true)
	b.wake()
	b.done.Wait()
}

func (b *background) loop() {
	defer b.done.Done()
	defer b.clock.Stop()
	s, doze, idle := b.s, time.Duration(pollerGone), minIdle
	for !b.closed.Load() {
		b.kicked.Store(false)
		now := s.eng.now()
		if s.polled(now) && !s.published() && !s.overdue(now) && !b.mem.on(now) && !b.pace.rare(now) {
			b.mem.begin(now)
			if b.watch.Load() && b.watch.Swap(false) && now < b.alert {
				doze = time.Duration(pollerGone)
			}
			b.doze(doze)
			doze = min(2*doze, maxDoze)
			continue
		}
		doze = time.Duration(pollerGone)
		s.hold()
		if s.acks.n > 0 {
			b.alert = now + alertTime
		}
		ready := notify.Goroutines()
		busy := s.step(now)
		next, stalled := s.nextTimer(), s.stalled
		s.release()
		if notify.Goroutines() != ready { // they wait for this P
			b.letRun(now)
		}
		b.mem.looked(now, busy && s.silent(now))
		switch {
		case stalled && b.room.More(now, s.eng.slowdown):
			spin.YieldCPU() // the receiver may need this core to make room
		case stalled:
			b.wait(now, min(next, now+int64(stallNap)))
		case busy:
			idle = minIdle
			b.room.Found()
			b.linger.Found()
			b.yieldTurn(now)
		case next <= now:
		case !s.eng.virtual && b.mem.naps(now): // virtual time does not pass during a nap
			spin.ShortSlice()
			spin.Nap()
			b.yieldTurn(now)
		case b.mem.lingers(now) && b.linger.More(now, s.eng.slowdown):
			spin.YieldCPU()
		default:
			b.mem.park(now, s.lastPoll.Load())
			b.wait(now, min(next, now+int64(idle)))
			idle = min(2*idle, maxIdle)
		}
	}
}

// yieldTurn lets other goroutines run after steps with work. A Gosched usually wakes an idle P needlessly and takes a
// core from the peer, so it is rare.
func (b *background) yieldTurn(now int64) {
	if b.steps++; b.steps >= turnSteps || now-b.turn >= turnTime {
		b.letRun(now)
	}
}

// letRun lets other goroutines run.
func (b *background) letRun(now int64) {
	gosched()
	b.turn, b.steps = now, 0
}

// wait parks until a packet arrives, but not beyond time until.
func (b *background) wait(now, until int64) {
	s := b.s
	b.until.Store(until)
	b.state.Store(bgWaiting)
	if !b.kicked.Load() && !b.closed.Load() && !s.published() && s.timer.Load() >= until {
		s.port.Wait(time.Duration(until - now))
	}
	b.state.Store(bgRunning)
}

// doze sleeps for d while programs poll.
func (b *background) doze(d time.Duration) {
	b.clock.Reset(d)
	b.state.Store(bgDozing)
	if !b.kicked.Load() && !b.closed.Load() && !b.s.published() && b.s.polled(b.s.eng.now()) &&
		!b.s.overdue(b.s.eng.now()) {
		select {
		case <-b.clock.C:
		case <-b.undoze:
		}
	}
	b.state.Store(bgRunning)
}

// wake ends the goroutine's parking, now or as soon as it parks.
func (b *background) wake() {
	b.kicked.Store(true)
	switch b.state.Load() {
	case bgWaiting:
		b.s.port.Wake()
	case bgDozing:
		select {
		case b.undoze <- struct{}{}:
		default:
		}
	}
}

// deadline wakes a waiting goroutine if a timer is due at t, before the end of its wait.
func (b *background) deadline(t int64) {
	if t != transport.Never && b.state.Load() == bgWaiting && t < b.until.Load() {
		b.s.port.Wake()
	}
}

// polled reports whether a program polls the shard, so that its goroutine need not run.
func (s *shard) polled(now int64) bool { return now-s.lastPoll.Load() < pollerGone }

// silent reports whether the program stopped polling without a sleep at a CQ.
func (s *shard) silent(now int64) bool { return !s.polled(now) && s.lastPoll.Load() > 0 }

// overdue reports whether a timer of the shard is late, because the program has stopped polling a moment ago.
func (s *shard) overdue(now int64) bool { return now-s.timer.Load() > timerLate }

// kick wakes the background goroutine for work that no holder will handle.
func (s *shard) kick() {
	if b := &s.bg; b.state.Load() != bgDozing || !s.polled(s.eng.now()) {
		b.wake()
	}
}

// handOver lets the background goroutine take over, because a poller of the shard is about to sleep.
func (s *shard) handOver() {
	s.lastPoll.Store(-pollerGone)
	if s.bg.state.Load() == bgDozing {
		s.bg.wake()
	}
}
