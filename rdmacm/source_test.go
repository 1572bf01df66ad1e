package rdmacm_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A peer cannot choose the address that PeerAddr returns to the program: a request whose IP header names another source
// than that of its packets is refused.
func TestSourceOfAnotherHost(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		for _, from := range []netip.AddrPort{at(netip.MustParseAddr("203.0.113.9"), 22), at(addrB, 22), at(addrA, 22)} {
			c := w.newEnd(w.a, rdmacm.PSTCP)
			// Between GIDs all of the private data is the program's, an IP header too.
			to := rdmacm.SockaddrIB{GID: verbs.GIDFromAddr(addrB), SID: rdmacm.ServiceID(rdmacm.PSTCP, port)}
			w.ok(c.ResolveAddrIB(bg, nil, to, timeout))
			c.expect(rdmacm.EventAddrResolved)
			w.ok(c.ResolveRoute(bg, timeout))
			c.expect(rdmacm.EventRouteResolved)
			w.ok(c.CreateQP(nil, qpInit()))
			w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: cmmsg.AppendIPHeader(nil, from, addrB)}))
			if from.Addr() != addrA {
				c.expect(rdmacm.EventRejected)
				c.close()
				continue
			}
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			s := &end{ev.ID, w, l.ch}
			w.ok(ev.Ack())
			if got := s.PeerAddr(); got != from {
				t.Errorf("the peer is %v, want %v", got, from)
			}
			w.ok(s.Reject(nil))
			s.closeID()
			c.expect(rdmacm.EventRejected)
			c.close()
		}
		l.close()
	})
}
