package udp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

func join(t *testing.T, l link.Link, groups ...string) {
	t.Helper()
	for _, g := range groups {
		if err := l.Join(netip.MustParseAddr(g)); err != nil {
			t.Fatal(err)
		}
	}
}

func drain(l link.Link) {
	var rx link.RxBatch
	for l.Ports()[0].Recv(&rx) > 0 {
	}
}

// TestGroups4 sends between two devices on the loopback interface.
func TestGroups4(t *testing.T) {
	needBatched(t)
	port := testPort(t)
	a := open(t, Config{Addrs: []netip.Addr{lo4}, Port: port})
	b := open(t, Config{Addrs: []netip.Addr{lo4b}, Port: port, Ports: 2})
	group := netip.MustParseAddr("239.77.1.2")
	exchange(t, a, b, lo4, group, false)
	join(t, b, "239.77.1.2", "::ffff:239.77.1.2")
	exchange(t, a, b, lo4, group, true)
	exchange(t, b, b, lo4b, group, true)
	join(t, a, "239.77.1.2", "239.77.1.3")
	exchange(t, b, a, lo4b, group, true)
	drain(b)
	b.Leave(group)
	exchange(t, a, b, lo4, group, true)
	drain(a)
	b.Leave(group)
	exchange(t, a, b, lo4, group, false)
	exchange(t, b, b, lo4b, lo4b, true)
}

// TestGroups6 sends within one device: ::1 is the only IPv6 address of the loopback interface.
func TestGroups6(t *testing.T) {
	needBatched(t)
	if len(loopbacks) < 2 {
		t.Skip("this machine has no IPv6")
	}
	for _, ports := range []int{1, 2} {
		l := open(t, Config{Addrs: []netip.Addr{lo4, lo6}, Port: testPort(t), Ports: ports})
		for _, g := range []string{"ff02::77:1", "ff05::77:2", "ff0e::77:3", "ff12::4"} {
			group := netip.MustParseAddr(g)
			join(t, l, "ff02::99", g)
			p := l.Ports()[ports-1].Counters().RxPackets // QPN 0xFFFFFF is odd
			for range 3 {
				tx := link.NewTxBatch(3, 1000)
				for i := range 3 {
					fill(tx.Alloc(&link.Path{Src: lo6, Dst: group}, 1, 60), 0xFFFFFF, uint32(i))
				}
				l.Ports()[0].Send(tx)
				for _, pkt := range receive(t, l.Ports()[ports-1], 3) {
					if pkt.Src != lo6 || pkt.Dst != group {
						t.Errorf("%v: a packet came from %v for %v", group, pkt.Src, pkt.Dst)
					}
				}
			}
			if got := l.Ports()[ports-1].Counters().RxPackets - p; got != 9 {
				t.Errorf("%v: %d packets came, want 9", group, got)
			}
			if err := l.Leave(group); err != nil {
				t.Fatal(err)
			}
			exchange(t, l, l, lo6, group, false)
		}
	}
}

// TestGroupsOnNetwork uses the first interface that has multicast, with both IP versions. It sends to the network, so
// it runs only on request.
func TestGroupsOnNetwork(t *testing.T) {
	if os.Getenv("VERBENA_TEST_NETWORK") == "" {
		t.Skip("sends to the network; set VERBENA_TEST_NETWORK=1 to run it")
	}
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	tried := false
	for _, ifi := range ifs {
		const flags = net.FlagUp | net.FlagMulticast | net.FlagRunning
		if ifi.Flags&flags != flags || ifi.Flags&net.FlagLoopback != 0 || tried {
			continue
		}
		addrs, err := ifi.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			tried = true
			addr := prefix.Addr()
			l := open(t, Config{Interface: ifi.Name, Addrs: []netip.Addr{addr}, Port: testPort(t)})
			group := netip.MustParseAddr("239.77.1.9")
			if addr.Is6() {
				group = netip.MustParseAddr("ff02::77:9")
			}
			t.Logf("%s: %v, %v", ifi.Name, addr, group)
			exchange(t, l, l, addr, addr, true)
			join(t, l, group.String())
			exchange(t, l, l, addr, group, true)
		}
	}
	if !tried {
		t.Log("no interface with multicast here")
	}
}

