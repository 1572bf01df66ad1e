package sock

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A new peer takes the place of another one only where the limit of peers is reached. It is a stranger at first.
func TestLimitOfPeers(t *testing.T) {
	for _, before := range []int{maxDests - 1, maxDests} {
		d := NewDatagram(nil, true, Options{}.WithDefaults())
		d.udp = must(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
		q := &datagramQP{}
		d.qps[netip.MustParseAddr("127.0.0.1")] = q
		for i := range before {
			to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), uint16(1+i))
			d.dests[to] = &dest{to: to, sent: true}
		}
		d.mu.Lock()
		to := netip.MustParseAddrPort("192.0.2.2:7")
		dst := must(d.dest(to))(t)
		if dst.to != to || dst.q != q || d.dests[to] != dst || len(d.dests) != maxDests || d.strangers != 1 {
			t.Errorf("%d peers before: %d afterwards, %d strangers, the new one is %v", before, len(d.dests), d.strangers,
				dst.to)
		}
		if again := must(d.dest(to))(t); again != dst || d.strangers != 1 {
			t.Errorf("the peer is made again, %d strangers", d.strangers)
		}
		d.mu.Unlock()
		ok(t, d.udp.Close())
	}
}

// The zone of a QP is that of its last link-local peer: a peer without a zone leaves it.
func TestZoneOfPeers(t *testing.T) {
	d := NewDatagram(nil, false, Options{}.WithDefaults())
	d.udp = must(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	q := &datagramQP{}
	d.qps[netip.MustParseAddr("127.0.0.1")] = q
	d.mu.Lock()
	for _, c := range []struct{ to, zone string }{
		{"[2001:db8::1]:7", ""}, {"[fe80::1%one]:7", "one"}, {"[2001:db8::2]:7", "one"}, {"[fe80::1%two]:7", "two"},
	} {
		if must(d.dest(netip.MustParseAddrPort(c.to)))(t); q.zone != c.zone {
			t.Errorf("%s: zone %q, want %q", c.to, q.zone, c.zone)
		}
	}
	d.mu.Unlock()
	ok(t, d.udp.Close())
}

// A peer that is forgotten leaves no address handle.
func TestForgottenPeer(t *testing.T) {
	host := hosted(t)
	q := must(newDatagramQP(host, ownAddr.Addr(), 1))(t)
	dst := &dest{to: netip.AddrPortFrom(ownAddr.Addr(), 7), q: q}
	if dst.learn(7); dst.ah == nil {
		t.Fatal("no address handle")
	}
	d := &Datagram{dests: map[netip.AddrPort]*dest{dst.to: dst}, strangers: 1}
	d.mu.Lock()
	if d.evict(); dst.ah != nil || len(d.dests) != 0 || d.strangers != 0 {
		t.Errorf("address handle %v, %d peers, %d strangers", dst.ah, len(d.dests), d.strangers)
	}
	d.mu.Unlock()
	q.close()
}

// The way to a peer begins at the GID of the QP's address, whichever of the device's that is.
func TestPathOfAPeer(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")}
	dev := must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", addrs...))(t)
	host := rdmacm.NewHost(dev)
	peer := netip.MustParseAddrPort("198.18.0.9:7")
	for _, own := range addrs {
		q := must(newDatagramQP(host, own, 1))(t)
		attr, err := (&dest{to: peer, q: q}).path()
		ok(t, err)
		table := must(q.id.Verbs().QueryGIDTable())(t)
		var index int
		for _, e := range table {
			if e.GID == verbs.GIDFromAddr(own) {
				index = e.Index
			}
		}
		want := verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: verbs.GlobalRoute{
			DGID: verbs.GIDFromAddr(peer.Addr()), HopLimit: 64, SGIDIndex: index,
		}}
		if attr != want {
			t.Errorf("from %v: %+v, want %+v", own, attr, want)
		}
		q.local = netip.MustParseAddr("203.0.113.9") // which the device has lost
		dst := &dest{to: peer, q: q}
		if _, err := dst.path(); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("from an address that is no longer there: %v", err)
		}
		dst.to = ownAddr
		if dst.learn(7); dst.ah != nil || dst.qpn != 0 {
			t.Errorf("from an address that is no longer there: QP %d", dst.qpn)
		}
		q.close()
	}
	ok(t, host.Close())
}

