package udp

import (
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Join joins a multicast group on the link's interface; its packets come at port 0. See link.Link.
//
// Groups work on the loopback interface too, except that a kernel without a multicast route for
// lo (and they have none) refuses to send to an IPv6 group there. Send then sends to its own
// address instead, where the ICRC tells Recv which group is meant: so IPv6 groups on lo reach the
// programs that share the device, and no other. Known limit: the process that reads QP 1 finds the group among its own, so
// while that process has not joined it, packets for an IPv6 group on lo are lost, and counted as ICRC errors.
func (l *Link) Join(group netip.Addr) error {
	group, err := checkGroup(group)
	if err != nil {
		return err
	}
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
		mreq := unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(l.ifi.Index)}
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &mreq)
	} else {
		mreq := unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(l.ifi.Index)}
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &mreq)
	}
	if err != nil {
		return fmt.Errorf("link/udp: join %v on %s: %w", group, l.ifi.Name, err)
	}
	return l.ports[0].add(rxSocket{fd: fd, addr: group}, nil)
}

// Leave leaves a multicast group; see link.Link.
func (l *Link) Leave(group netip.Addr) error {
	group, err := checkGroup(group)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errClosed
	case l.groups[group] == 0:
		return errNotJoined(group)
	}
	if l.groups[group]--; l.groups[group] == 0 {
		delete(l.groups, group)
		l.ports[0].remove(group)
		l.listGroups6()
	}
	return nil
}

// listGroups6 tells the ports what to look for at the link's own addresses.
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

// groupOf finds the IPv6 group that a packet at one of the link's own addresses is meant for. ok is false for
// nearly all packets.
func (l *Link) groupOf(pkt []byte, src netip.Addr, srcPort uint16) (group netip.Addr, ok bool) {
	if len(pkt) < wire.BTHLen+wire.ICRCLen || wire.BTH(pkt).DestQPN() != wire.MulticastQPN {
		return netip.Addr{}, false
	}
	all := l.groups6.Load()
	if all == nil {
		return netip.Addr{}, false
	}
	for _, g := range *all {
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
