package rdmacm_test

import (
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_PKEY_05_PartitionOfAConnection: the P_Key of an AF_IB address selects the partition of a connection: its
// datagrams, its request and both QPs have it. Limited members do not reach each other. A partition that no device of
// the host is in is refused at once.
func TestV_PKEY_05_PartitionOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, fab: rdmatest.New(rdmatest.Config{RealTime: true, PKeys: []uint16{0xffff, 0x0001, 0x0002, 0x8003}})}
		w.a, w.b = w.host("a", addrA, addrA6), w.host("b", addrB, addrB6)
		ctxA, ctxB := w.contexts(w.a)[0], w.contexts(w.b)[0]
		w.ok(w.fab.SetPKeys(ctxB, 1, 0xffff, 0x0002, 0x8001))
		l := w.newEnd(w.b, rdmacm.PSTCP)
		to := rdmacm.SockaddrIB{GID: verbs.GIDFromAddr(addrB), SID: rdmacm.ServiceID(rdmacm.PSTCP, port)}
		w.ok(l.BindAddrIB(to))
		w.ok(l.Listen(0))
		begin := func(pkey uint16) *end {
			c, a := w.newEnd(w.a, rdmacm.PSTCP), to
			a.PKey = pkey
			w.ok(c.ResolveAddrIB(bg, nil, a, timeout))
			c.expect(rdmacm.EventAddrResolved)
			w.ok(c.ResolveRoute(bg, timeout))
			c.expect(rdmacm.EventRouteResolved)
			w.ok(c.CreateQP(nil, qpInit()))
			return c
		}
		c := begin(0x8001) // this port is a limited member
		if r := c.Route(); r.PKey != 0x0001 || r.PathRec[0].PKey != 0x0001 {
			t.Errorf("the route has P_Key %#x", r.PKey)
		}
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		for qp, want := range map[*verbs.QP]uint16{c.QP(): 1, s.QP(): 2} {
			if attr, _, err := qp.Query(verbs.QPAttrPKeyIndex); err != nil || attr.PKeyIndex != want {
				t.Errorf("P_Key index %d, %v; want %d", attr.PKeyIndex, err, want)
			}
		}
		w.exchange(c, s)
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()

		before := w.fab.Counters(ctxB)["bad_pkey"]
		c = begin(0x8002) // limited members of both sides
		w.ok(c.Connect(bg, nil))
		if ev := c.expect(rdmacm.EventUnreachable); ev.Status != -int(syscall.ETIMEDOUT) {
			t.Errorf("limited to limited: status %d", ev.Status)
		}
		if w.fab.Counters(ctxB)["bad_pkey"] == before {
			t.Error("the requests were not counted")
		}
		c.close()
		w.ok(w.fab.SetPKeys(ctxA, 1, 0xffff, 0x8004))
		c = w.newEnd(w.a, rdmacm.PSTCP)
		to.PKey = 0x8003
		w.errno(c.ResolveAddrIB(bg, nil, to, timeout), syscall.EINVAL)
		to.PKey, to.SID = 0x8004, 0
		w.errno(c.ResolveAddrIB(bg, nil, to, timeout), syscall.EPROTONOSUPPORT)
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		if got := c.Route().PKey; got != 0xffff {
			t.Errorf("an address that was refused selected the P_Key %#x", got)
		}
		c.close()
		l.close()
		w.ok(w.a.Close())
		w.ok(w.b.Close())
	})
}

// An address of the family AF_IB has the P_Key of the ID, as in C. A call that fails because of the ID's state does not
// change the partition.
func TestAddressesHaveTheirPKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, fab: rdmatest.New(rdmatest.Config{RealTime: true, PKeys: []uint16{0xffff, 0x8001, 0x8002}})}
		w.a, w.b = w.host("a", addrA, addrA6), w.host("b", addrB, addrB6)
		to := rdmacm.SockaddrIB{GID: verbs.GIDFromAddr(addrB), SID: rdmacm.ServiceID(rdmacm.PSTCP, port), PKey: 0x8001}
		l, c := w.newEnd(w.b, rdmacm.PSTCP), w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(l.BindAddrIB(to))
		if got := l.LocalAddrIB().PKey; got != 0x8001 {
			t.Errorf("bound with P_Key %#x, which should be 0x8001", got)
		}
		w.ok(c.ResolveAddrIB(bg, nil, to, timeout))
		c.expect(rdmacm.EventAddrResolved)
		other := to
		other.PKey = 0x8002
		w.errno(c.ResolveAddrIB(bg, nil, other, timeout), syscall.EINVAL)
		w.ok(c.ResolveRoute(bg, timeout))
		c.expect(rdmacm.EventRouteResolved)
		if r := c.Route(); r.PKey != 0x8001 {
			t.Errorf("the route has P_Key %#x, which should be 0x8001", r.PKey)
		}
		if local, peer := c.LocalAddrIB().PKey, c.PeerAddrIB().PKey; local != 0x8001 || peer != 0x8001 {
			t.Errorf("P_Keys %#x and %#x, which should be 0x8001", local, peer)
		}
		c.close()
		l.close()
		w.ok(w.a.Close())
		w.ok(w.b.Close())
	})
}
