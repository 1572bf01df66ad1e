package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestPortTaken checks that no other link shares the port, not even one of another process of the same user with as
// many shards.
func TestPortTaken(t *testing.T) { kinds(t, testPortTaken) }

func testPortTaken(t *testing.T) {
	for _, a := range loopbacks {
		for _, n := range [][2]int{{1, 1}, {1, 4}, {4, 1}, {4, 4}} {
			port := testPort(t)
			first := open(t, Config{Addrs: []netip.Addr{a}, Ports: n[0], Port: port})
			cfg := Config{Addrs: []netip.Addr{a}, Ports: n[1], Port: port}
			_, err := Open(cfg)
			if !errors.Is(err, syscall.EADDRINUSE) {
				t.Fatalf("%v, %d ports beside %d: %v, want EADDRINUSE", a, n[1], n[0], err)
			}
			if !strings.Contains(err.Error(), netip.AddrPortFrom(a, port).String()) {
				t.Errorf("the error does not name address and port: %v", err)
			}
			if c, err := net.ListenUDP(network(a), net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port))); err == nil {
				c.Close()
				t.Errorf("another socket could be bound beside %d ports", n[0])
			}
			first.Close()
			open(t, cfg)
		}
	}
}

func TestPortTakenByOthers(t *testing.T) { kinds(t, testPortTakenByOthers) }

func testPortTakenByOthers(t *testing.T) {
	needSeparate(t)
	port := testPort(t)
	for _, at := range []string{"127.0.0.2", "0.0.0.0"} {
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(at), port)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(Config{Addrs: []netip.Addr{lo4b}, Port: port, Ports: 2})
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("beside a socket at %s: %v, want EADDRINUSE", at, err)
		}
		_, proc := os.Stat("/proc/net/udp")
		if named := strings.Contains(err.Error(), "this process"); runtime.GOOS == "linux" && proc == nil && !named {
			t.Errorf("the error does not name the owner of the port: %v", err)
		}
		c.Close()
	}
	open(t, Config{Addrs: []netip.Addr{lo4b}, Port: port, Ports: 2})
}

func TestBadConfig(t *testing.T) { kinds(t, testBadConfig) }

func testBadConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want error
	}{
		{Config{}, syscall.EINVAL},
		{Config{Addrs: []netip.Addr{{}}}, syscall.EINVAL},
		{Config{Addrs: []netip.Addr{netip.IPv4Unspecified()}}, syscall.EINVAL},
		{Config{Addrs: []netip.Addr{netip.MustParseAddr("239.1.1.1")}}, syscall.EINVAL},
		{Config{Addrs: []netip.Addr{lo4}, Ports: -1}, syscall.EINVAL},
		{Config{Addrs: []netip.Addr{lo4}, Ports: 65}, syscall.EINVAL},
		{Config{Addrs: []netip.Addr{lo4}, Interface: "no-such-0"}, syscall.ENODEV},
		{Config{Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.77")}}, syscall.EADDRNOTAVAIL},
		{Config{Addrs: []netip.Addr{lo4, netip.MustParseAddr("198.51.100.77")}}, syscall.EADDRNOTAVAIL},
	} {
		if len(c.cfg.Addrs) == 2 && separate() != nil {
			continue // Wine binds foreign addresses
		}
		c.cfg.Port = testPort(t)
		l, err := Open(c.cfg)
		if !errors.Is(err, c.want) {
			t.Errorf("Open(%+v): %v, want %v", c.cfg, err, c.want)
		}
		if err == nil {
			l.Close()
		} else {
			t.Log(err)
		}
	}
}

// exchange sends one packet from a to b and checks whether it arrives, as wanted. It does not detect an unwanted
// packet that arrives late.
func exchange(t *testing.T, from, to link.Link, a, b netip.Addr, want bool) {
	t.Helper()
	qpn := uint32(0)
	if b.IsMulticast() {
		qpn = wire.MulticastQPN
	}
	limit := 30 * time.Millisecond
	if want {
		limit = 20 * time.Second
	}
	tx := link.NewTxBatch(1, 100)
	fill(tx.Alloc(&link.Path{Src: a, Dst: b}, 1, 32), qpn, 1)
	from.Ports()[0].Send(tx)
	var rx link.RxBatch
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if to.Ports()[0].Recv(&rx) > 0 {
			if p := rx.Packets[0]; !want || p.Src != a || p.Dst != b || len(rx.Packets) > 1 {
				t.Errorf("%v -> %v: %d packets came, the first from %v for %v", a, b, len(rx.Packets), p.Src, p.Dst)
			}
			return
		}
		to.Ports()[0].Wait(10 * time.Millisecond)
	}
	if want {
		t.Errorf("%v -> %v: no packet came; counters %+v", a, b, to.Ports()[0].Counters())
	}
}

