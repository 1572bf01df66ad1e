package soft

import (
	"net"
	"net/netip"
	"slices"
)

// addrsOf lists the unicast addresses of an interface: IPv4, then IPv6, link-local ones last.
func addrsOf(ifi *net.Interface) []netip.Addr {
	list, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	var addrs []netip.Addr
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		addr := p.Addr().Unmap().WithZone("")
		if !addr.IsMulticast() && !addr.IsUnspecified() && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return addrRank(a) - addrRank(b) })
	return addrs
}

func addrRank(a netip.Addr) int {
	switch {
	case a.Is4():
		return 0
	case !a.IsLinkLocalUnicast():
		return 1
	default:
		return 2
	}
}

// carries tells whether an interface has the address; a loopback interface has its whole networks.
func carries(ifi *net.Interface, addr netip.Addr) bool { return subnetOf(ifi, addr, true) }

// subnetOf tells whether the address is in a network of the interface. exact: and is the interface's own.
func subnetOf(ifi *net.Interface, addr netip.Addr, exact bool) bool {
	list, err := ifi.Addrs()
	if err != nil {
		return false
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		own := p.Addr().Unmap().WithZone("") == addr
		if own || (!exact || ifi.Flags&net.FlagLoopback != 0) && p.Masked().Contains(addr) {
			return true
		}
	}
	return false
}
