package shm

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
)

// A flow is the content of the IP header of a packet. Rings carry each flow once, and with each packet the number of
// its flow.
type flow struct {
	src, dst netip.Addr
	tclass   uint8
	hopLimit uint8
	usable   bool // the sender may send from src, and dst is a local address; otherwise packets are dropped
}

const (
	flowLen  = 36
	maxFlows = 256
	noFlow   = maxFlows // no number
)

func flowOf(p *link.Path) flow {
	f := flow{src: p.Src, dst: p.Dst, tclass: p.TClass, hopLimit: p.HopLimit}
	if f.hopLimit == 0 {
		f.hopLimit = 64
	}
	return f
}

func (f *flow) put(b []byte) {
	src, dst := f.src.As16(), f.dst.As16()
	copy(b, src[:])
	copy(b[16:], dst[:])
	b[32], b[33], b[34], b[35] = f.tclass, f.hopLimit, 0, 0
}

// parseFlow decodes a flow from bytes that may change concurrently.
func parseFlow(shared []byte) (f flow, ok bool) {
	var b [flowLen]byte
	if copy(b[:], shared) != flowLen || len(shared) != flowLen {
		return f, false
	}
	f = flow{
		src: netip.AddrFrom16([16]byte(b[:16])).Unmap(), dst: netip.AddrFrom16([16]byte(b[16:32])).Unmap(),
		tclass: b[32], hopLimit: b[33],
	}
	for _, a := range []netip.Addr{f.src, f.dst} {
		if a.IsUnspecified() || a.IsMulticast() {
			return f, false
		}
	}
	return f, f.src.Is4() == f.dst.Is4()
}

// flows are the flows that the receiver of a ring knows.
type flows struct {
	path   *link.Path // the path whose flow is number
	number uint32
	known  map[flow]uint32
	next   uint32
}

// find returns the number of the flow of a path, noFlow if the receiver does not know it. Most QPs between two
// processes have equal paths, so the last flow is compared first.
func (t *flows) find(p *link.Path) uint32 {
	if t.last(p) {
		return t.number
	}
	n, ok := t.known[flowOf(p)]
	if !ok {
		return noFlow
	}
	t.path, t.number = p, n
	return n
}

// last reports whether the last flow is that of a path.
func (t *flows) last(p *link.Path) bool {
	l := t.path
	return p == l || l != nil && p.Dst == l.Dst && p.Src == l.Src && p.TClass == l.TClass && p.HopLimit == l.HopLimit
}

// add assigns a number to the flow of a path, if necessary that of the oldest flow.
func (t *flows) add(p *link.Path) uint32 {
	n := t.next % maxFlows
	t.next++
	for f, old := range t.known {
		if old == n && t.next > maxFlows {
			delete(t.known, f)
			break
		}
	}
	if t.known == nil {
		t.known = make(map[flow]uint32)
	}
	t.known[flowOf(p)] = n
	t.path, t.number = p, n
	return n
}
