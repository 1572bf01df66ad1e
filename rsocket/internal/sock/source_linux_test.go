package sock

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

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
		if took := time.Since(begun); took > resolveDatagram {
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