func TestSetAddrs(t *testing.T) { kinds(t, testSetAddrs) }

func testSetAddrs(t *testing.T) {
	needSeparate(t)
	last := lo4c
	if len(loopbacks) > 1 {
		last = lo6
	}
	for _, ports := range []int{1, 3} {
		l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), Ports: ports})
		check := func(want ...netip.Addr) {
			t.Helper()
			for _, a := range []netip.Addr{lo4, lo4b, last} {
				wanted := false
				for _, b := range want {
					wanted = wanted || a == b
				}
				exchange(t, l, l, a, a, wanted)
			}
		}
		set := func(addrs ...netip.Addr) error { return l.SetAddrs(addrs) }
		check(lo4)
		if err := set(lo4, lo4b, last, lo4b, netip.MustParseAddr("::ffff:127.0.0.1")); err != nil {
			t.Fatal(err)
		}
		check(lo4, lo4b, last)
		if err := set(last); err != nil {
			t.Fatal(err)
		}
		check(last)
		if err := set(lo4b, netip.MustParseAddr("198.51.100.77")); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("a foreign address: %v, want EADDRNOTAVAIL", err)
		}
		check(last)
		if err := set(last, netip.MustParseAddr("198.51.100.77")); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("the own and a foreign address: %v, want EADDRNOTAVAIL", err)
		}
		check(last)
		if err := set(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("no address: %v, want EINVAL", err)
		}
		check(last)
		if err := set(lo4); err != nil {
			t.Fatal(err)
		}
		check(lo4)
	}
}

func TestAfterClose(t *testing.T) { kinds(t, testAfterClose) }

func testAfterClose(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	l.Close()
	if err := l.SetAddrs([]netip.Addr{lo4}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("SetAddrs after Close: %v, want net.ErrClosed", err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Close after Close: %v, want net.ErrClosed", err)
	}
	// Calls after Close do nothing.
	p := l.Ports()[0]
	tx := link.NewTxBatch(1, 100)
	fill(tx.Alloc(&link.Path{Src: lo4, Dst: lo4}, 1, 32), 0, 1)
	p.Send(tx)
	var rx link.RxBatch
	if n := p.Recv(&rx); n != 0 || p.Counters().TxDropped != 1 {
		t.Errorf("Recv after Close: %d packets; counters %+v", n, p.Counters())
	}
	p.Wake()
	p.Wait(time.Second)
}

// TestSendNowhere checks that packets that cannot be sent are dropped and counted, and that the others are sent.
func TestSendNowhere(t *testing.T) { kinds(t, testSendNowhere) }

func testSendNowhere(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.Ports()[0]
	good := &link.Path{Src: lo4, Dst: lo4}
	tx := link.NewTxBatch(100, 200000)
	for i, path := range []*link.Path{
		good,
		{Src: lo4b, Dst: lo4},
		{Src: lo4, Dst: lo6},
		good,
		{Src: lo4, Dst: netip.MustParseAddr("127.9.9.9")}, // no socket is there: the network drops it
		good,
	} {
		fill(tx.Alloc(path, 1, 32), 0, uint32(i))
	}
	fill(tx.Alloc(good, 1, 66000), 0, 6) // longer than the longest datagram
	fill(tx.Alloc(good, 1, 32), 0, 7)
	p.Send(tx)
	time.Sleep(20 * time.Millisecond) // for the ICMP message
	fill(tx.Alloc(good, 1, 32), 0, 8)
	p.Send(tx)
	got := ""
	for _, pkt := range receive(t, p, 5) {
		got += fmt.Sprint(pkt.Data[11])
	}
	if got != "03578" {
		t.Errorf("packets %s came, want 03578", got)
	}
	if c := p.Counters(); c.TxDropped != 3 || c.TxPackets != 6 {
		t.Errorf("counters %+v, want 3 dropped and 6 sent", c)
	}
}

func TestRecvBuffer(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	if got := l.Capabilities().RecvBuffer; got < 4096 {
		t.Errorf("receive buffer of %d bytes", got)
	}
}
