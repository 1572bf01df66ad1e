package rsocket

import (
	"sync"
	"sync/atomic"
	"time"
)

// deadline is a moment at which waiting ends. Its zero value never comes.
type deadline struct {
	some  atomic.Bool // there is a moment, so that it is worth looking closer
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{} // closed when the moment has come; nil until somebody needs it
}

// set changes the moment; zero for never. One in the past has come.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		d.over = nil // the timer has closed it, or is about to: it has its own copy
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

// wait is closed when the moment has come.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == nil {
		d.over = make(chan struct{})
	}
	return d.over
}

// expired tells whether the moment has come.
func (d *deadline) expired() bool {
	if !d.some.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expiredLocked()
}

func (d *deadline) expiredLocked() bool {
	select {
	case <-d.over:
		return d.over != nil
	default:
		return false
	}
}
