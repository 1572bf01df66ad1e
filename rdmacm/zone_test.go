package rdmacm_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// The addresses of an ID can be used to reach it: link-local ones have the zone of this side.
func TestLinkLocalAddressesHaveTheirZone(t *testing.T) {
	in(t, func(w *world) {
		a, b := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::2")
		ha, hb := w.host("la", a), w.host("lb", b)
		w.b = hb
		l := w.listen(at(b.WithZone("eth9"), port), 1)
		c := w.newEnd(ha, rdmacm.PSTCP)
		w.ok(c.ResolveAddr(bg, at(a.WithZone("eth8"), 0), at(b.WithZone("eth8"), port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		w.ok(c.ResolveRoute(bg, timeout))
		c.expect(rdmacm.EventRouteResolved)
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		s := ev.ID
		for _, got := range []struct {
			what string
			a    netip.AddrPort
			want string
		}{
			{"the client", c.LocalAddr(), "fe80::1%eth8"}, {"its peer", c.PeerAddr(), "fe80::2%eth8"}, {"the listener",
				l.LocalAddr(), "fe80::2%eth9"},
			{"the server", s.LocalAddr(), "fe80::2%eth9"}, {"its peer", s.PeerAddr(), "fe80::1%eth9"},
		} {
			if got.a.Addr().String() != got.want {
				t.Errorf("%s is at %v, want %s", got.what, got.a.Addr(), got.want)
			}
		}
		w.ok(s.Reject(nil))
		w.ok(ev.Ack())
		c.expect(rdmacm.EventRejected)
		w.ok(s.Close())
		c.close()
		l.close()
		w.ok(ha.Close())
	})
}
