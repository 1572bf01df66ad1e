package shm

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
)

// A flow is what the IP header of a packet would tell its receiver. Rings carry flows once, and with each
// packet the number of its flow.
type flow struct {
	src, dst netip.Addr
	tclass   uint8
	hops     uint8
}

const (
	flowLen  = 36
	maxFlows = 256
	noFlow   = maxFlows // of a number
)

func flowOf(p *link.Path) flow {
	f := flow{src: p.Src, dst: p.Dst, tclass: p.TClass, hops: p.HopLimit}
	if f.hops == 0 {
		f.hops = 64
	}
	return f
}

func (f *flow) put(b []byte) {
	src, dst := f.src.As16(), f.dst.As16()
	copy(b, src[:])
	copy(b[16:], dst[:])
	b[32], b[33], b[34], b[35] = f.tclass, f.hops, 0, 0
}

// parseFlow reads a flow from bytes that may change meanwhile.
func parseFlow(shared []byte) (f flow, ok bool) {
	var b [flowLen]byte
	if copy(b[:], shared) != flowLen || len(shared) != flowLen {
		return f, false
	}
	f = flow{
		src: netip.AddrFrom16([16]byte(b[:16])).Unmap(), dst: netip.AddrFrom16([16]byte(b[16:32])).Unmap(),
		tclass: b[32], hops: b[33],
	}
	for _, a := range []netip.Addr{f.src, f.dst} {
		if a.IsUnspecified() || a.IsMulticast() {
			return f, false
		}
	}
	return f, f.src.Is4() == f.dst.Is4()
}

// flows are those that a sender has told a ring's receiver.
type flows struct {
	path   *link.Path // whose flow is number
	number uint32
	known  map[flow]uint32
	next   uint32
}

// find is the number of a path's flow, noFlow if the receiver does not know it.
func (t *flows) find(p *link.Path) uint32 {
	if p == t.path {
		return t.number
	}
	n, ok := t.known[flowOf(p)]
	if !ok {
		return noFlow
	}
	t.path, t.number = p, n
	return n
}

// add gives a path's flow a number; the oldest loses it.
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