// A message to a peer's QP that cannot be posted leaves its slot free. There was room for it.
func TestDatagramThatCannotBePosted(t *testing.T) {
	d, q, dst := withSlot(t)
	ok(t, q.id.DestroyQP())
	d.mu.Lock()
	if sent, err := dst.send(d, []byte("x")); !sent || err == nil || len(q.free) != 1 {
		t.Errorf("sent %v, %v, %d free slots", sent, err, len(q.free))
	}
	d.mu.Unlock()
	if n, err := d.SendTo([]byte("x"), dst.to, WaitMode{}); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	d.Close()
}

// A message by UDP lets a peer's QP be known, once; another QP of the peer replaces it.
func TestPeersQPIsLearned(t *testing.T) {
	d, q, dst := withSlot(t)
	dst.forget()
	dst.qpn = 0
	var before *verbs.AH
	for i, c := range []struct {
		qpn  uint32
		same bool // the address handle
	}{{7, false}, {7, true}, {8, false}, {8, true}} {
		d.onUDP(rs.OpCtrl, c.qpn, nil, dst.to)
		if dst.qpn != c.qpn || dst.ah == nil || (dst.ah == before) != c.same {
			t.Errorf("message %d: QP %d, want %d; the same address handle %v", i, dst.qpn, c.qpn, dst.ah == before)
		}
		before = dst.ah
	}
	if len(d.queue) != 0 || len(d.dests) != 1 {
		t.Errorf("%d messages, %d peers", len(d.queue), len(d.dests))
	}
	q.free = []int{0}
	d.Close()
}

// A connected socket takes no notice of what others send by UDP, and a closed one of nobody.
func TestConnectedSocketIgnoresOthersByUDP(t *testing.T) {
	d, _, dst := withSlot(t)
	d.to = netip.MustParseAddrPort("198.18.0.9:7")
	d.onUDP(rs.OpData, 9, []byte("x"), dst.to)
	d.onUDP(rs.OpData, 9, []byte("x"), netip.MustParseAddrPort("198.18.0.8:7"))
	if len(d.dests) != 1 || dst.qpn != 7 || len(d.queue) != 0 || d.pooled != 0 {
		t.Errorf("%d peers, QP %d, %d messages", len(d.dests), dst.qpn, len(d.queue))
	}
	d.to = netip.AddrPort{}
	d.Close()
	if d.onUDP(rs.OpData, 9, []byte("x"), dst.to); len(d.queue) != 0 || dst.ah != nil {
		t.Errorf("after Close: %d messages, address handle %v", len(d.queue), dst.ah)
	}
}

// TestSenderOfNoMessage checks that a datagram without the header of a message does not make its sender a peer.
func TestSenderOfNoMessage(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	q := must(newDatagramQP(d.hub.Host, ownAddr.Addr(), 1))(t)
	d.qps[netip.MustParseAddr("127.0.0.1")] = q
	send := func(b []byte) netip.AddrPort {
		c := must(net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(d.Local())))(t)
		defer c.Close()
		_, err := c.Write(b)
		ok(t, err)
		return c.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	stranger := send([]byte("no message"))
	peer := send(append(rs.AppendUDPHeader(nil, rs.OpData, 7, ownAddr.Addr()), "hello"...))
	ok(t, d.SetDeadline(time.Now().Add(20*time.Second), true, false))
	b := make([]byte, 10)
	if n, from, err := d.RecvFrom(b, 0, d.Reading()); string(b[:n]) != "hello" || from != peer || err != nil {
		t.Errorf("%q from %v, %v", b[:n], from, err)
	}
	d.mu.Lock()
	if len(d.dests) != 1 || d.dests[stranger] != nil {
		t.Errorf("%d peers, the stranger %v", len(d.dests), d.dests[stranger])
	}
	d.mu.Unlock()
	d.Close()
}

