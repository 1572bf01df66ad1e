package udp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Join joins a multicast group on the interface of the link; its packets arrive at port 0. See link.Link.
//
// Groups work on the loopback interface too, with one exception: a kernel without a multicast route for lo, which is
// the default, refuses to send to an IPv6 group there. Send then sends to its own address instead, and Recv finds the
// group by the ICRC. So IPv6 groups on lo reach the programs that share the device, and no other.
func (l *Link) Join(group netip.Addr) error {
	group, err := checkGroup(group)
	if err != nil {
		return err
	}
	if err := l.count(group); err != nil {
		return err
	}
	if err := l.follow(group); err != nil {
		return errors.Join(fmt.Errorf("link/udp: join %v on %s: %w", group, l.ifi.Load().Name, err), l.Leave(group))
	}
	return nil
}

// count counts a join, and opens the socket of the group for the first one.
func (l *Link) count(group netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	if l.groups[group] == 0 {
		if err := l.joinFirst(group); err != nil {
			return err
		}
	}
	l.groups[group]++
	l.listGroups6()
	return nil
}

// follow makes the processes that lead at the link's addresses forward the packets of a group if it is joined, and
// ends that if it is not. A stopped one is waited for without mu, so that only callers at its address wait.
func (l *Link) follow(group netip.Addr) error {
	if !l.loopback || group.Is4() {
		return nil
	}
	l.mu.Lock()
	members := maps.Clone(l.members)
	l.mu.Unlock()
	for a, m := range members {
		if a.Is6() {
			if err := l.followAt(a, m, group); err != nil {
				return err
			}
		}
	}
	return nil
}

// followAt is follow at one address. The last of several calls finds the last count. An address that the link leaves
// meanwhile is no error.
func (l *Link) followAt(a netip.Addr, m *member, group netip.Addr) error {
	m.following.Lock()
	defer m.following.Unlock()
	l.mu.Lock()
	joined := l.groups[group] > 0
	l.mu.Unlock()
	if !joined {
		m.group.Leave(group)
		return nil
	}
	err := m.group.Enter(group)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.members[a] != m {
		return nil
	}
	return err
}

func (l *Link) joinFirst(group netip.Addr) (err error) {
	fd, err := l.openRecv(group, false)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if group.Is4() {
		mreq := unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(l.ifi.Load().Index)}
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &mreq)
	} else {
		mreq := unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(l.ifi.Load().Index)}
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &mreq)
	}
	if err != nil {
		return fmt.Errorf("link/udp: join %v on %s: %w", group, l.ifi.Load().Name, err)
	}
	l.learn(fd)
	return l.ports[0].add(rxSocket{fd: fd, addr: group}, nil)
}

// rejoin joins the groups on another interface. A group that cannot be joined there receives nothing.
func (l *Link) rejoin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	for g := range l.groups {
		l.ports[0].remove(g)
		_ = l.joinFirst(g)
	}
}

// Leave leaves a multicast group; see link.Link.
func (l *Link) Leave(group netip.Addr) error {
	group, err := checkGroup(group)
	if err != nil {
		return err
	}
	last, err := l.discount(group)
	if last {
		err = l.follow(group)
	}
	return err
}

// discount removes a join, and closes the socket of the group after the last one.
func (l *Link) discount(group netip.Addr) (last bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false, errClosed
	case l.groups[group] == 0:
		return false, errNotJoined(group)
	}
	if l.groups[group]--; l.groups[group] > 0 {
		return false, nil
	}
	delete(l.groups, group)
	l.ports[0].remove(group)
	l.listGroups6()
	return true, nil
}

// listGroups6 publishes the IPv6 groups whose packets can arrive at the link's own addresses.
func (l *Link) listGroups6() {
	if !l.loopback {
		return
	}
	var all []netip.Addr
	for g := range l.groups {
		if g.Is6() {
			all = append(all, g)
		}
	}
	l.groups6.Store(&all)
}

// groupOf returns the IPv6 group of a packet that arrived at one of the link's own addresses, among the groups of the
// processes that share the address. ok is false for nearly all packets.
func (p *port) groupOf(s *rxSocket, pkt []byte, src netip.Addr, srcPort uint16) (group netip.Addr, ok bool) {
	l := p.link
	if len(pkt) < wire.BTHLen+wire.ICRCLen || wire.BTH(pkt).DestQPN() != wire.MulticastQPN {
		return netip.Addr{}, false
	}
	var all []netip.Addr
	if s.shared {
		if all = s.group.Multicast(); !p.attempts.allow(len(all)) {
			return netip.Addr{}, false
		}
	} else if own := l.groups6.Load(); own != nil {
		all = *own
	}
	for _, g := range all {
		if _, ok := wire.NewFlow(src, g, srcPort, l.cfg.Port).Verify(pkt, 0); ok {
			return g, true
		}
	}
	return netip.Addr{}, false
}

// checkGroup returns a multicast address without 4-in-6 form and zone.
func checkGroup(group netip.Addr) (netip.Addr, error) {
	g := group.Unmap().WithZone("")
	if !g.IsMulticast() {
		return g, fmt.Errorf("link/udp: group %v: not a multicast address: %w", group, syscall.EINVAL)
	}
	return g, nil
}

func errNotJoined(group netip.Addr) error {
	return fmt.Errorf("link/udp: leave %v: the group was not joined: %w", group, syscall.EINVAL)
}
