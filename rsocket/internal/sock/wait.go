package sock

import (
	"os"
	"syscall"
	"time"
)

// WaitMode is how long a call waits. The zero value waits without a limit.
type WaitMode struct {
	Nonblock bool
	deadline *deadline // nil for no limit
	spun     time.Time // the start of polling
	spins    int
	limit    time.Duration // how long it polls
	long     bool          // limit is longer than the spin budget
}

func (p *WaitMode) expired() bool { return p.deadline != nil && p.deadline.expired() }

// errWouldBlock is the error of a call that must not wait.
var errWouldBlock = syscall.EAGAIN

// pause waits for a change: it polls while the spin budget lasts, then sleeps until a completion or a wake-up. An
// error ends the call: it must not wait, or the deadline has passed. mu is held, but not during the sleep.
//
// +checklocks:st.mu
func (st *Stream) pause(w *Waiter, p *WaitMode) error {
	switch {
	case st.progress():
		st.polled(p, true)
		return nil
	case p.Nonblock:
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
	case <-w.C:
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

// still bounds the polls during which the clock stands still. Virtual time waits until the program sleeps; that of
// Windows moves in steps of about a millisecond, so a long limit allows more polls, of which each takes aPoll at least.
func still(limit time.Duration) int { return int(min(max(limit/aPoll, 64), 1<<16)) }

const aPoll = 50 * time.Nanosecond

// clockEvery is the number of polls for each read of the clock.
const clockEvery = 8

// Busy reports whether the caller has polled for less than limit since it last slept.
func (p *WaitMode) Busy(limit time.Duration) bool {
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
	return gone < limit && (gone > 0 || p.spins <= still(limit))
}

// spin reports whether the spin budget is not used up (R-POLL-07). mu is held, but free for a moment.
//
// +checklocks:st.mu
func (st *Stream) spin(p *WaitMode) bool {
	if st.poll <= 0 || st.state != streamConnected {
		return false
	}
	if p.spun.IsZero() {
		p.limit, p.long = st.poll, false
		if c := Config(); c.Patient && st.poll == c.Polling {
			p.limit, p.long = st.patience.Begin(st.poll)
		}
	}
	if !p.Busy(p.limit) {
		st.polled(p, false)
		return false
	}
	st.mu.Unlock() // lets others lock it
	st.mu.Lock()
	return true
}

// polled notes the end of a long poll.
func (st *Stream) polled(p *WaitMode, found bool) {
	if p.long {
		p.long = false
		st.patience.End(p.spun, found)
	}
}
