package sock

import (
	"sync"
	"sync/atomic"
	"time"
)

// deadline is a time at which waiting ends. The zero value is no deadline.
type deadline struct {
	some atomic.Bool // there is a deadline: a fast check without mu
	mu   sync.Mutex
	// +checklocks:mu
	timer *time.Timer
	// +checklocks:mu
	over chan struct{} // closed when the deadline expires; made when it is first needed
}

// set changes the time; the zero time stands for no deadline. A time in the past expires the deadline at once.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		d.over = nil // the timer closes its own copy of it
	}
	d.timer = nil
	if d.expiredLocked() {
		d.over = nil
	}
	d.some.Store(!t.IsZero())
	if t.IsZero() {
		return
	}
	if d.over == nil {
		d.over = make(chan struct{})
	}
	over := d.over
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { close(over) })
	} else {
		close(over)
	}
}

// wait returns a channel that is closed when the deadline expires.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == nil {
		d.over = make(chan struct{})
	}
	return d.over
}

// expired reports whether the deadline has passed.
func (d *deadline) expired() bool {
	if !d.some.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expiredLocked()
}

// expiredLocked is expired with mu held.
//
// +checklocks:d.mu
func (d *deadline) expiredLocked() bool {
	select {
	case <-d.over:
		return d.over != nil
	default:
		return false
	}
}

// setDeadlines sets the deadlines of the directions that are asked for.
func setDeadlines(t time.Time, in *direction, read bool, out *direction, write bool) {
	if read {
		in.deadline.set(t)
	}
	if write {
		out.deadline.set(t)
	}
}
