package shm

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/verbena-rdma/verbena/internal/link"
)

// ByAddress is a Directory of processes each of which has an address to itself: it knows them by their addresses. Its sockets are
// abstract ones, so that it spans a network namespace, as the addresses do.
type ByAddress struct {
	Sockets
	port uint16
}

// NewByAddress makes a directory of processes that use a UDP port.
func NewByAddress(port uint16) *ByAddress {
	return &ByAddress{port: port}
}

// Near wraps a link with addresses so that it goes through shared memory to others of this user on this host that were made by
// Near for the same UDP port, with other addresses. Where that is not possible it returns the link itself: an old kernel, or a sandbox;
// everything still works, more slowly.
func Near(l link.Link, addrs []netip.Addr, port uint16) link.Link {
	s, err := Wrap(l, NewByAddress(port))
	if err != nil || s.SetAddrs(addrs) != nil {
		return l
	}
	return s
}

// Owner names the process that has an address.
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
