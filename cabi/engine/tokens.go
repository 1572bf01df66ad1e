//go:build linux && cgo

package main

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// tokens is a queue of events with a semaphore, an eventfd of the C library: a program waits for the descriptor by any
// means, reads one token and then takes one event.
type tokens[T any] struct {
	fd int
	mu sync.Mutex
	// +checklocks:mu
	events []T
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// add queues an event and adds its token.
func (q *tokens[T]) add(ev T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = append(q.events, ev)
	_, _ = unix.Write(q.fd, one)
}

// take removes the oldest event.
func (q *tokens[T]) take() (ev T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return ev, false
	}
	ev = q.events[0]
	q.events = q.events[1:]
	return ev, true
}

// purge removes the events that match, and their tokens. A token that a program has read already stays with it: it
// finds no event then and reads again.
func (q *tokens[T]) purge(match func(T) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.events[:0]
	for _, ev := range q.events {
		if !match(ev) {
			kept = append(kept, ev)
			continue
		}
		var b [8]byte
		_, _ = unix.Preadv2(q.fd, [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
	}
	q.events = kept
}
