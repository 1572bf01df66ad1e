package mem

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Link is one device's connection to a fabric. The fabric's mu guards it.
type Link struct {
	fabric *Fabric
	ports  []*port
	addrs  []netip.Addr
	groups map[netip.Addr]int // count of joins
	freeAt int64              // when the receiving side has taken the packets in flight, with a bandwidth
	closed bool
}

var errClosed = fmt.Errorf("link/mem: the link is closed: %w", net.ErrClosed)

// Ports lists the ports.
func (l *Link) Ports() []link.Port {
	ports := make([]link.Port, len(l.ports))
	for i, p := range l.ports {
		ports[i] = p
	}
	return ports
}

// SetAddrs replaces the addresses. If it fails they are unchanged.
func (l *Link) SetAddrs(addrs []netip.Addr) error {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	if l.closed {
		return errClosed
	}
	return l.setAddrs(addrs)
}

func (l *Link) setAddrs(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return fmt.Errorf("link/mem: no address: must be at least one: %w", syscall.EINVAL)
	}
	byAddr := l.fabric.byAddr
	var plain []netip.Addr
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return fmt.Errorf("link/mem: address %v: must be a unicast address: %w", a, syscall.EINVAL)
		}
		if other := byAddr[a]; other != nil && other != l {
			return fmt.Errorf("link/mem: address %v belongs to another link: %w", a, syscall.EADDRINUSE)
		}
		plain = append(plain, a)
	}
	for _, a := range l.addrs {
		delete(byAddr, a)
	}
	for _, a := range plain {
		byAddr[a] = l
	}
	l.addrs = plain
	return nil
}

// Capabilities returns the empty set.
func (*Link) Capabilities() link.Capabilities { return link.Capabilities{} }

// Join joins a multicast group.
func (l *Link) Join(group netip.Addr) error {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	group = group.Unmap().WithZone("")
	switch {
	case l.closed:
		return errClosed
	case !group.IsMulticast():
		return fmt.Errorf("link/mem: join %v: not a multicast address: %w", group, syscall.EINVAL)
	}
	l.groups[group]++
	return nil
}

// Leave leaves a multicast group.
func (l *Link) Leave(group netip.Addr) error {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	group = group.Unmap().WithZone("")
	switch {
	case l.closed:
		return errClosed
	case l.groups[group] == 0:
		return fmt.Errorf("link/mem: leave %v: the group was not joined: %w", group, syscall.EINVAL)
	}
	if l.groups[group]--; l.groups[group] == 0 {
		delete(l.groups, group)
	}
	return nil
}

// Close removes the link from the fabric and ends a Wait.
func (l *Link) Close() error {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	if l.closed {
		return errClosed
	}
	l.closed = true
	l.fabric.remove(l)
	for _, p := range l.ports {
		p.poke()
	}
	return nil
}
