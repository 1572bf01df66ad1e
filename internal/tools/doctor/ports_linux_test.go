package doctor

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/apart"
)

// The route to a peer may leave from another port of the device than the first one.
func TestRouteOfSecondPort(t *testing.T) {
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return
	}
	for _, line := range []string{"link set lo up", "addr add 10.9.0.1/32 dev lo", "addr add 10.9.0.2/32 dev lo"} {
		apart.IP(t, line)
	}
	t.Setenv("VERBENA_DEVICES", "two=10.9.0.1/10.9.0.2")
	var r report
	peer := netip.MustParseAddr("10.9.0.2")
	source, _ := r.source("peer", peer)
	if w, ok := r.route("peer", source, peer); !ok || w.from != peer || w.source != peer {
		t.Errorf("source %v, device %v", w.source, w.from)
	}
	finds(t, "second port", &r, good, "source address 10.9.0.2", "")
}
