package rdmacm_test

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// The addresses of the second ports. Only these have IPv6.
var (
	secondA, secondB   = netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("198.18.1.2")
	secondA6, secondB6 = netip.MustParseAddr("fd01::1"), netip.MustParseAddr("fd01::2")
)

// onTwoPorts runs a test on hosts whose devices have two ports, each in the default partition; the second ports are in
// partition 5, too, at index 2.
func onTwoPorts(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, fab: rdmatest.New(rdmatest.Config{RealTime: true, PKeys: []uint16{0xffff, 0, 0x8003}})}
		for _, x := range []struct {
			name  string
			host  **rdmacm.Host
			ports [][]netip.Addr
		}{
			{"a", &w.a, [][]netip.Addr{{addrA}, {secondA, secondA6}}}, {"b", &w.b, [][]netip.Addr{{addrB}, {secondB, secondB6}}},
		} {
			vctx := must(w.fab.OpenPorts(x.name, x.ports...))(w)
			w.ok(w.fab.SetPKeys(vctx, 2, 0xffff, 0, 0x8005))
			*x.host = rdmacm.NewHost(vctx.Device())
		}
		f(w)
		w.ok(w.a.Close())
		w.ok(w.b.Close())
		w.ok(w.fab.Close())
	})
}

// uses expects that the ID and its QP use a port.
func (e *end) uses(port uint8) {
	e.w.Helper()
	if n := e.PortNum(); n != port {
		e.w.Errorf("%v: the ID is of port %d, want %d", e.LocalAddr(), n, port)
	}
	if e.QP() == nil {
		return
	}
	attr, _, err := e.QP().Query(verbs.QPAttrPort | verbs.QPAttrAV)
	if err != nil || attr.PortNum != port || e.QP().Type() == verbs.QPTypeRC && attr.AHAttr.PortNum != port {
		e.w.Errorf("%v: the QP is of port %d, its path of port %d, %v; want %d", e.LocalAddr(), attr.PortNum,
			attr.AHAttr.PortNum, err, port)
	}
}

// TestConnectionsOfTwoPorts: an ID, its QP and its path are of the port that has the local address, on both sides and
// for every pair of ports.
func TestConnectionsOfTwoPorts(t *testing.T) {
	onTwoPorts(t, func(w *world) {
		l := w.listen(at(netip.IPv6Unspecified(), port), 0)
		for _, c := range []struct {
			from, to   netip.Addr
			here, peer uint8
		}{
			{addrA, addrB, 1, 1}, {secondA, secondB, 2, 2}, {addrA, secondB, 1, 2}, {secondA, addrB, 2, 1},
			{netip.Addr{}, secondB6, 2, 2}, // only the second port has an address of the family
		} {
			e := w.newEnd(w.a, rdmacm.PSTCP)
			src := netip.AddrPort{}
			if c.from.IsValid() {
				src = at(c.from, 0)
			}
			w.ok(e.ResolveAddr(bg, src, at(c.to, port), timeout))
			e.expect(rdmacm.EventAddrResolved)
			w.ok(e.ResolveRoute(bg, timeout))
			e.expect(rdmacm.EventRouteResolved)
			w.ok(e.CreateQP(nil, qpInit()))
			w.ok(e.Connect(bg, nil))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			s := &end{ev.ID, w, l.ch}
			w.ok(s.CreateQP(nil, qpInit()))
			w.ok(s.Accept(bg, nil))
			w.ok(ev.Ack())
			e.expect(rdmacm.EventEstablished)
			s.expect(rdmacm.EventEstablished)
			e.uses(c.here)
			s.uses(c.peer)
			w.exchange(e, s)
			s.closeID()
			e.expect(rdmacm.EventDisconnected)
			e.close()
		}
		l.close()
	})
}

