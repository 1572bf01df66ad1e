package rdmacm

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/notify"
	"github.com/verbena-rdma/verbena/internal/seam"
)

// EventChannel is the queue of the events of IDs (struct rdma_event_channel). It is safe for concurrent use; each
// event goes to one caller. The events of an ID are in the order in which they happened.
type EventChannel struct {
	host *Host

	ready chan struct{} // has a token when there may be events
	done  chan struct{} // closed by Close

	mu sync.Mutex // its place in the order of locks: manager.go
	// +checklocks:mu
	queue []*Event // begins in first when it was empty
	// +checklocks:mu
	first [1]*Event
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	nonblock bool
	// +checklocks:mu
	ids idSet
	// Readable while there are events; made by the first FD.
	// +checklocks:mu
	fd *notify.FD
	// One for each event; see seam.CountCMEvents.
	// +checklocks:mu
	units notify.Semaphore
}

func init() {
	seam.CountCMEvents = func(channel any, fd int) error { return channel.(*EventChannel).count(fd) }
}

// CreateEventChannel makes a channel for IDs of the default host (rdma_create_event_channel). Close destroys it. The
// error is always nil.
func CreateEventChannel() (*EventChannel, error) { return defaultHost.CreateEventChannel() }

// CreateEventChannel makes a channel for IDs of this host (rdma_create_event_channel). Close destroys it. The error is
// always nil.
func (h *Host) CreateEventChannel() (*EventChannel, error) { return newChannel(h), nil }

func newChannel(h *Host) *EventChannel {
	ch := &EventChannel{host: h, ready: make(chan struct{}, 1), done: make(chan struct{})}
	ch.queue = ch.first[:0] // +checklocksforce: nobody else has the channel yet
	return ch
}

// Close destroys the channel (rdma_destroy_event_channel). It closes the IDs that are on it, without waiting for
// their events to be acknowledged. GetEvent returns ErrClosed, and so does a second Close.
func (ch *EventChannel) Close() error {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return ch.errClosed("destroy_event_channel")
	}
	ch.closed = true
	ids := ch.ids.all()
	close(ch.done)
	if ch.fd != nil {
		ch.fd.Close()
	}
	ch.units = notify.Semaphore{} // the owner of the descriptor may close it now
	ch.mu.Unlock()
	for _, id := range ids {
		id.destroyOn(ch)
	}
	return nil
}

func (ch *EventChannel) errClosed(op string) error {
	return &Error{Op: op, Obj: "event channel", Errno: syscall.EINVAL, Err: ErrClosed}
}

// GetEvent waits for the next event (rdma_get_cm_event). It must be acknowledged with Ack. Retrieving an event has
// effects: after EventRejected or EventDisconnected the ID's QP is in ERR, after EventMulticastJoin it is attached to
// the group. GetEvent returns ctx's error when ctx is done, ErrClosed when the channel is closed, and EAGAIN instead
// of waiting after SetNonblock(true).
func (ch *EventChannel) GetEvent(ctx context.Context) (*Event, error) {
	return ch.get(ctx, func() (bool, error) { return false, nil })
}

