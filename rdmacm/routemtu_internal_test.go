package rdmacm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
)

// TestRouteMTUIsAskedOncePerMoment: connections of one moment share the answer of the system, later ones see a change,
// and the number of answers that are kept is bounded.
func TestRouteMTUIsAskedOncePerMoment(t *testing.T) {
	asked, answer := 0, 1500
	askRouteMTU = func(_, _ netip.Addr) int { asked++; return answer }
	t.Cleanup(func() { askRouteMTU = lookup.RouteMTU })
	var r routeMTUs
	src, dst, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	begin := time.Unix(1000, 0)
	check := func(src, dst netip.Addr, after time.Duration, want, times int) {
		t.Helper()
		if got := r.of(src, dst, begin.Add(after)); got != want || asked != times {
			t.Fatalf("after %v: MTU %d, asked %d times; want %d, %d", after, got, asked, want, times)
		}
	}
	check(src, dst, 0, 1500, 1)
	answer = 1400
	check(src, dst, pathAge-1, 1500, 1)
	check(src, other, pathAge-1, 1400, 2)
	check(other, dst, pathAge-1, 1400, 3)
	check(src, dst, pathAge, 1400, 4)
	for i := range maxPaths + 8 {
		r.of(src, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), begin)
	}
	if n := len(r.known); n > maxPaths {
		t.Fatalf("%d answers are kept, at most %d are allowed", n, maxPaths)
	}
}
