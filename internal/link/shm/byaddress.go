package shm

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/link"
)

// ByAddress is a Directory of processes each of which has an address to itself: it knows them by their addresses. Its sockets are
// abstract ones, so that it spans a network namespace, as the addresses do.
type ByAddress struct {
	port uint16

	mu        sync.Mutex
	listeners map[netip.Addr]*net.UnixListener
}

// NewByAddress makes a directory of processes that use a UDP port.
func NewByAddress(port uint16) *ByAddress {
	return &ByAddress{port: port, listeners: make(map[netip.Addr]*net.UnixListener)}
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

// Dial connects to a process.
func (d *ByAddress) Dial(name string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
}

// Follow listens at addresses; see Follower. One whose name is taken is left out: its packets go over the other link.
func (d *ByAddress) Follow(addrs []netip.Addr, accept func(*net.UnixConn)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, l := range d.listeners {
		if !slices.Contains(addrs, a) {
			l.Close()
			delete(d.listeners, a)
		}
	}
	for _, a := range addrs {
		if d.listeners[a] != nil {
			continue
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Owner(a, 0), Net: "unix"})
		if err != nil {
			continue
		}
		d.listeners[a] = l
		go listen(l, accept)
	}
}

func listen(l *net.UnixListener, accept func(*net.UnixConn)) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		accept(c)
	}
}
