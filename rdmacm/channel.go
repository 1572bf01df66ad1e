package rdmacm

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// EventChannel is where IDs report their events (struct rdma_event_channel). It is safe for concurrent use; each event
// goes to one caller. An ID's events come in the order they happened in.
type EventChannel struct {
	host *Host

	mu       sync.Mutex
	queue    []*Event
	closed   bool
	nonblock bool
	ids      map[*ID]struct{}
	fd       *notify.FD // readable while there are events; made when it is first asked for
	ready    chan struct{}
	done     chan struct{}
}

// CreateEventChannel makes a channel for IDs of the default host (rdma_create_event_channel).
func CreateEventChannel() (*EventChannel, error) { return defaultHost.CreateEventChannel() }

// CreateEventChannel makes a channel for IDs of this host (rdma_create_event_channel).
func (h *Host) CreateEventChannel() (*EventChannel, error) { return newChannel(h), nil }

func newChannel(h *Host) *EventChannel {
	return &EventChannel{host: h, ids: map[*ID]struct{}{}, ready: make(chan struct{}, 1), done: make(chan struct{})}
}

// Close destroys the channel (rdma_destroy_event_channel). IDs that are still on it are closed, without waiting for their
// events to be acknowledged. Goroutines in GetEvent get ErrClosed.
func (ch *EventChannel) Close() error {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return ch.errClosed("destroy_event_channel")
	}
	ch.closed = true
	ids := make([]*ID, 0, len(ch.ids))
	for id := range ch.ids {
		ids = append(ids, id)
	}
	close(ch.done)
	if ch.fd != nil {
		ch.fd.Close()
	}
	ch.mu.Unlock()
	for _, id := range ids {
		id.destroyOn(ch)
	}
	return nil
}

func (ch *EventChannel) errClosed(op string) error {
	return &Error{Op: op, Obj: "event channel", Errno: syscall.EINVAL, Err: ErrClosed}
}

// GetEvent waits for the next event (rdma_get_cm_event). It must be acknowledged with Ack. Retrieving an event completes what it
// tells: a QP whose connection was refused or has ended goes to ERR, one that joins a group is attached to it. It
// returns c's error when c is done, ErrClosed when the channel is closed, and EAGAIN instead of waiting after SetNonblock(true).
func (ch *EventChannel) GetEvent(c context.Context) (*Event, error) {
	const op = "get_cm_event"
	for {
		ev, nonblock, err := ch.take(op)
		if ev != nil || err != nil {
			return ev, err
		}
		if nonblock {
			return nil, &Error{Op: op, Obj: "event channel", Errno: syscall.EAGAIN, Detail: "there is no event"}
		}
		select {
		case <-ch.ready:
		case <-ch.done:
		case <-c.Done():
			return nil, c.Err()
		}
	}
}

// TryGetEvent is GetEvent without waiting: EAGAIN if there is no event (rdma_get_cm_event with O_NONBLOCK).
func (ch *EventChannel) TryGetEvent() (*Event, error) {
	const op = "get_cm_event"
	ev, _, err := ch.take(op)
	if ev == nil && err == nil {
		err = &Error{Op: op, Obj: "event channel", Errno: syscall.EAGAIN, Detail: "there is no event"}
	}
	return ev, err
}

// Events goes over the events as they come, acknowledging each one after the loop's body, until c is done or the channel is
// closed. The body must not acknowledge them, nor Close the ID of the event: that would wait for the acknowledgement. It may
// after ev.Ack, which the loop does not mind.
func (ch *EventChannel) Events(c context.Context) iter.Seq[*Event] {
	return func(yield func(*Event) bool) {
		for {
			ev, err := ch.GetEvent(c)
			if errors.Is(err, syscall.EAGAIN) {
				select {
				case <-ch.ready:
				case <-ch.done:
				case <-c.Done():
				}
				continue
			}
			if err != nil {
				return
			}
			more := yield(ev)
			_ = ev.Ack()
			if !more {
				return
			}
		}
	}
}

// Ready has a token when there may be events, for select: receive from it, then call TryGetEvent until EAGAIN.
func (ch *EventChannel) Ready() <-chan struct{} { return ch.ready }

// SetNonblock makes GetEvent, and calls of synchronous IDs that wait, return EAGAIN where they would wait (fcntl of the
// channel's fd with O_NONBLOCK). What they have begun goes on.
func (ch *EventChannel) SetNonblock(on bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.nonblock = on
}

// FD is a file descriptor that is readable while there are events (fd of struct rdma_event_channel). It is for poll, select
// and epoll only: neither read nor close it. EOPNOTSUPP where the system has no such thing. It is valid until the
// channel is closed.
func (ch *EventChannel) FD() (int, error) {
	const op = "event_channel_fd"
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return -1, ch.errClosed(op)
	}
	if ch.fd == nil {
		fd, err := notify.New()
		if err != nil {
			return -1, &Error{Op: op, Obj: "event channel", Errno: errnoOf(err), Err: err}
		}
		ch.fd = fd
		if len(ch.queue) > 0 {
			fd.Raise()
		}
	}
	return ch.fd.Num(), nil
}

// push adds an event. It tells whether the channel is open.
func (ch *EventChannel) push(ev *Event) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return false
	}
	ch.queue = append(ch.queue, ev)
	if ch.fd != nil {
		ch.fd.Raise()
	}
	ch.wake()
	return true
}

func (ch *EventChannel) wake() {
	select {
	case ch.ready <- struct{}{}:
	default:
	}
}

// take takes the oldest event, nil if there is none.
func (ch *EventChannel) take(op string) (ev *Event, nonblock bool, err error) {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return nil, false, ch.errClosed(op)
	}
	if len(ch.queue) == 0 {
		nonblock = ch.nonblock
		ch.mu.Unlock()
		return nil, nonblock, nil
	}
	ev = ch.queue[0]
	ch.queue[0] = nil
	ch.queue = ch.queue[1:]
	ch.settle()
	if len(ch.queue) > 0 {
		ch.wake() // for the next waiter
	}
	ev.owner.acks.take()
	if ev.group != nil {
		ev.group.acks.take()
	}
	ch.mu.Unlock()
	ev.retrieved()
	return ev, false, nil
}

// settle keeps the descriptor in step with the queue. ch.mu is held.
func (ch *EventChannel) settle() {
	if len(ch.queue) == 0 {
		ch.queue = nil
		if ch.fd != nil {
			ch.fd.Clear()
		}
	}
}

// purge takes the events out that drop says, and returns them.
func (ch *EventChannel) purge(drop func(*Event) bool) (dropped []*Event) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.queue = slices.DeleteFunc(ch.queue, func(ev *Event) bool {
		gone := drop(ev)
		if gone {
			dropped = append(dropped, ev)
		}
		return gone
	})
	ch.settle()
	return dropped
}

func (ch *EventChannel) join(id *ID) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed {
		ch.ids[id] = struct{}{}
	}
	return !ch.closed
}

func (ch *EventChannel) leave(id *ID) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.ids, id)
}
