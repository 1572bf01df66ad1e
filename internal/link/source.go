package link

import "net/netip"

// SourceOf returns the address by which limits for each source count a peer: the address itself for IPv4, the network
// of 64 bits for IPv6, since a host may have all addresses of it.
func SourceOf(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is4() {
		return a
	}
	p, _ := a.WithZone("").Prefix(64)
	return p.Addr()
}
