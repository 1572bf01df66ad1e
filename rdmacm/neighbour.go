package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Packets to a peer need the link address of the peer, or of the router on the way: ResolveAddr and ResolveRoute wait
// until the system knows it, as in Linux, where rdma_resolve_addr asks by ARP or ND. If the system knows it already,
// as nearly always, both end in the call. Otherwise a goroutine looks again and again, and sends a packet that every
// receiver drops, on which the system asks.

const (
	// stepTime is the time-out of ResolveAddr if the program gives none.
	stepTime = 2 * time.Second
	// solicitEvery is the interval of the packets. The system's own attempts end after three seconds.
	solicitEvery = time.Second
	// askTime is how long after a packet the system's answer is one to that packet, or to one before it.
	askTime = 4 * time.Second
	// lookFirst and lookSlow are the first and the last interval of looking.
	lookFirst, lookSlow = time.Millisecond, 100 * time.Millisecond
)

// neighbours are the system's answers about the ways to peers, for the IDs of a host that ask at the same time.
type neighbours struct {
	mu sync.Mutex
	// +checklocks:mu
	ways map[wayKey]*way
}

// wayKey is the addresses at both ends.
type wayKey struct{ src, dst netip.Addr }

// way is the last answer about a way.
type way struct {
	known      lookup.Knowledge
	err        error
	looked     time.Time
	soliciting time.Time // begin of the last packet
	solicited  time.Time // end of it
}

// look asks the system whether it knows the link address of the way. Answers are kept: those that it knows for
// pathAge, others for lookFirst. The error is that of the route, or EHOSTUNREACH if the system has asked in vain since
// solicit was called.
func (n *neighbours) look(k wayKey) (known bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.ways[k]
	if w == nil {
		if len(n.ways) >= maxPaths || n.ways == nil {
			n.ways = map[wayKey]*way{}
		}
		w = &way{}
		n.ways[k] = w
	}
	age := time.Since(w.looked)
	if fresh := w.known == lookup.Known && age < pathAge || age < lookFirst; !fresh {
		w.known, w.err = lookup.Neighbour(k.src, k.dst)
		w.looked = time.Now()
	}
	if w.known == lookup.Unanswered && time.Since(w.solicited) < askTime {
		return false, errUnanswered
	}
	return w.known == lookup.Known, w.err
}

// errUnanswered: no host has answered the system's questions for the link address.
var errUnanswered = fmt.Errorf("no host answers at this address, or at that of the router: see ip neigh: %w",
	syscall.EHOSTUNREACH)

// solicit makes the system ask for the link address, unless another ID did so within solicitEvery. It reports whether
// this host refuses to send.
func (n *neighbours) solicit(ctx context.Context, k wayKey) (refused bool) {
	n.mu.Lock()
	w := n.ways[k]
	due := w == nil || time.Since(w.soliciting) >= solicitEvery
	if due && w != nil {
		w.soliciting = time.Now()
	}
	n.mu.Unlock()
	if !due {
		return false
	}
	err := lookup.Solicit(ctx, k.src, netip.AddrPortFrom(k.dst, wire.Port), wire.Harmless)
	n.mu.Lock()
	if w := n.ways[k]; w != nil {
		w.solicited = time.Now()
	}
	n.mu.Unlock()
	return errors.Is(err, syscall.EPERM)
}

// await waits until the link address is known or ctx ends, which is an error. It is known that nothing is to be known
// if a firewall of this host forbids to ask: the request of the connection fails then and says so.
func (n *neighbours) await(ctx context.Context, k wayKey) error {
	begin := time.Now()
	for wait := lookFirst; ; wait = min(max(lookFirst, time.Since(begin)/4), lookSlow) {
		if n.solicit(ctx, k) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		if known, err := n.look(k); known || err != nil { // just before the next packet, which ends the answer "failed"
			return err
		}
	}
}

// reachPeer calls done when the system knows how to reach the peer, or with the reason why not: at once if nothing is
// to be waited for, else later, unless the ID has left the state that it has now. The error wraps the errno of the
// route, or ETIMEDOUT after the time-out.
//
// +checklocks:id.mu
func (id *ID) reachPeer(timeout time.Duration, done func(error)) {
	if !id.dev.onInterface(id.sgid) {
		done(nil)
		return
	}
	k := wayKey{id.zoned(id.local).Addr(), id.zoned(id.remote).Addr()}
	n := &id.host.neighbours
	if known, err := n.look(k); known || err != nil {
		done(id.wayError(err, timeout))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	id.stopReaching = cancel
	waits := id.state
	go func() {
		err := n.await(ctx, k)
		id.mu.Lock()
		defer id.mu.Unlock()
		if cancel(); id.state == waits {
			id.stopReaching = nil
			done(id.wayError(err, timeout))
		}
	}()
}

// wayError is the error of a way that cannot be used.
//
// +checklocks:id.mu
func (id *ID) wayError(err error, timeout time.Duration) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the system has not learned the link address of the way to %v in %v: no host answers at this "+
			"address, or at that of the router: see ip neigh: %w", id.remote.Addr(), timeout, syscall.ETIMEDOUT)
	}
	return fmt.Errorf("route to %v: %w", id.remote.Addr(), err)
}

// endReach ends the wait for the peer's link address.
//
// +checklocks:id.mu
func (id *ID) endReach() {
	if id.stopReaching != nil {
		id.stopReaching()
		id.stopReaching = nil
	}
}
