package explain

import (
	"slices"
	"sync"
	"time"
)

// A capture of several programs has their packets in pieces, each of which a program has collected for some time: the
// packets of one follow later ones of another. A sorter holds the newest packets and passes them on in the order of
// their times.

const (
	// fileSpan is the time for which a sorter holds the packets of a file, in the time of the capture.
	fileSpan = time.Second
	// liveSpan is that of a live capture. Programs send their packets after 10 ms, and later under load.
	liveSpan = 100 * time.Millisecond
	// mostSorted and mostSortedBytes bound the packets in a sorter.
	mostSorted      = 1 << 14
	mostSortedBytes = 32 << 20
)

// sorter sorts packets by their times.
type sorter struct {
	span time.Duration
	out  func(*packet)

	mu    sync.Mutex // guards the following, and is held during calls of out
	held  []*packet  // the oldest first; of one time in the order of add
	bytes int        // of held
}

// add adds a packet. It passes on the packets that are more than span older than the newest one. A packet that is too
// late, because the order of the capture differs by more than span or the clock was set back, begins a new order.
func (o *sorter) add(p *packet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.held); n > 0 && p.at.Before(o.held[n-1].at.Add(-o.span)) {
		o.pass(n)
	}
	at, _ := slices.BinarySearchFunc(o.held, p, func(q, p *packet) int {
		if q.at.After(p.at) {
			return 1
		}
		return -1
	})
	o.held = slices.Insert(o.held, at, p)
	o.bytes += p.size()
	due := o.held[len(o.held)-1].at.Add(-o.span)
	for len(o.held) > 1 && // a damaged time may be before all others that time.Time has, and its due after it
		(o.held[0].at.Before(due) || len(o.held) > mostSorted || o.bytes > mostSortedBytes) {
		o.pass(1)
	}
}

// flush passes on all packets.
func (o *sorter) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pass(len(o.held))
}

// pass passes on the oldest n packets.
//
// +checklocks:o.mu
func (o *sorter) pass(n int) {
	for _, p := range o.held[:n] {
		o.bytes -= p.size()
		o.out(p)
	}
	clear(o.held[:n])
	o.held = o.held[n:]
}

// size returns the bytes of the packet.
func (p *packet) size() int {
	if p.tcp != nil {
		return len(p.tcp.data)
	}
	return len(p.data)
}
