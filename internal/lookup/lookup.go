// Package lookup resolves hosts for packages and tools that accept a name or an address, and asks the system for the
// MTU of a route. It imports internal/errqueue, the standard library and golang.org/x/sys.
package lookup

import (
	"context"
	"net"
	"net/netip"
)

// NeedsZone reports whether an address is ambiguous without a zone: a link-local one of IPv6.
func NeedsZone(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "" }

// Addrs returns the addresses of a host, at least one. network is "ip", "ip4" or "ip6". IPv4 addresses are in
// 4-byte form. An address literal is returned unchanged, with its zone, which the resolver would drop. The error is
// a *net.DNSError or net.UnknownNetworkError.
func Addrs(c context.Context, network, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		if a = a.Unmap(); network == "ip" || network == "ip4" && a.Is4() || network == "ip6" && a.Is6() {
			return []netip.Addr{a}, nil
		}
	}
	list, err := net.DefaultResolver.LookupNetIP(c, network, host)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i] = list[i].Unmap()
	}
	return list, nil
}
