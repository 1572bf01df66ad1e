package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// background is the goroutine that runs a shard while nobody polls. It is in one of three states:
//
//	running  in a step, or about to park
//	waiting  in port.Wait, until a packet arrives, the next timer is due, or Wake
//	dozing   some program polls, which runs the shard; sleeping without an ear for packets, to
//	         look from time to time whether it still does
//
// Parking loses no wake-up: the goroutine stores its new state (and the time until which it waits), then
// looks once more at what others publish; the others publish first and then look at its state.
type background struct {
	s      *shard
	state  atomic.Uint32
	until  atomic.Int64 // while waiting: when Wait returns by itself
	kicked atomic.Bool
	closed atomic.Bool
	rouse  chan struct{} // ends a doze
	clock  *time.Timer   // of the doze
	done   sync.WaitGroup
	linger linger
	turn   int64 // when other goroutines had their last turn
	steps  int   // with something to do, since then
}

const (
	bgOff uint32 = iota
	bgRunning
	bgWaiting
	bgDozing
)

const maxIdle = time.Hour

// Turns of other goroutines.
const (
	turnTime  = 100_000 // ns
	turnSteps = 64
)

// Times of the background goroutines; tests change them.
var (
	// pollerGone is how long after its last poll a program counts as polling, ns.
	pollerGone = int64(time.Millisecond)
	// maxDoze is the longest sleep while programs poll.
	maxDoze = 4 * time.Millisecond
	// minIdle is how long an idle shard's goroutine waits at first, to wait for ever longer then. A timer that is armed
	// while it waits needs a wake-up only when it is due earlier, and ACK timers seldom are.
	minIdle = 20 * time.Millisecond
	// stallNap is how long the goroutine waits when there is no place for any packet: the link does not tell when there is.
	stallNap = 100 * time.Microsecond
)

func (b *background) init(s *shard) {
	b.s = s
	b.rouse = make(chan struct{}, 1)
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
		if s.polled(now) && !s.published() {
			b.doze(doze)
			doze = min(2*doze, maxDoze)
			continue
		}
		doze = time.Duration(pollerGone)
		s.hold()
		busy := s.step(now)
		next, stalled := s.nextTimer(), s.stalled
		s.release()
		switch {
		case stalled: // by a receiver that needs a core to make room
			b.wait(now, min(next, now+int64(stallNap)))
		case busy:
			idle = minIdle
			b.linger.found()
			b.giveTurn(now)
		case next <= now:
		case b.linger.more(now, s.eng.slow):
			yieldCPU()
		default:
			b.wait(now, min(next, now+int64(idle)))
			idle = min(2*idle, maxIdle)
		}
	}
}

// giveTurn lets other goroutines run, after steps with something to do. That wakes a thread if the runtime has an idle P, which is for nothing
// mostly, and takes a core from the peer; so it is seldom done.
func (b *background) giveTurn(now int64) {
	if b.steps++; b.steps < turnSteps && now-b.turn < turnTime {
		return
	}
	runtime.Gosched()
	b.turn, b.steps = now, 0
}

// wait parks until a packet comes, but not after the time until.
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
	if !b.kicked.Load() && !b.closed.Load() && !b.s.published() && b.s.polled(b.s.eng.now()) {
		select {
		case <-b.clock.C:
		case <-b.rouse:
		}
	}
	b.state.Store(bgRunning)
}

// wake ends the goroutine's parking, now or as soon as it tries.
func (b *background) wake() {
	b.kicked.Store(true)
	switch b.state.Load() {
	case bgWaiting:
		b.s.port.Wake()
	case bgDozing:
		select {
		case b.rouse <- struct{}{}:
		default:
		}
	}
}

// deadline tells a waiting goroutine that a timer is due at t, before it would wake up.
func (b *background) deadline(t int64) {
	if t != transport.Never && b.state.Load() == bgWaiting && t < b.until.Load() {
		b.s.port.Wake()
	}
}

// polled tells whether a program polls the shard, so that its goroutine need not run.
func (s *shard) polled(now int64) bool { return now-s.lastPoll.Load() < pollerGone }

// kick says that the shard has work which nobody who holds it will see to.
func (s *shard) kick() {
	if b := &s.bg; b.state.Load() != bgDozing || !s.polled(s.eng.now()) {
		b.wake()
	}
}

// handOver says that a poller of the shard is about to sleep.
func (s *shard) handOver() {
	s.lastPoll.Store(-pollerGone)
	if s.bg.state.Load() == bgDozing {
		s.bg.wake()
	}
}
