package doctor

import (
	"net"
	"net/netip"
)

// notOneHost returns the reason for which an address cannot be that of one host, or "".
func notOneHost(peer netip.Addr) string {
	switch {
	case peer.IsUnspecified():
		return "the unspecified address: must be the address of one host"
	case peer.IsMulticast():
		return "a multicast address: must be the address of one host"
	case broadcast(peer):
		return "a broadcast address: must be the address of one host"
	}
	return ""
}

// broadcast reports whether addr is the broadcast address of all networks, or of a network of this host.
func broadcast(addr netip.Addr) bool {
	if addr = addr.Unmap(); !addr.Is4() {
		return false
	}
	nets, _ := net.InterfaceAddrs() // without them only the address of all networks is known
	for _, n := range nets {
		p, err := netip.ParsePrefix(n.String())
		if err == nil && p.Addr().Is4() && p.Bits() < 31 && p.Contains(addr) && lastOf(p) == addr {
			return true
		}
	}
	return addr == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// lastOf returns the last address of an IPv4 network.
func lastOf(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		a[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(a)
}
