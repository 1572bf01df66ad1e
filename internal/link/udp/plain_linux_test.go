package udp

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// A child that a program forks closes the plain sockets: fdset knows them.
func TestPlainSocketsAreKnown(t *testing.T) {
	before := len(fdset.Descriptors())
	l, err := openPlain(Config{Addrs: []netip.Addr{lo4}, Ports: 1, Port: testPort(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n := len(fdset.Descriptors()); n != before+2 {
		t.Errorf("%d descriptors with a socket to receive and one to send, %d before", n, before)
	}
}
