package sock

import (
	"net"
	"net/netip"
	"strconv"
)

// unmapped returns an address in the form in which addresses are compared: IPv4 addresses are not mapped, and only
// link-local IPv6 addresses have a zone.
func unmapped(a netip.AddrPort) netip.AddrPort {
	ip := a.Addr().Unmap()
	if !isLinkLocal(ip) {
		ip = ip.WithZone("")
	}
	return netip.AddrPortFrom(ip, a.Port())
}

func isLinkLocal(a netip.Addr) bool {
	return a.Is6() && (a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast())
}

// within is unmapped for an address that may lack its zone.
func within(a netip.AddrPort, zone string) netip.AddrPort {
	a = unmapped(a)
	if ip := a.Addr(); isLinkLocal(ip) && ip.Zone() == "" {
		return netip.AddrPortFrom(ip.WithZone(zone), a.Port())
	}
	return a
}

// named replaces the number of an interface in the zone by its name, as in addresses of the UDP socket.
func named(a netip.AddrPort) netip.AddrPort {
	zone := a.Addr().Zone()
	if zone == "" || zone[0] > '9' { // an error of Atoi would allocate
		return a
	}
	number, err := strconv.Atoi(zone)
	if err != nil {
		return a
	}
	ifi, err := net.InterfaceByIndex(number)
	if err != nil {
		return a
	}
	return netip.AddrPortFrom(a.Addr().WithZone(ifi.Name), a.Port())
}

// zoned returns a peer's address from the program in the form in which messages name it. An address without a zone
// gets that of the link-local address of the socket. mu is held.
//
// +checklocks:d.mu
func (d *Datagram) zoned(a netip.AddrPort) netip.AddrPort {
	a = named(unmapped(a))
	if d.udp != nil && isLinkLocal(a.Addr()) && a.Addr().Zone() == "" {
		return within(a, d.udp.LocalAddr().(*net.UDPAddr).Zone)
	}
	return a
}
