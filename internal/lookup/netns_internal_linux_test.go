package lookup

import (
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/refuse"
)

// namespace moves the test to a network of its own, with what the commands make.
func namespace(t *testing.T, commands ...string) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace for this process: %v", err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("the test needs the command ip: %v", err)
	}
	for _, line := range commands {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", line, err, out)
		}
	}
}

// opened counts the descriptors up to a number.
func opened() (n int) {
	for fd := range 256 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			n++
		}
	}
	return n
}

// In a network without routes and interfaces nobody can be reached. Addresses that need no neighbour are known there
// too, as nothing is asked.
func TestNeighboursWithoutNetwork(t *testing.T) {
	namespace(t)
	_, _ = Neighbour(netip.Addr{}, netip.MustParseAddr("192.0.2.1")) // what the runtime opens once
	before := opened()
	us := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		src netip.Addr
		dst string
		err error
	}{
		{netip.Addr{}, "192.0.2.1", syscall.ENETUNREACH}, {netip.Addr{}, "fd00::1", syscall.ENETUNREACH},
		{netip.Addr{}, "127.0.0.1", nil}, {netip.Addr{}, "::1", nil}, {netip.Addr{}, "224.0.0.9", nil},
		{netip.Addr{}, "ff02::9", nil}, {us, "192.0.2.1", nil}, {us, "::ffff:192.0.2.1", nil},
		{netip.MustParseAddr("::ffff:192.0.2.1"), "192.0.2.1", nil},
	} {
		known, err := Neighbour(c.src, netip.MustParseAddr(c.dst))
		if want := map[bool]Knowledge{true: Known, false: Unknown}[c.err == nil]; known != want || !errors.Is(err, c.err) {
			t.Errorf("%v to %s: %v, %v", c.src, c.dst, known, err)
		}
	}
	to := netip.MustParseAddrPort("192.0.2.1:4791")
	silent := func(_, _ netip.AddrPort) []byte { return nil }
	if err := Solicit(t.Context(), netip.Addr{}, to, silent); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("Solicit: %v", err)
	}
	if err := Unreachable(t.Context(), netip.Addr{}, to, silent); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("Unreachable: %v", err)
	}
	if mtu := RouteMTU(netip.Addr{}, to.Addr()); mtu != 0 {
		t.Errorf("MTU %d", mtu)
	}
	if after := opened(); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
	if _, err := unix.FcntlInt(0, unix.F_GETFD, 0); err != nil {
		t.Errorf("the standard input: %v", err)
	}
}

// Without a descriptor nothing is known, which is not the peer's fault.
func TestNoDescriptors(t *testing.T) {
	before := opened()
	var known Knowledge
	var err error
	mtu := -1
	if e := refuse.Descriptors(func() {
		known, err = Neighbour(netip.Addr{}, netip.MustParseAddr("192.0.2.1"))
		mtu = RouteMTU(netip.Addr{}, netip.MustParseAddr("127.0.0.1"))
	}); e != nil {
		t.Fatal(e)
	}
	if known != Known || err != nil || mtu != 0 {
		t.Errorf("%v, %v, MTU %d", known, err, mtu)
	}
	if after := opened(); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// The MTU is that of the route, of the interface that it leaves from; 0 if there is no route or no such source.
func TestRouteMTU(t *testing.T) {
	namespace(t, "ip link set lo up", "ip link add near type veth peer name far", "ip link set near mtu 1400",
		"ip addr add 192.0.2.1/24 dev near", "ip -6 addr add fd00::1/64 dev near nodad",
		"ip addr add 203.0.113.1/24 dev lo", "ip link set near up", "ip link set far up",
		"ip route add 198.51.100.0/24 via 192.0.2.3 mtu 1300", "ip -6 addr add fe80::1/64 dev near nodad")
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		src, dst string
		want     int
	}{
		{"", "192.0.2.7", 1400}, {"", "198.51.100.1", 1300}, {"", "fd00::7", 1400}, {"", "127.0.0.1", min(lo.MTU, 1<<16-1)},
		{"", "::1", lo.MTU}, {"", "::ffff:192.0.2.7", 1400}, {"192.0.2.1", "192.0.2.7", 1400},
		{"203.0.113.1", "198.51.100.1", 1300}, {"192.0.2.200", "192.0.2.7", 0}, {"", "10.0.0.1", 0}, {"", "fd01::1", 0},
		{"", "fe80::7%near", 1400}, {"fe80::1", "fe80::7%near", 1400}, {"", "fe80::7%none0", 0},
		{"fe80::1", "fe80::7%none0", 0},
	} {
		var src netip.Addr
		if c.src != "" {
			src = netip.MustParseAddr(c.src)
		}
		if got := RouteMTU(src, netip.MustParseAddr(c.dst)); got != c.want {
			t.Errorf("%s to %s: %d, want %d", c.src, c.dst, got, c.want)
		}
	}
}

// The source of a question is the one that the caller names.
func TestNeighbourOfASource(t *testing.T) {
	namespace(t, "ip link set lo up", "ip link add near type veth peer name far", "ip addr add 192.0.2.1/24 dev near",
		"ip addr add 203.0.113.1/24 dev lo", "ip link set near up", "ip link set far up",
		"ip neigh add 192.0.2.3 lladdr 02:00:00:00:00:03 dev near nud permanent",
		"ip route add blackhole 198.51.100.0/24 table 77", "ip rule add from 203.0.113.1 table 77",
		"ip route add 198.51.100.0/24 via 192.0.2.3")
	dst := netip.MustParseAddr("198.51.100.1")
	for src, want := range map[netip.Addr]error{
		{}: nil, netip.IPv4Unspecified(): nil, netip.MustParseAddr("192.0.2.1"): nil,
		netip.MustParseAddr("203.0.113.1"): syscall.EINVAL,
	} {
		if known, err := Neighbour(src, dst); !errors.Is(err, want) || want == nil && known != Known {
			t.Errorf("from %v: %v, %v", src, known, err)
		}
	}
}
