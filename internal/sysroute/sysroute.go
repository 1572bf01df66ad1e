// Package sysroute asks the system which local address, and which network interface, packets to a peer leave from. It
// owns nothing and sends nothing. It imports internal/wire.
package sysroute

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Source is the source address of the system's route to a peer, without zone. A link-local peer without zone is looked
// for on the interface iface, which may be empty. The error is the system's: ENETUNREACH if there is no route.
func Source(peer netip.Addr, iface string) (netip.Addr, error) {
	if peer.IsLinkLocalUnicast() && peer.Is6() && peer.Zone() == "" {
		peer = peer.WithZone(iface)
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, wire.Port)))
	if err != nil {
		return netip.Addr{}, routeError(peer, err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), nil
}

// routeError is an error of opening a socket to a peer, without the socket, which is none of the caller's.
func routeError(peer netip.Addr, err error) error {
	if sys := (*os.SyscallError)(nil); errors.As(err, &sys) {
		if err = sys; sys.Syscall == "connect" {
			err = sys.Err
		}
	}
	if peer.IsMulticast() {
		return fmt.Errorf("route to the group %v: %w; bind to a local address, which selects the interface (mckey -b)",
			peer, err)
	}
	if errors.Is(err, syscall.EINVAL) && !peer.IsLinkLocalUnicast() {
		return fmt.Errorf("route to %v: %w; it is of the type blackhole (ip route get %v)", peer, err, peer)
	}
	return fmt.Errorf("route to %v: %w", peer, err)
}

// Named returns an address whose zone is the name of an interface. Programs may give its index instead.
func Named(a netip.Addr) netip.Addr {
	if a.Zone() == "" {
		return a
	}
	index, err := strconv.Atoi(a.Zone())
	if err != nil {
		return a
	}
	if _, err := net.InterfaceByName(a.Zone()); err == nil {
		return a
	}
	ifi, err := net.InterfaceByIndex(index)
	if err != nil {
		return a
	}
	return a.WithZone(ifi.Name)
}

// InZone reports whether packets to a peer may leave from one of some interfaces. The zone of a link-local peer
// decides; without a zone, and without names of interfaces, they may.
func InZone(peer netip.Addr, interfaces ...string) bool {
	return peer.Zone() == "" || len(interfaces) == 0 || slices.Contains(interfaces, Named(peer).Zone())
}

// Interface is the name of the interface that has a local address, empty if none has it.
func Interface(local netip.Addr) string {
	if !local.IsValid() {
		return ""
	}
	ifs, _ := net.Interfaces()
	for i := range ifs {
		addrs, _ := ifs[i].Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap().WithZone("") == local {
				return ifs[i].Name
			}
		}
	}
	return ""
}
