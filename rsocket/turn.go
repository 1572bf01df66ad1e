package rsocket

import "sync/atomic"

// turn is the right to read or to write: a lock whose waiters may wait for long, for as long as the peer takes. They do so at channels, not in a mutex: in
// a bubble of testing/synctest time stands still while anybody waits in a mutex, and then nobody would ever let go.
//
// Whoever comes when it is free gets it, though others were woken for it, since to hand it to them each time would take a wake-up for each
// message. Who has come too late often enough gets it handed.
type turn struct {
	taken   atomic.Bool
	waiting atomic.Int32
	hungry  atomic.Bool   // a waiter wants it handed
	free    chan struct{} // a token: it may be free
	hand    chan struct{} // a token: it is the hungry one's
}

// patientFor is how often a waiter comes too late.
const patientFor = 4

func (t *turn) init() { t.free, t.hand = make(chan struct{}, 1), make(chan struct{}, 1) }

// tryTake takes it if nobody has it.
func (t *turn) tryTake() bool { return t.taken.CompareAndSwap(false, true) }

// take waits for the turn.
func (t *turn) take() {
	if t.tryTake() {
		return
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	// A waiter is known before it looks, and whoever gives the turn up looks for waiters after that: one of both sees the other.
	for range patientFor {
		if t.tryTake() {
			return
		}
		<-t.free
	}
	hungry := false
	for !t.tryTake() {
		hungry = hungry || t.hungry.CompareAndSwap(false, true)
		if !hungry {
			<-t.free
			continue
		}
		select {
		case <-t.free: // given up before it was seen that somebody is hungry
		case <-t.hand:
			t.hungry.Store(false)
			return
		}
	}
	if hungry {
		t.hungry.Store(false)
	}
}

// give gives it up.
func (t *turn) give() {
	if t.hungry.Load() {
		t.hand <- struct{}{}
		return
	}
	t.taken.Store(false)
	if t.waiting.Load() > 0 {
		select {
		case t.free <- struct{}{}:
		default: // there is a token
		}
	}
}
