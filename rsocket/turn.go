package rsocket

import "sync/atomic"

// turn is the right to read or to write, in the order of asking. It is a lock whose waiters may wait for long, for as long as the peer takes. They do
// so at a channel, not in a mutex: in a bubble of testing/synctest time stands still while anybody waits in a mutex, and then nobody would
// ever let go.
type turn struct {
	asked atomic.Int32  // by whoever has it and those who wait
	pass  chan struct{} // from whoever had it to the next one
}

func (t *turn) init() { t.pass = make(chan struct{}, 1) }

// take waits for the turn.
func (t *turn) take() {
	if t.asked.Add(1) > 1 {
		<-t.pass
	}
}

// tryTake takes it if nobody has it.
func (t *turn) tryTake() bool { return t.asked.CompareAndSwap(0, 1) }

// give gives it up.
func (t *turn) give() {
	if t.asked.Add(-1) > 0 {
		t.pass <- struct{}{}
	}
}
