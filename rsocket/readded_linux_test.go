package rsocket_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/rsocket"
)

// veth makes a pair of interfaces, of which one has an address.
func veth(t *testing.T, name, addr string) {
	t.Helper()
	for _, line := range []string{"link add " + name + " type veth peer name " + name + "x", "link set " + name + "x up",
		"addr add " + addr + "/24 dev " + name, "link set " + name + " up"} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %v: %s", line, err, out)
		}
	}
}

// A datagram socket whose interface goes and comes back still receives in a call that waits.
func TestDatagramsOfAnInterfaceThatComesBack(t *testing.T) {
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return
	}
	if err := os.Setenv("VERBENA_DEVICES", "one,two"); err != nil { // of the process in the namespace
		t.Fatal(err)
	}
	apart.IP(t, "link set lo up")
	veth(t, "one", "192.0.2.1")
	veth(t, "two", "198.51.100.1")
	listen := func(at string) net.PacketConn {
		c, err := rsocket.ListenPacket("udp4", at+":0")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s, c := listen("192.0.2.1"), listen("198.51.100.1")
	pass := func(from, to net.PacketConn, wait time.Duration) error {
		go func() {
			time.Sleep(20 * time.Millisecond)        // the receiver waits
			_, _ = from.WriteTo(nil, to.LocalAddr()) // the device has perhaps not noticed yet that it is back
		}()
		if err := to.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		_, _, err := to.ReadFrom(nil)
		return err
	}
	for range 3 { // until both know the QP of the other
		for _, err := range []error{pass(c, s, time.Minute), pass(s, c, time.Minute)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	apart.IP(t, "link del one")
	time.Sleep(500 * time.Millisecond) // until the device has noticed
	veth(t, "one", "192.0.2.1")
	time.Sleep(500 * time.Millisecond)
	for range 3 {
		if err := pass(c, s, 2*time.Second); err != nil {
			t.Error(err)
		}
	}
	for _, x := range []net.PacketConn{s, c} {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}
