package lookup_test

import (
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Addresses of this host need no neighbour.
func TestNeighbourOfThisHost(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "127.9.9.9", "::1", "224.0.0.1"} {
		if known, err := lookup.Neighbour(netip.Addr{}, netip.MustParseAddr(a)); known != lookup.Known || err != nil {
			t.Errorf("%s: %v, %v", a, known, err)
		}
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if known, err := lookup.Neighbour(netip.Addr{}, p.Addr()); known != lookup.Known || err != nil {
			t.Errorf("%v: %v, %v", p.Addr(), known, err)
		}
	}
}

// In a namespace with a veth pair of which the other end answers for one address only, and with routes of each type.
func TestNeighbourStates(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace for this process: %v", err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("the test needs the command ip: %v", err)
	}
	for _, line := range []string{
		"ip link set lo up", "ip link add near type veth peer name far", "ip addr add 192.0.2.1/24 dev near",
		"ip -6 addr add fd00::1/64 dev near nodad", "ip link set near up", "ip link set far up",
		"ip neigh add 192.0.2.3 lladdr 02:00:00:00:00:03 dev near nud permanent",
		"ip neigh add 192.0.2.4 dev near nud failed",
		"ip route add 198.51.100.0/24 via 192.0.2.3", "ip route add 203.0.113.0/26 via 192.0.2.9",
		"ip route add blackhole 203.0.113.64/26", "ip route add unreachable 203.0.113.128/26",
		"ip route add prohibit 203.0.113.192/26", "ip -6 route add blackhole fd01::/64",
		"ip -6 route add unreachable fd02::/64",
		"ip link add dumb type veth peer name dumber", "ip link set dumb arp off", "ip addr add 10.77.0.1/24 dev dumb",
		"ip link set dumb up",
	} {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", line, err, out)
		}
	}
	us := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		dst   string
		known lookup.Knowledge
		err   error
	}{
		{"192.0.2.1", lookup.Known, nil}, {"192.0.2.3", lookup.Known, nil}, {"192.0.2.2", lookup.Unknown, nil},
		{"192.0.2.4", lookup.Unanswered, nil}, {"198.51.100.7", lookup.Known, nil},
		{"203.0.113.1", lookup.Unknown, nil}, {"203.0.113.65", lookup.Unknown, unix.EINVAL},
		{"203.0.113.129", lookup.Unknown, unix.EHOSTUNREACH}, {"203.0.113.193", lookup.Unknown, unix.EACCES},
		{"10.0.0.1", lookup.Unknown, unix.ENETUNREACH}, {"fd00::2", lookup.Unknown, nil},
		{"fd01::2", lookup.Unknown, unix.EINVAL}, {"fd02::2", lookup.Unknown, unix.EHOSTUNREACH},
		{"fd03::2", lookup.Unknown, unix.ENETUNREACH}, {"10.77.0.2", lookup.Known, nil},
	} {
		dst := netip.MustParseAddr(c.dst)
		if known, err := lookup.Neighbour(netip.Addr{}, dst); known != c.known || !errors.Is(err, c.err) {
			t.Errorf("%v: %v, %v: must be %v, %v", dst, known, err, c.known, c.err)
		}
	}
	if known, err := lookup.Neighbour(us, netip.MustParseAddr("198.51.100.7")); known != lookup.Known || err != nil {
		t.Errorf("with a source: %v, %v", known, err)
	}
	// A solicitation starts the system's question.
	for _, a := range []string{"192.0.2.2", "fd00::2"} {
		dst := netip.MustParseAddr(a)
		if err := lookup.Solicit(t.Context(), netip.Addr{}, netip.AddrPortFrom(dst, wire.Port), wire.Harmless); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		out, err := exec.Command("ip", "neigh", "show", a).CombinedOutput()
		if err != nil || len(out) == 0 {
			t.Errorf("nothing was asked about %s: %v: %s", a, err, out)
		}
	}
}

// BenchmarkNeighbour is the cost of a look-up.
func BenchmarkNeighbour(b *testing.B) {
	for b.Loop() {
		_, _ = lookup.Neighbour(netip.Addr{}, netip.MustParseAddr("192.0.2.3"))
	}
}
