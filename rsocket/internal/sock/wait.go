package sock

import (
	"os"
	"syscall"
)

// WaitMode is how long a call waits. The zero value waits without a limit.
type WaitMode struct {
	Nonblock bool
	deadline *deadline // nil for no limit
	spin     Spin
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
		p.spin.End(true)
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
	p.spin = Spin{}
	return err
}

// spin reports whether the spin budget is not used up (R-POLL-07). mu is held, but free for a moment.
//
// +checklocks:st.mu
func (st *Stream) spin(p *WaitMode) bool {
	if st.poll <= 0 || st.state != streamConnected {
		return false
	}
	if !p.spin.begun() {
		var long *LongPolls
		if st.poll == Config().Polling {
			long = &st.longPolls
		}
		p.spin.Begin(st.poll, long)
	}
	if !p.spin.Busy() {
		p.spin.End(false)
		return false
	}
	st.mu.Unlock() // lets others lock it
	st.mu.Lock()
	return true
}
