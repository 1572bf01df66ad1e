package rsocket

import (
	"os"
	"syscall"
	"time"
)

// patience is how long a call waits.
type patience struct {
	nonblock bool
	deadline *deadline // nil for ever
	spun     time.Time // since when it has been busy waiting
	spins    int
}

func (p *patience) expired() bool { return p.deadline != nil && p.deadline.expired() }

// errWouldBlock is the error of a call that must not wait.
var errWouldBlock = syscall.EAGAIN

// pause waits until there may be a change. First it polls for a while, then it sleeps until the device or another goroutine has
// something to tell. Its error says that the call is over: it must not wait, or the deadline has come. mu is held, but not while
// it sleeps.
func (st *stream) pause(w *waiter, p *patience) error {
	switch {
	case st.progress():
		return nil
	case p.nonblock:
		return errWouldBlock
	case p.expired():
		return os.ErrDeadlineExceeded
	case st.spin(p):
		return nil
	case st.arm():
		return nil
	}
	w.on = true
	ready := st.res.event
	st.mu.Unlock()
	var over <-chan struct{}
	if p.deadline != nil {
		over = p.deadline.wait()
	}
	event := false
	var err error
	select {
	case <-w.c:
	case <-ready:
		event = true
	case <-over:
		err = os.ErrDeadlineExceeded
	}
	st.mu.Lock()
	w.on = false
	if event {
		st.onCQEvent()
	}
	p.spun = time.Time{}
	return err
}

// maxStill is how often busy waiting looks at a clock that stands still: virtual time waits for the program to sleep.
const maxStill = 64

// clockEvery is how many looks share one at the clock, while there is time left.
const clockEvery = 8

// busy tells whether the caller has not been busy waiting for limit yet.
func (p *patience) busy(limit time.Duration) bool {
	if !p.spun.IsZero() && p.spins%clockEvery != 0 {
		p.spins++
		return true
	}
	now := time.Now()
	if p.spun.IsZero() {
		p.spun, p.spins = now, 0
	}
	p.spins++
	gone := now.Sub(p.spun)
	return gone < limit && (gone > 0 || p.spins <= maxStill)
}

// spin tells whether the time of busy waiting is not over (R-POLL-07).
func (st *stream) spin(p *patience) bool {
	if st.poll <= 0 || st.state != streamConnected {
		return false
	}
	if !p.busy(st.poll) {
		return false
	}
	st.mu.Unlock() // others must get it
	st.mu.Lock()
	return true
}
