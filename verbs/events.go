package verbs

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// ackCount counts the delivered and the acknowledged events of an object. Close of the object waits until the counts
// are equal.
type ackCount struct {
	mu sync.Mutex
	// +checklocks:mu
	allAcked *sync.Cond // created by wait if it has to; signals that acked reached delivered
	// +checklocks:mu
	delivered uint64
	// +checklocks:mu
	acked uint64
	// +checklocks:mu
	closing bool // no more events, the object is being destroyed
}

func (a *ackCount) take() {
	a.mu.Lock()
	a.delivered++
	a.mu.Unlock()
}

// ack acknowledges n events, or all if there are fewer.
func (a *ackCount) ack(n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acked += min(n, a.delivered-a.acked)
	if a.allAcked != nil && a.acked == a.delivered {
		a.allAcked.Broadcast()
	}
}

// wait blocks until all delivered events are acknowledged. It is called once.
func (a *ackCount) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.acked != a.delivered {
		if a.allAcked == nil {
			a.allAcked = sync.NewCond(&a.mu)
		}
		a.allAcked.Wait()
	}
}

func (a *ackCount) setClosing() {
	a.mu.Lock()
	a.closing = true
	a.mu.Unlock()
}

func (a *ackCount) isClosing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closing
}

// event is an element of an eventQueue. counter returns the event counter of its object; nil if it has no object.
type event interface{ counter() *ackCount }

// named is an object with a name for errors.
type named interface{ obj() string }

// eventQueue is a queue of events. Any number of goroutines may wait for events; each event goes to one of them.
type eventQueue[T event] struct {
	mu sync.Mutex // before any ackCount.mu
	// +checklocks:mu
	items []T // those before head are taken
	// +checklocks:mu
	head int
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	removed bool // remove was called
	// +checklocks:mu
	fd *notify.FD // readable while there are items, and once removed is set; created by descriptor
	// +checklocks:mu
	units notify.Semaphore // one for each item, and one for removed; set by count
	// +checklocks:mu
	told func()                // see seam.OnEvent; nil for none
	none atomic.Pointer[Error] // what try returns if there is no event, made once

	// Both are nil until somebody waits; see waiting.
	// +checklocks:mu
	ready chan struct{} // holds a token if there may be items
	// +checklocks:mu
	ended chan struct{} // closed by close or remove, whichever is first
}

// waiting returns the channels for those who wait.
func (q *eventQueue[T]) waiting() (ready, ended <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ready == nil {
		q.ready, q.ended = make(chan struct{}, 1), make(chan struct{})
		if q.head < len(q.items) || q.removed {
			q.wake()
		}
		if q.closed || q.removed {
			close(q.ended)
		}
	}
	return q.ready, q.ended
}

// push adds an event, unless the queue is closed or the event's object is being destroyed.
func (q *eventQueue[T]) push(ev T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := ev.counter(); q.closed || c != nil && c.isClosing() {
		return
	}
	if len(q.items) == cap(q.items) && q.head > 0 && q.head >= len(q.items)/2 {
		q.keep(append(q.items[:0], q.items[q.head:]...))
	}
	q.items = append(q.items, ev)
	q.tell()
}

// tell makes the change known to those who wait.
//
// +checklocks:q.mu
func (q *eventQueue[T]) tell() {
	if q.fd != nil {
		q.fd.Raise()
	}
	q.units.Add(1)
	q.wake()
	if q.told != nil {
		q.told()
	}
}

// onEvent sets the function of seam.OnEvent.
func (q *eventQueue[T]) onEvent(f func()) {
	q.mu.Lock()
	q.told = f
	q.mu.Unlock()
}

// pushOnce is push, unless an equal event is queued already.
func (q *eventQueue[T]) pushOnce(ev T) {
	q.mu.Lock()
	waits := slices.ContainsFunc(q.items[q.head:], func(o T) bool { return event(o) == event(ev) })
	q.mu.Unlock()
	if !waits {
		q.push(ev)
	}
}

// wake puts the token into ready.
//
// +checklocks:q.mu
func (q *eventQueue[T]) wake() {
	if q.ready == nil {
		return
	}
	select {
	case q.ready <- struct{}{}:
		notify.Goroutine()
	default:
	}
}

// remove notes that the device was removed: calls that find no event return EIO from now on, and no longer wait.
func (q *eventQueue[T]) remove() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.removed {
		return
	}
	q.removed = true
	q.tell()
	q.endWaits()
}

// queueEnd says why an empty queue gets no more events.
type queueEnd int