// A message of another family, or without a header, keeps no slot of the QP.
func TestMessageOfAnotherFamily(t *testing.T) {
	for name, head := range map[string][]byte{
		"IPv6": rs.AppendHeader(nil, netip.MustParseAddrPort("[2001:db8::1]:7")), "no header": make([]byte, 20),
	} {
		d := &Datagram{v4: true}
		q := &datagramQP{mem: make([]byte, recvSlot), slots: 1}
		n := copy(q.mem[grhLen:], head)
		d.mu.Lock()
		if q.received(d, 0, grhLen+n) || len(d.queue) != 0 {
			t.Errorf("%s: %d messages", name, len(d.queue))
		}
		d.mu.Unlock()
	}
}

// The socket of IPv6 has no IPv4 peers, and none without an address.
func TestPeerOfAnotherFamily(t *testing.T) {
	for _, v4 := range []bool{true, false} {
		d := NewDatagram(nil, v4, Options{}.WithDefaults())
		other := netip.MustParseAddrPort("192.0.2.1:7")
		if v4 {
			other = netip.MustParseAddrPort("[2001:db8::1]:7")
		}
		for _, to := range []netip.AddrPort{{}, other} {
			if err := d.Connect(to); !errors.Is(err, syscall.EINVAL) || d.Peer().IsValid() || d.udp != nil {
				t.Errorf("IPv4 %v, to %v: %v, peer %v", v4, to, err, d.Peer())
			}
		}
	}
}

// A connected socket has the address of the device toward its peer, or the one that the system chooses if there is no
// device, and a port of its own.
func TestAddressOfAConnectedSocket(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	fabric := rdmatest.New(rdmatest.Config{RealTime: true})
	near := rdmacm.NewHost(must(fabric.NewDevice("a", loopback))(t))
	for host, want := range map[*rdmacm.Host]netip.Addr{hosted(t): netip.IPv4Unspecified(), near: loopback} {
		var both [2]*Datagram
		for i := range both {
			d := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
			ok(t, d.Connect(netip.MustParseAddrPort("127.0.0.1:9")))
			if at := d.Local(); at.Addr() != want || at.Port() < 1024 {
				t.Errorf("it is at %v, want %v", at, want)
			}
			both[i] = d
		}
		both[0].Close()
		both[1].Close()
	}
	ok(t, near.Close())
}

// A link-local address toward a peer has the peer's zone. Others have none.
func TestZoneOfTheRoute(t *testing.T) {
	for peer, want := range map[string]string{"[fe80::9%lo0]:7": "fe80::1%lo0", "[fd00::9]:7": "fd00::1"} {
		own := netip.MustParseAddr(want).WithZone("")
		host := rdmacm.NewHost(must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", own))(t))
		d := NewDatagram(JoinHub(host), false, Options{}.WithDefaults())
		if local, err := d.route(netip.MustParseAddrPort(peer)); local.String() != want || err != nil {
			t.Errorf("%v, %v, want %s", local, err, want)
		}
		d.Close()
		ok(t, host.Close())
	}
}

// Sockets at one address have a QP each.
func TestQPsAtOneAddress(t *testing.T) {
	host := hosted(t)
	a := must(newDatagramQP(host, ownAddr.Addr(), 1))(t)
	b := must(newDatagramQP(host, ownAddr.Addr(), 1))(t)
	if a.qp.QPN() == b.qp.QPN() || a.id.LocalAddr() == b.id.LocalAddr() {
		t.Errorf("QPs %d and %d at %v and %v", a.qp.QPN(), b.qp.QPN(), a.id.LocalAddr(), b.id.LocalAddr())
	}
	a.close()
	b.close()
}
