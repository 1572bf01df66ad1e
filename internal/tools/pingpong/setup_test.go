package pingpong

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/verbena-rdma/verbena/internal/tools/exchange"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestPeerWithoutFittingGID(t *testing.T) {
	gid := func(s string) [16]byte { return verbs.GIDFromAddr(netip.MustParseAddr(s)) }
	for _, c := range []struct{ ours, theirs, why string }{
		{"192.0.2.1", "192.0.2.2", ""},
		{"2001:db8::1", "fe80::2", ""},
		{"192.0.2.1", "::", "sent no GID for its QP 0x000011"},
		{"192.0.2.1", "2001:db8::2", "GID ::ffff:192.0.2.1 cannot reach the peer's GID 2001:db8::2"},
	} {
		g := &game{variant: &variant{}, local: []exchange.Dest{{GID: gid(c.ours)}}}
		g.link = verbs.LinkLayerEthernet
		err := g.checkPeer(exchange.Dest{QPN: 0x11, GID: gid(c.theirs)})
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s, %s: %v", c.ours, c.theirs, err)
		}
	}
	g := &game{variant: &variant{srq: true}, options: &options{numQP: 4}, local: make([]exchange.Dest, 1)}
	g.link = verbs.LinkLayerEthernet
	if err := g.checkPeer(exchange.Dest{}); err == nil ||
		!strings.Contains(err.Error(), "the peer has fewer QPs than 4; both ends need the same -q") {
		t.Errorf("a QP that the peer lacks: %v", err)
	}
	g.link = verbs.LinkLayerInfiniBand
	if err := g.checkPeer(exchange.Dest{LID: 1}); err != nil {
		t.Errorf("InfiniBand: %v", err)
	}
}

// The error for a silent peer depends on whether the transport repairs losses.
func TestSilence(t *testing.T) {
	for typ, want := range map[verbs.QPType]string{
		verbs.QPTypeRC: "the same -n", verbs.QPTypeXRCSend: "the same -n", verbs.QPTypeUC: "a lost packet",
		verbs.QPTypeUD: "a lost packet",
	} {
		g := &game{variant: &variant{typ: typ}}
		if err := g.silent(); !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", typ, err)
		}
	}
}

// A wait for an event that times out returns the error that newWaiter was given.
func TestSilentEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		ctx, err := f.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		ch, err := ctx.CreateCompChannel()
		if err != nil {
			t.Fatal(err)
		}
		silent := errors.New("silent")
		w := newWaiter(ch, func([]verbs.WC) (int, error) { return 0, nil }, silent)
		defer w.stop()
		if _, err := w.next(make([]verbs.WC, 1)); err != silent {
			t.Errorf("%v", err)
		}
		if err := errors.Join(ch.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	})
}
