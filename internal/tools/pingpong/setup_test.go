package pingpong

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/exchange"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestPeerWithoutFittingGID(t *testing.T) {
	gid := func(s string) [16]byte { return verbs.GIDFromAddr(netip.MustParseAddr(s)) }
	for _, c := range []struct{ ours, theirs, why string }{
		{"192.0.2.1", "192.0.2.2", ""},
		{"2001:db8::1", "fe80::2", ""},
		{"192.0.2.1", "::", "told no GID for its QP 0x000011"},
		{"192.0.2.1", "2001:db8::2", "GID ::ffff:192.0.2.1 cannot reach the peer's GID 2001:db8::2"},
	} {
		g := &game{local: []exchange.Dest{{GID: gid(c.ours)}}}
		g.link = verbs.LinkLayerEthernet
		err := g.checkPeer(exchange.Dest{QPN: 0x11, GID: gid(c.theirs)})
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s, %s: %v", c.ours, c.theirs, err)
		}
	}
	g := &game{local: make([]exchange.Dest, 1)}
	g.link = verbs.LinkLayerInfiniBand
	if err := g.checkPeer(exchange.Dest{LID: 1}); err != nil {
		t.Errorf("InfiniBand: %v", err)
	}
}
