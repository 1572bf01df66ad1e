package rdmacm_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// TestUDPTwoPorts: connections from and to the second ports of two devices over UDP sockets.
func TestUDPTwoPorts(t *testing.T) {
	_, addr := udpHost(t, 18)
	w := &world{T: t}
	host := func(name string, first, second netip.Addr) *rdmacm.Host {
		dev := must(soft.New(soft.Config{Name: name, Addrs: []netip.Addr{first}, MorePorts: [][]netip.Addr{{second}}}))(w)
		return rdmacm.NewHost(dev.Device)
	}
	hereSecond, there := addr.Next(), addr.Next().Next()
	w.a, w.b = host("here", addr, hereSecond), host("there", there, there.Next())
	l := w.listen(at(there.Next(), 0), 0)
	c := w.newEnd(w.a, rdmacm.PSTCP)
	w.ok(c.ResolveAddr(bg, at(hereSecond, 0), l.LocalAddr(), timeout))
	c.soon(rdmacm.EventAddrResolved, 0)
	w.ok(c.ResolveRoute(bg, timeout))
	c.soon(rdmacm.EventRouteResolved, 0)
	w.ok(c.CreateQP(nil, qpInit()))
	w.ok(c.Connect(bg, nil))
	ev := l.next(rdmacm.EventConnectRequest)
	s := &end{ev.ID, w, l.ch}
	w.ok(s.CreateQP(nil, qpInit()))
	w.ok(s.Accept(bg, nil))
	c.soon(rdmacm.EventEstablished, 0)
	s.soon(rdmacm.EventEstablished, 0)
	c.uses(2)
	s.uses(2)
	w.exchange(c, s)
	w.ok(c.Disconnect(bg))
	s.soon(rdmacm.EventDisconnected, 0)
	s.closeID()
	c.close()
	l.close()
	w.ok(w.a.Close())
	w.ok(w.b.Close())
}
