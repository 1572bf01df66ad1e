package sock

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// wired runs a test in a namespace with an interface of address 192.0.2.1/24, on whose cable nobody answers. It is
// skipped where a process cannot have that.
func wired(t *testing.T, f func(t *testing.T)) {
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return
	}
	for _, line := range []string{"link set lo up", "link add near type veth peer name far",
		"addr add 192.0.2.1/24 dev near", "link set near up", "link set far up"} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %v: %s", line, err, out)
		}
	}
	f(t)
}

// resolution is the time that the resolution of a peer that does not exist takes at least.
const resolution = 2 * time.Second

// A link-local peer that does not exist is not waited for either: its address in a datagram may be forged, and the zone
// is that of the interface. Messages to it leave from the link-local address of that interface.
func TestLinkLocalSourceThatDoesNotExist(t *testing.T) {
	wired(t, func(t *testing.T) {
		near := netip.MustParseAddr("fe80::77")
		out, err := exec.Command("ip", "addr", "add", near.String()+"/64", "dev", "near", "nodad").CombinedOutput()
		if err != nil {
			t.Skipf("%v: %s", err, out)
		}
		dev, err := soft.New(soft.Config{Name: "vrb_near", Addrs: []netip.Addr{near.WithZone("near")}})
		if err != nil {
			t.Fatal(err)
		}
		host := rdmacm.NewHost(dev.Device)
		d := NewDatagram(JoinHub(HostOf(host)), false, Options{}.WithDefaults())
		if err := d.Bind(netip.MustParseAddrPort("[::]:0")); err != nil {
			t.Fatal(err)
		}
		peer := netip.MustParseAddrPort("[fe80::99%near]:7")
		if local, err := d.route(peer); err != nil || local.WithZone("").Compare(local) == 0 || !local.IsLinkLocalUnicast() {
			t.Errorf("the local address toward %v: %v, %v", peer, local, err)
		}
		at := NewDatagram(JoinHub(HostOf(host)), false, Options{}.WithDefaults())
		ok(t, at.Bind(netip.AddrPortFrom(near.WithZone("near"), 0)))
		for _, text := range []string{"[fe80::99]:7", "[fe80::99%near]:7"} {
			if got := at.zoned(netip.MustParseAddrPort(text)); got != peer {
				t.Errorf("%s toward a socket of the interface is %v", text, got)
			}
		}
		at.Close()
		d.onUDP(rs.OpData, 0x1234, []byte{1}, peer)
		b := make([]byte, 10)
		if n, from, err := d.RecvFrom(b, 0, WaitMode{Nonblock: true}); err != nil || n != 1 || from != peer {
			t.Errorf("%d bytes from %v, %v", n, from, err)
		}
		if n := len(d.qps); n != 1 {
			t.Errorf("%d QPs toward the peer", n)
		}
		d.Close()
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A datagram whose source does not exist does not stop the socket: 20 of them take less time than the resolution of
// one. They are received all the same.
func TestSourcesThatDoNotExist(t *testing.T) {
	wired(t, func(t *testing.T) {
		near := netip.MustParseAddr("192.0.2.1")
		dev, err := soft.New(soft.Config{Name: "vrb_near", Addrs: []netip.Addr{near}})
		if err != nil {
			t.Fatal(err)
		}
		host := rdmacm.NewHost(dev.Device)
		hub := JoinHub(HostOf(host))
		d := NewDatagram(hub, true, Options{}.WithDefaults())
		if err := d.Bind(netip.MustParseAddrPort("0.0.0.0:0")); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for i := range byte(20) {
			d.onUDP(rs.OpData, 0x1234, []byte{i}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 50 + i}), 7))
		}
		if took := time.Since(begun); took > resolution {
			t.Errorf("20 datagrams took %v", took)
		}
		b := make([]byte, 10)
		for i := range byte(20) {
			n, from, err := d.RecvFrom(b, 0, WaitMode{Nonblock: true})
			if err != nil || n != 1 || b[0] != i || from.Addr().As4()[3] != 50+i {
				t.Fatalf("message %d: %d bytes %v from %v, %v", i, n, b[:n], from, err)
			}
		}
		d.Close()
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A link-local peer without a zone has that of the socket's address. Others stay as they are.
func TestZoneOfTheSocket(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Skip(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	lo := must(net.InterfaceByName("lo"))(t)
	// The group of all nodes: a socket can be bound to it though no interface has an address.
	ok(t, unix.Bind(fd, &unix.SockaddrInet6{ZoneId: uint32(lo.Index), Addr: netip.MustParseAddr("ff02::1").As16()}))
	c := must(net.FilePacketConn(f))(t)
	defer c.Close()
	for bound, zone := range map[bool]string{true: "%lo", false: ""} {
		d := &Datagram{}
		if bound {
			d.udp = c.(*net.UDPConn)
		}
		d.mu.Lock()
		for peer, want := range map[string]string{
			"[fe80::9]:7": "[fe80::9" + zone + "]:7", "[fe80::9%eth9]:7": "[fe80::9%eth9]:7", "[fd00::9]:7": "[fd00::9]:7",
			"192.0.2.1:7": "192.0.2.1:7",
		} {
			if got := d.zoned(netip.MustParseAddrPort(peer)); got.String() != want {
				t.Errorf("bound %v: %s is %v, want %s", bound, peer, got, want)
			}
		}
		d.mu.Unlock()
	}
}