func TestGroupErrors(t *testing.T) {
	needBatched(t)
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	if err := l.Join(lo4); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Join of a unicast address: %v, want EINVAL", err)
	}
	if err := l.Leave(netip.MustParseAddr("239.1.1.1")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Leave of a group never joined: %v, want EINVAL", err)
	}
	// A program that does not share the port prevents joining the group.
	group := netip.MustParseAddr("239.1.1.1")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(group, portOf(l), 0)); err != nil {
		t.Fatal(err)
	}
	if err := l.Join(group); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Join of a group at a taken port: %v, want EADDRINUSE", err)
	}
	l.Close()
	if err := l.Join(netip.MustParseAddr("239.1.1.1")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Join after Close: %v, want net.ErrClosed", err)
	}
	if err := l.Leave(netip.MustParseAddr("239.1.1.1")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Leave after Close: %v, want net.ErrClosed", err)
	}
}

// TestSharedMulticast checks that a packet for a group arrives once at each link that has joined the group, for any
// number of ports. Over IPv4 this also holds after the leader has closed, and no other link gets it. Over IPv6 on lo
// the leader must have joined, as Join says, and the packet also reaches links that have not, whose engines drop it.
func TestSharedMulticast(t *testing.T) {
	for a, group := range map[netip.Addr]string{lo4: "239.255.77.7", netip.IPv6Loopback(): "ff02::77:7"} {
		t.Run(group, func(t *testing.T) {
			if !has(loopbacks, a) {
				t.Skipf("no %v here", a)
			}
			g := netip.MustParseAddr(group)
			port := testPort(t)
			leader, b, c, apart := openShared(t, port, 1, a), openShared(t, port, 2, a), openShared(t, port, 1, a),
				openShared(t, port, 1, a)
			members := []*Link{leader, b, c}
			for _, l := range members {
				if err := l.Join(g); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				for _, from := range []*Link{members[0], apart} {
					toGroup(from, a, g)
					for i, n := range countAll(append(members[:len(members):len(members)], apart), len(members)) {
						if want := 1; i < len(members) && n != want {
							t.Errorf("member %d of %d got %d packets, want %d", i, len(members), n, want)
						} else if i == len(members) && n != 0 && a.Is4() {
							t.Errorf("a link that has not joined got %d packets", n)
						}
					}
				}
				if a.Is6() {
					break
				}
				leader.Close()
				members = []*Link{b, c}
				for begin := time.Now(); ; { // until another link leads
					toGroup(apart, a, g)
					if n := countAll(members, 0); n[0] > 0 && n[1] > 0 {
						break
					} else if time.Since(begin) > 20*time.Second {
						t.Fatalf("after the end of the leader %v packets came", n)
					}
				}
			}
		})
	}
}

// toGroup sends a packet to a group.
func toGroup(from *Link, src, group netip.Addr) {
	tx := link.NewTxBatch(1, 1<<12)
	pkt := tx.Alloc(&link.Path{Src: src, Dst: group}, wire.MulticastQPN, 32)
	wire.BTH(pkt).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.MulticastQPN, 1, 0)
	from.Ports()[0].Send(tx)
}

func has(all []netip.Addr, a netip.Addr) bool {
	for _, b := range all {
		if a == b {
			return true
		}
	}
	return false
}

// countAll receives at all links until nothing arrives for a while, and returns the number of packets for the group
// at each. It waits longer if one of the first links, of a number, has none.
func countAll(links []*Link, first int) []int {
	n := make([]int, len(links))
	var b link.RxBatch
	limit := time.Now().Add(20 * time.Second)
	for quiet := 0; quiet < 40 || slices.Contains(n[:first], 0) && time.Now().Before(limit); quiet++ {
		for i, l := range links {
			for _, p := range l.Ports() {
				p.Wait(time.Millisecond)
				p.Recv(&b)
				for _, pkt := range b.Packets {
					if pkt.Dst.IsMulticast() {
						n[i]++
						quiet = 0
					}
				}
			}
		}
	}
	return n
}
