package shm

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/verbena-rdma/verbena/internal/link"
)

// A ByAddress is a Directory of processes that each own an address. Its sockets are abstract, so it spans a network
// namespace, as addresses do.
type ByAddress struct {
	Sockets
	port uint16
}

// NewByAddress returns a directory of processes that use a UDP port.
func NewByAddress(port uint16) *ByAddress {
	return &ByAddress{port: port}
}

// Near wraps a link with addresses so that it sends through shared memory to links that Near made in other processes
// of this user on this host, for the same UDP port and other addresses. If the kernel is too old or a sandbox forbids
// it, Near returns the link itself: everything works, more slowly.
func Near(l link.Link, addrs []netip.Addr, port uint16) link.Link {
	s, err := Wrap(l, NewByAddress(port))
	if err != nil || s.SetAddrs(addrs) != nil {
		return l
	}
	return s
}

// Owner returns the name of the process that owns an address.
func (d *ByAddress) Owner(addr netip.Addr, _ uint32) string {
	return fmt.Sprintf("@verbena-shm/%d/%d/%v", os.Geteuid(), d.port, addr)
}

// Follow listens at addresses; see Follower.
func (d *ByAddress) Follow(addrs []netip.Addr, accept func(*net.UnixConn)) {
	names := make([]string, 0, len(addrs))
	for _, a := range addrs {
		names = append(names, d.Owner(a, 0))
	}
	d.Listen(names, accept)
}