const (
	queueOpen queueEnd = iota
	queueClosed
	queueRemoved
)

// err returns ErrClosed or EIO.
func (e queueEnd) err(op string, owner named) error {
	if e == queueClosed {
		return errClosed(op, owner.obj())
	}
	return errRemoved(op, owner)
}

// take removes the oldest event; end is of a queue without one. paid: the caller has read the event's unit from the
// descriptor of count, if there is one.
func (q *eventQueue[T]) take(paid bool) (ev T, found bool, end queueEnd) {
	q.mu.Lock()
	defer q.mu.Unlock()
	found = q.head < len(q.items)
	switch {
	case paid:
		q.units.Popped(found)
	case found:
		q.units.Remove(1)
	}
	switch {
	case found:
	case q.closed:
		return ev, false, queueClosed
	case q.removed:
		if paid {
			q.units.Add(1) // the next reader does not wait either
		}
		return ev, false, queueRemoved
	default:
		return ev, false, queueOpen
	}
	ev, q.items[q.head] = q.items[q.head], ev
	if q.head++; q.head < len(q.items) {
		q.wake() // for the next waiter: push may have found the token still there
	} else {
		q.keep(q.items[:0])
	}
	if c := ev.counter(); c != nil {
		c.take()
	}
	return ev, true, queueOpen
}

// try removes the oldest event. Without one it returns the error of the queue's end.
func (q *eventQueue[T]) try(op string, owner named) (T, error) {
	ev, found, end := q.take(true)
	switch {
	case found:
		return ev, nil
	case end != queueOpen:
		return ev, end.err(op, owner)
	}
	none := q.none.Load()
	if none == nil {
		none = &Error{Op: op, Obj: owner.obj(), Errno: EAGAIN, Detail: "there is no event"}
		q.none.Store(none)
	}
	return ev, none
}

// get waits for an event.
func (q *eventQueue[T]) get(ctx context.Context, op string, owner named) (T, error) {
	for {
		ev, found, end := q.take(false)
		switch {
		case found:
			return ev, nil
		case end != queueOpen:
			return ev, end.err(op, owner)
		}
		ready, closing := q.waiting()
		select {
		case <-ready:
		case <-closing:
		case <-ctx.Done():
			return ev, ctx.Err()
		}
	}
}

// keep makes items, a prefix of q.items' array, the queue and clears the rest.
//
// +checklocks:q.mu
func (q *eventQueue[T]) keep(items []T) {
	clear(q.items[len(items):])
	q.items, q.head = items, 0
	if len(items) == 0 && q.fd != nil && !q.removed {
		q.fd.Clear()
	}
}

// purge drops the queued events of an object and prevents later ones.
func (q *eventQueue[T]) purge(of *ackCount) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of.setClosing()
	kept := q.items[:0]
	for _, ev := range q.items[q.head:] {
		if ev.counter() != of {
			kept = append(kept, ev)
		}
	}
	q.units.Remove(len(q.items) - q.head - len(kept))
	q.keep(kept)
}

// descriptor returns the queue's file descriptor.
func (q *eventQueue[T]) descriptor(op string, owner named) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return -1, errClosed(op, owner.obj())
	}
	if q.fd == nil {
		fd, err := notify.New()
		if err != nil {
			return -1, driverError(op, owner.obj(), err)
		}
		q.fd = fd
		if q.head < len(q.items) || q.removed {
			fd.Raise()
		}
	}
	return q.fd.Num(), nil
}

// count counts the events in a semaphore of the caller from now on, those of the queue included; -1: no longer. See
// seam.CountEvents.
func (q *eventQueue[T]) count(fd int, op string, owner named) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed(op, owner.obj())
	}
	var units notify.Semaphore
	if fd >= 0 {
		var err error
		if units, err = notify.NewSemaphore(fd); err != nil {
			return driverError(op, owner.obj(), err)
		}
	}
	q.units = units
	q.units.Add(len(q.items) - q.head)
	if q.removed {
		q.units.Add(1)
	}
	return nil
}

// close makes every get return ErrClosed.
func (q *eventQueue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	q.items, q.head, q.units = nil, 0, notify.Semaphore{} // the owner of the descriptor may close it now
	if !q.removed {
		q.endWaits()
	}
	if q.fd != nil {
		q.fd.Close()
	}
}

// endWaits makes those who wait look at closed and removed.
//
// +checklocks:q.mu
func (q *eventQueue[T]) endWaits() {
	if q.ended != nil {
		close(q.ended)
	}
}