// TestPartitionsOfTwoPorts: the table of the ID's port decides on partitions.
func TestPartitionsOfTwoPorts(t *testing.T) {
	onTwoPorts(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSTCP)
		w.ok(l.BindAddr(at(netip.IPv4Unspecified(), port)))
		w.ok(l.Listen(0))
		for _, c := range []struct {
			from, to netip.Addr
			pkey     uint16
			works    bool
		}{{secondA, secondB, 5, true}, {secondA, secondB, 3, false}, {addrA, addrB, 3, true}, {addrA, addrB, 5, false}} {
			e := w.newEnd(w.a, rdmacm.PSTCP)
			w.ok(e.ResolveAddrIB(bg, &rdmacm.SockaddrIB{GID: verbs.GIDFromAddr(c.from), SID: rdmacm.ServiceID(rdmacm.PSTCP, 0)},
				rdmacm.SockaddrIB{GID: verbs.GIDFromAddr(c.to), SID: rdmacm.ServiceID(rdmacm.PSTCP, port), PKey: c.pkey}, timeout))
			e.expect(rdmacm.EventAddrResolved)
			w.ok(e.ResolveRoute(bg, timeout))
			if !c.works {
				e.expect(rdmacm.EventRouteError)
				e.close()
				continue
			}
			e.expect(rdmacm.EventRouteResolved)
			w.ok(e.CreateQP(nil, qpInit()))
			if attr, _, err := e.QP().Query(verbs.QPAttrPKeyIndex); err != nil || attr.PKeyIndex != 2 {
				t.Errorf("P_Key index %d, %v; want 2", attr.PKeyIndex, err)
			}
			w.ok(e.Connect(bg, nil))
			e.expect(rdmacm.EventRejected) // the listener takes IP addresses only; the REJ has the partition's key
			e.close()
		}
		l.close()
	})
}

// TestDatagramsOfTwoPorts: look-ups, datagrams and groups of an ID use its port.
func TestDatagramsOfTwoPorts(t *testing.T) {
	onTwoPorts(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(l.BindAddr(at(secondB, port)))
		w.ok(l.CreateQP(nil, udInit()))
		l.uses(2)
		w.ok(l.Listen(0))
		mr := must(l.RegMsgs(make([]byte, 64)))(w)
		w.ok(l.PostRecv(1, mr.Bytes(), mr))

		c := w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(c.ResolveAddr(bg, at(secondA, 0), at(secondB, port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		w.ok(c.ResolveRoute(bg, timeout))
		c.expect(rdmacm.EventRouteResolved)
		w.ok(c.CreateQP(nil, udInit()))
		c.uses(2)
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.ID.Accept(bg, &rdmacm.ConnParam{QPNum: l.QP().QPN()}))
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		to := c.expect(rdmacm.EventEstablished).UD
		if to.AHAttr.PortNum != 2 {
			t.Errorf("the path is of port %d", to.AHAttr.PortNum)
		}
		ah := must(c.PD().CreateAH(&to.AHAttr))(w)
		w.ok(c.PostUDSend(2, []byte("datagram"), nil, verbs.SendInline|verbs.SendSignaled, ah, to.QPNum))
		if wc := must(c.GetSendComp(bg))(w); wc.Status != verbs.WCSuccess {
			t.Errorf("sent: %v", wc.Err())
		}
		if wc := must(l.GetRecvComp(bg))(w); wc.Status != verbs.WCSuccess {
			t.Errorf("received: %v", wc.Err())
		}
		w.ok(ah.Close())
		w.ok(mr.Close())
		c.close()

		m := w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(m.ResolveAddr(bg, at(secondA, 0), at(group4, 0), timeout))
		m.expect(rdmacm.EventAddrResolved)
		w.ok(m.CreateQP(nil, udInit()))
		w.ok(m.JoinMulticast(bg, at(group4, 0), nil))
		if ud := m.expect(rdmacm.EventMulticastJoin).UD; ud.AHAttr.PortNum != 2 {
			t.Errorf("the group's path is of port %d", ud.AHAttr.PortNum)
		}
		w.ok(m.LeaveMulticast(at(group4, 0)))
		m.close()
		l.close()
	})
}
