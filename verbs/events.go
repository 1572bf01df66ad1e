package verbs

import (
	"context"
	"sync"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// ackCount counts the events of an object that were got and acknowledged. An object is not gone before they are
// equal.
type ackCount struct {
	mu         sync.Mutex
	settled    *sync.Cond // made by wait
	got, acked uint64
	retired    bool // no more events, the object is being destroyed
}

func (a *ackCount) take() {
	a.mu.Lock()
	a.got++
	a.mu.Unlock()
}

// ack acknowledges n events, or all if that is fewer.
func (a *ackCount) ack(n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acked += min(n, a.got-a.acked)
	if a.settled != nil && a.acked == a.got {
		a.settled.Broadcast()
	}
}

// wait blocks until all events that were got are acknowledged.
func (a *ackCount) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled == nil {
		a.settled = sync.NewCond(&a.mu)
	}
	for a.acked != a.got {
		a.settled.Wait()
	}
}

func (a *ackCount) retire() {
	a.mu.Lock()
	a.retired = true
	a.mu.Unlock()
}

func (a *ackCount) isRetired() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.retired
}

// event is what an eventQueue holds. counter counts the events of the object that it belongs to; nil if it belongs to
// none.
type event interface{ counter() *ackCount }

// named is an object that errors name.
type named interface{ obj() string }

// eventQueue is a queue of events that any number of goroutines wait for, each event going to one of them.
type eventQueue[T event] struct {
	mu     sync.Mutex // before any ackCount.mu
	items  []T        // those before head are taken
	head   int
	closed bool
	fd     *notify.FD // readable while there are items; made when it is first asked for

	ready chan struct{} // holds a token if there may be items
	done  chan struct{} // closed with the queue
}

func newEventQueue[T event]() *eventQueue[T] {
	return &eventQueue[T]{ready: make(chan struct{}, 1), done: make(chan struct{})}
}

// push adds an event, unless the queue is closed or the event's object is being destroyed.
func (q *eventQueue[T]) push(ev T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := ev.counter(); q.closed || c != nil && c.isRetired() {
		return
	}
	if len(q.items) == cap(q.items) && q.head > 0 && q.head >= len(q.items)/2 {
		q.keep(append(q.items[:0], q.items[q.head:]...))
	}
	q.items = append(q.items, ev)
	if q.fd != nil {
		q.fd.Raise()
	}
	q.wake()
}

func (q *eventQueue[T]) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take takes the oldest event, if there is one.
func (q *eventQueue[T]) take() (ev T, found, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.items) {
		return ev, false, q.closed
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
	return ev, true, false
}

// try takes the oldest event; EAGAIN without one.
func (q *eventQueue[T]) try(op string, owner named) (T, error) {
	ev, found, closed := q.take()
	switch {
	case closed:
		return ev, errClosed(op, owner.obj())
	case !found:
		return ev, newError(op, owner.obj(), EAGAIN, "there is no event")
	}
	return ev, nil
}

// get waits for an event.
func (q *eventQueue[T]) get(c context.Context, op string, owner named) (T, error) {
	for {
		ev, found, closed := q.take()
		switch {
		case closed:
			return ev, errClosed(op, owner.obj())
		case found:
			return ev, nil
		}
		select {
		case <-q.ready:
		case <-q.done:
		case <-c.Done():
			return ev, c.Err()
		}
	}
}

// keep makes a beginning of items, from which nothing is taken, the queue, and lets go of the rest.
func (q *eventQueue[T]) keep(items []T) {
	clear(q.items[len(items):])
	q.items, q.head = items, 0
	if len(items) == 0 && q.fd != nil {
		q.fd.Clear()
	}
}

// purge drops the events of an object that nobody has got, and those to come.
func (q *eventQueue[T]) purge(of *ackCount) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of.retire()
	kept := q.items[:0]
	for _, ev := range q.items[q.head:] {
		if ev.counter() != of {
			kept = append(kept, ev)
		}
	}
	q.keep(kept)
}

// descriptor is the queue's file descriptor.
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
		if q.head < len(q.items) {
			fd.Raise()
		}
	}
	return q.fd.Num(), nil
}

// close makes every get return ErrClosed.
func (q *eventQueue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	q.items, q.head = nil, 0
	close(q.done)
	if q.fd != nil {
		q.fd.Close()
	}
}
