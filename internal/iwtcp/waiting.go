package iwtcp

import (
	"container/list"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/link"
)

// Limits of a listener's connections whose request has not come yet, and of those that linger. A request follows TCP's
// handshake at once; if its segment is lost, it comes after 200 ms or more.
const (
	maxWaiting = 2048 // at most a quarter of the descriptors of the process
	quarter    = 4    // a source has at most a quarter of the places
	patience   = 500 * time.Millisecond
)

// waiting holds connections that wait for their peers: those of a listener whose request has not come yet, or those
// that linger. If a source has its share of the places, its new connection takes the place of its oldest one. If all
// places are taken, it takes that of the source with the most connections, or the oldest of all. makeRoom has the
// exceptions.
type waiting struct {
	most     int           // connections
	share    int           // those of one source
	patience time.Duration // a connection that has waited for less ends only for a source with fewer connections

	mu sync.Mutex
	// +checklocks:mu
	all list.List // of *waiter, the oldest first
	// +checklocks:mu
	from map[netip.Addr]int // their number by source
	// +checklocks:mu
	closed bool
}

// waiter is a connection of waiting.
type waiter struct {
	c      io.Closer
	source netip.Addr
	since  time.Time
	at     *list.Element // nil if it has left; guarded by waiting.mu
}

// Places returns how many connections may wait for something at a time: most, or a quarter of the descriptors of the
// process.
func Places(most int) int {
	if n := fdset.Limit(); n > 0 {
		return max(quarter, min(most, n/quarter))
	}
	return most
}

// newWaiting makes room for Places(most) connections.
func newWaiting(most int) *waiting {
	most = Places(most)
	return &waiting{most: most, share: most / quarter, patience: patience, from: map[netip.Addr]int{}}
}

// enter takes a connection in, and may close another one for it. It returns nil if there is no place.
func (w *waiting) enter(c io.Closer, remote netip.Addr) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	source := link.SourceOf(remote)
	if w.closed || !w.makeRoom(source) {
		return nil
	}
	n := &waiter{c: c, source: source, since: time.Now()}
	n.at = w.all.PushBack(n)
	w.from[source]++
	return n
}

// makeRoom ends a connection if a new one of a source needs its place. It reports whether there is a place.
//
// +checklocks:w.mu
func (w *waiting) makeRoom(source netip.Addr) bool {
	var victim *waiter
	switch {
	case w.from[source] >= w.share:
		victim = w.oldest(source)
	case w.all.Len() < w.most:
		return true
	default:
		if most := w.largest(); w.from[most] > w.from[source]+1 {
			w.end(w.oldest(most))
			return true
		}
		victim = w.all.Front().Value.(*waiter)
	}
	if time.Since(victim.since) < w.patience {
		return false
	}
	w.end(victim)
	return true
}

// largest is the source with the most connections.
//
// +checklocks:w.mu
func (w *waiting) largest() (source netip.Addr) {
	for s, n := range w.from {
		if n > w.from[source] {
			source = s
		}
	}
	return source
}

// oldest is the oldest connection of a source that has one.
//
// +checklocks:w.mu
func (w *waiting) oldest(source netip.Addr) *waiter {
	e := w.all.Front()
	for e.Value.(*waiter).source != source {
		e = e.Next()
	}
	return e.Value.(*waiter)
}

// end closes a connection.
//
// +checklocks:w.mu
func (w *waiting) end(n *waiter) {
	w.remove(n)
	_ = n.c.Close()
}

// +checklocks:w.mu
func (w *waiting) remove(n *waiter) {
	w.all.Remove(n.at)
	n.at = nil
	if w.from[n.source]--; w.from[n.source] == 0 {
		delete(w.from, n.source)
	}
}

// leave takes a connection out whose request has come or which has ended. It reports false if the connection was closed
// before.
func (w *waiting) leave(n *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.at == nil {
		return false
	}
	w.remove(n)
	return true
}

func (w *waiting) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// close closes all connections, and those to come.
func (w *waiting) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for w.all.Len() > 0 {
		w.end(w.all.Front().Value.(*waiter))
	}
}
