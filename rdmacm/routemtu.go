package rdmacm

import (
	"net/netip"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
)

// routeMTUs keeps the MTU of routes for pathAge: to ask the system takes five system calls, and a program that makes
// many connections to one peer asks once. It is not kept longer, since a program may connect again because of a packet
// that was too long for the route.
type routeMTUs struct {
	mu sync.Mutex
	// +checklocks:mu
	known map[askedEnds]routeMTU
}

type routeMTU struct {
	bytes int
	until time.Time
}

// of returns what lookup.RouteMTU returns, or has returned less than pathAge before now.
func (r *routeMTUs) of(src, dst netip.Addr, now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	way := askedEnds{src, dst}
	if k, ok := r.known[way]; ok && now.Before(k.until) {
		return k.bytes
	}
	if r.known == nil || len(r.known) >= maxPaths {
		r.known = map[askedEnds]routeMTU{}
	}
	n := askRouteMTU(src, dst)
	r.known[way] = routeMTU{n, now.Add(pathAge)}
	return n
}

// askRouteMTU is lookup.RouteMTU, but in tests.
var askRouteMTU = lookup.RouteMTU