// get is GetEvent. It ends also, with the error of missed, if missed reports that the event which the caller waits for
// was there already.
func (ch *EventChannel) get(ctx context.Context, missed func() (bool, error)) (*Event, error) {
	const op = "get_cm_event"
	for {
		ev, nonblock, err := ch.take(op, false)
		if ev != nil || err != nil {
			return ev, err
		}
		if over, err := missed(); over {
			ch.wake() // for the next waiter
			return nil, err
		}
		if nonblock {
			return nil, &Error{Op: op, Obj: "event channel", Errno: syscall.EAGAIN, Detail: "no event"}
		}
		select {
		case <-ch.ready:
		case <-ch.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TryGetEvent is GetEvent without waiting: EAGAIN if there is no event (rdma_get_cm_event with O_NONBLOCK).
func (ch *EventChannel) TryGetEvent() (*Event, error) {
	const op = "get_cm_event"
	ev, _, err := ch.take(op, true)
	if ev == nil && err == nil {
		err = &Error{Op: op, Obj: "event channel", Errno: syscall.EAGAIN, Detail: "no event"}
	}
	return ev, err
}

// Events iterates over the events as they come, and acknowledges each after the loop's body, until ctx is done or the
// channel is closed. The body must not Close the ID of the event, which would wait for the acknowledgement, unless it
// has called ev.Ack itself.
func (ch *EventChannel) Events(ctx context.Context) iter.Seq[*Event] {
	return func(yield func(*Event) bool) {
		for {
			ev, err := ch.GetEvent(ctx)
			if errors.Is(err, syscall.EAGAIN) {
				select {
				case <-ch.ready:
				case <-ch.done:
				case <-ctx.Done():
					return
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

// SetNonblock makes GetEvent, and calls of synchronous IDs that wait, return EAGAIN where they would wait (fcntl of
// the channel's fd with O_NONBLOCK). The operations that they have begun continue.
func (ch *EventChannel) SetNonblock(on bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.nonblock = on
}

// FD is a file descriptor that is readable while there are events (fd of struct rdma_event_channel). It is for poll,
// select and epoll only: neither read nor close it. It is valid until the channel is closed. EOPNOTSUPP if the system
// has no such descriptors.
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

// count counts the events in a semaphore of the caller from now on, those of the queue included; -1: no longer.
func (ch *EventChannel) count(fd int) error {
	const op = "event_channel_fd"
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return ch.errClosed(op)
	}
	var units notify.Semaphore
	if fd >= 0 {
		var err error
		if units, err = notify.NewSemaphore(fd); err != nil {
			return &Error{Op: op, Obj: "event channel", Errno: errnoOf(err), Err: err}
		}
	}
	ch.units = units
	ch.units.Add(len(ch.queue))
	return nil
}

// push adds an event. It reports whether the channel is open.
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
	ch.units.Add(1)
	ch.wake()
	return true
}

func (ch *EventChannel) wake() {
	select {
	case ch.ready <- struct{}{}:
	default:
	}
}

// take takes the oldest event, nil if there is none. paid: the caller has read the event's unit from the descriptor of
// count, if there is one.
func (ch *EventChannel) take(op string, paid bool) (ev *Event, nonblock bool, err error) {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return nil, false, ch.errClosed(op)
	}
	switch found := len(ch.queue) > 0; {
	case paid:
		ch.units.Popped(found)
	case found:
		ch.units.Remove(1)
	}
	if len(ch.queue) == 0 {
		nonblock = ch.nonblock
		ch.mu.Unlock()
		return nil, nonblock, nil
	}
	ev = ch.queue[0]
	ch.queue[0] = nil
	ch.queue = ch.queue[1:]
	ch.updateFD()
	if len(ch.queue) > 0 {
		ch.wake() // for the next waiter
	}
	ev.owner.acks.take()
	if ev.group != nil {
		ev.group.acks.take()
	}
	ch.mu.Unlock()
	ev.takeEffect()
	return ev, false, nil
}

// updateFD makes the descriptor unreadable when the queue is empty.
//
// +checklocks:ch.mu
func (ch *EventChannel) updateFD() {
	if len(ch.queue) == 0 {
		ch.queue = ch.first[:0]
		if ch.fd != nil {
			ch.fd.Clear()
		}
	}
}

// purge takes out the events for which drop is true, and returns them.
func (ch *EventChannel) purge(drop func(*Event) bool) []*Event {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.purgeLocked(drop)
}

// purgeLocked is purge.
//
// +checklocks:ch.mu
func (ch *EventChannel) purgeLocked(drop func(*Event) bool) (dropped []*Event) {
	ch.queue = slices.DeleteFunc(ch.queue, func(ev *Event) bool {
		gone := drop(ev)
		if gone {
			dropped = append(dropped, ev)
		}
		return gone
	})
	ch.units.Remove(len(dropped))
	ch.updateFD()
	return dropped
}

// release takes an ID with its events off the channel, to move to channel to. It reports false and does nothing if
// one of the ID's events is retrieved and not acknowledged.
func (ch *EventChannel) release(id *ID, to *EventChannel) (events []*Event, ok bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if id.acks.pending() {
		return nil, false
	}
	if to != ch {
		ch.ids.remove(id)
	}
	return ch.purgeLocked(func(ev *Event) bool { return ev.owner == id }), true
}

// join adds an ID to those that Close destroys. It reports whether the channel is open.
func (ch *EventChannel) join(id *ID) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed {
		ch.ids.add(id)
	}
	return !ch.closed
}

// leave removes an ID.
func (ch *EventChannel) leave(id *ID) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ids.remove(id)
}

// An idSet is a set of IDs. Most have one, that of a synchronous ID's own channel.
type idSet struct {
	one  *ID              // nil: none, or all are in more
	more map[*ID]struct{} // nil until there is a second one
}

func (s *idSet) add(id *ID) {
	switch {
	case s.one == nil && s.more == nil:
		s.one = id
	case s.one != id:
		if s.more == nil {
			s.more = map[*ID]struct{}{}
		}
		s.more[id] = struct{}{}
	}
}

func (s *idSet) remove(id *ID) {
	if s.one == id {
		s.one = nil
	} else {
		delete(s.more, id)
	}
}

func (s *idSet) all() []*ID {
	ids := slices.Collect(maps.Keys(s.more))
	if s.one != nil {
		ids = append(ids, s.one)
	}
	return ids
}
