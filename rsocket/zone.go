package rsocket

import (
	"net"
	"net/netip"
	"strconv"
)

// unmapped is an address in the form in which addresses are compared: IPv4 is IPv4, and only a link-local IPv6 address has a zone.
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

// within is unmapped for an address that may have come without its zone.
func within(a netip.AddrPort, zone string) netip.AddrPort {
	a = unmapped(a)
	if ip := a.Addr(); isLinkLocal(ip) && ip.Zone() == "" {
		return netip.AddrPortFrom(ip.WithZone(zone), a.Port())
	}
	return a
}

// named has an interface's name instead of its number as the zone, as addresses of the UDP socket have it.
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

// zoned is a peer's address as the program gives it, in the form in which messages name it. That of a socket which is bound to a
// link-local address needs no zone. mu is held.
func (d *datagram) zoned(a netip.AddrPort) netip.AddrPort {
	a = named(unmapped(a))
	if d.udp != nil && isLinkLocal(a.Addr()) && a.Addr().Zone() == "" {
		return within(a, d.udp.LocalAddr().(*net.UDPAddr).Zone)
	}
	return a
}
