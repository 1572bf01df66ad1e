package host

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Group is the membership of this process, or of one of its links, in the group of processes that share an address.
type Group struct {
	key    Key
	cfg    Config
	served bool // verbena serve leads
	vault  int  // descriptor, -1 if served
	locks  *locks
	wills  *wills

	requests sync.Mutex // one request at a time

	screens atomic.Pointer[leader] // leader, for readers without mu

	mu sync.Mutex // guards the following
	// +checklocks:mu
	changed *sync.Cond // up or closed has changed
	// +checklocks:mu
	up uplink // nil while a leader is chosen
	// +checklocks:mu
	leader *leader // nil if another process leads
	// +checklocks:mu
	listener *listener
	// +checklocks:mu
	slots []int
	// +checklocks:mu
	services map[uint64]struct{}
	// +checklocks:mu
	groups map[netip.Addr]struct{}
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	started bool

	done sync.WaitGroup
}

const (
	// If the port cannot be bound, foreignLooks checks in a row, foreignPause apart, must find sockets of another
	// program before Join fails: processes of the group may be electing a leader.
	foreignLooks = 3
	foreignPause = 100 * time.Millisecond
	// boundPause is the time between two looks whether the port is still bound.
	boundPause = 10 * time.Millisecond
	// timeout limits the reply of the leader, and an election. It is long because the machine may be busy.
	timeout = 5 * time.Second
	pause   = time.Millisecond
	// longPause is the longest time between attempts to lead, if they fail.
	longPause = 100 * time.Millisecond
)

// Start begins participation: the group follows leaders, and leads if this process is elected.
func (g *Group) Start() {
	g.mu.Lock()
	started := g.started
	g.mu.Unlock()
	if started {
		return
	}
	g.requests.Lock() // a request may be looking for the next leader
	defer g.requests.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && !g.started {
		g.started = true
		g.done.Go(g.run)
	}
}

func (g *Group) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// request sends a request to the leader, or to the next one if that ends. up is the leader that answered.
func (g *Group) request(f frame) (reply frame, fds []int, up uplink, err error) {
	g.requests.Lock()
	defer g.requests.Unlock()
	for begin := time.Now(); ; {
		if g.orphaned() {
			if err := g.elect(begin.Add(timeout)); err != nil {
				return frame{}, nil, nil, fmt.Errorf("link/udp: no process leads at %v: %w", g.key.Addr, err)
			}
		}
		if up = g.uplink(); up == nil || time.Since(begin) > timeout {
			return frame{}, nil, nil, fmt.Errorf("link/udp: no process leads at %v: %w", g.key.Addr, unix.ENETDOWN)
		}
		if reply, fds, err = up.do(f); !errors.Is(err, errEnded) {
			return reply, fds, up, err
		}
		if g.leaves(up) {
			up.close()
			continue
		}
		g.mu.Lock()
		same := g.up == up
		g.mu.Unlock()
		if same { // run closes g.up soon
			time.Sleep(pause)
		}
	}
}

// leaves reports whether the leader up has ended before Start, so that run does not find the next one. The group is
// orphaned then. requests is held.
func (g *Group) leaves(up uplink) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.up != up || g.started || g.served {
		return false
	}
	g.up = nil
	return true
}

// orphaned reports whether the group has no leader before Start.
func (g *Group) orphaned() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.up == nil && !g.started && !g.served && !g.closed
}

// uplink waits for a leader. It returns nil after timeout, and if the group is closed or verbena serve has ended.
func (g *Group) uplink() uplink {
	limit := time.AfterFunc(timeout, func() {
		g.mu.Lock()
		g.changed.Broadcast()
		g.mu.Unlock()
	})
	defer limit.Stop()
	begin := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.up == nil && !g.closed && (!g.served || !g.started) && time.Since(begin) < timeout {
		g.changed.Wait()
	}
	if g.closed {
		return nil
	}
	return g.up
}

// Stop ends participation: the slots and services of the process are free soon afterwards.
func (g *Group) Stop() { g.stop(false) }

// Depart is Stop for a process that may come back at once: it waits until the process that leads has released the slots
// and services, for up to 5 s if that is stopped.
func (g *Group) Depart() { g.stop(true) }

func (g *Group) stop(wait bool) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	g.closed = true
	up, ln := g.up, g.listener
	g.changed.Broadcast()
	g.mu.Unlock()
	if g.wills != nil {
		g.wills.clear() // while this process owns the slots: their next owners write to the same regions
	}
	g.unlock()
	if ln != nil {
		ln.Close()
	}
	if r, ok := up.(*remote); ok {
		if wait {
			r.depart()
		}
		r.c.Close()
	}
	g.done.Wait()
	g.requests.Lock()   // a request in progress may use the leader, or be electing one
	g.requests.Unlock() //nolint:staticcheck // later ones find the group closed
	var l *leader
	g.mu.Lock()
	up, l, ln = g.up, g.leader, g.listener // the last ones
	g.mu.Unlock()
	if ln != nil {
		ln.Close()
	}
	if l != nil {
		l.stop()
		l.store.close()
		if g.vault == l.store.(*vault).fd {
			g.vault = -1
		}
	}
	if up != nil {
		up.close()
	}
	if g.wills != nil {
		g.wills.close()
	}
}

// unlock releases all locks.
func (g *Group) unlock() {
	if g.locks == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.slots {
		g.locks.unlock(int64(n))
	}
	for id := range g.services {
		g.locks.unlock(serviceLock(id))
	}
}

// Close stops the group and closes its descriptors. The sockets must not be read any more.
func (g *Group) Close() {
	g.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.locks != nil {
		g.locks.close()
		g.locks = nil
	} else if g.wills != nil && g.served {
		unix.Close(g.wills.fd)
	}
	g.wills = nil
	if g.vault >= 0 {
		unix.Close(g.vault)
		g.vault = -1
	}
}
