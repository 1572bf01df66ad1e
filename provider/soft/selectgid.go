package soft

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// selectGID chooses the local address for traffic to peer: the one that the system's routes would use, else one in the
// same network, else one of the same family.
func (p *portInfo) selectGID(peer netip.Addr) (verbs.GIDChoice, error) {
	peer = peer.Unmap()
	if !p.virtual {
		if src, ok := routeSource(peer, p.iface); ok {
			if i := p.index(src); i >= 0 {
				return p.choose(i, "the route to %v leaves from it", peer)
			}
		}
		if ifi, err := net.InterfaceByName(p.iface); err == nil && subnetOf(ifi, peer.WithZone(""), false) {
			if i := p.firstLike(peer); i >= 0 {
				return p.choose(i, "%v is in a network of %s", peer, p.iface)
			}
		}
	}
	if i := p.firstLike(peer); i >= 0 {
		return p.choose(i, "it is the first of the same family and scope as %v", peer)
	}
	return verbs.GIDChoice{}, fail(verbs.ENODATA, "no address of %s can reach %v; %s", p.name, peer, p.usable())
}

func (p *portInfo) choose(index int, format string, args ...any) (verbs.GIDChoice, error) {
	g := p.table.gids[index]
	return verbs.GIDChoice{
		Index: index, GID: g,
		Reason: fmt.Sprintf("GID index %d, %v: %s", index, g.Addr(), fmt.Sprintf(format, args...)),
	}, nil
}

// index finds the table entry of a local address, -1 if it has none.
func (p *portInfo) index(a netip.Addr) int {
	for i, g := range p.table.gids {
		if g == verbs.GIDFromAddr(a) && p.has(a) {
			return i
		}
	}
	return -1
}

// firstLike finds the first entry whose address is of the peer's family and scope.
func (p *portInfo) firstLike(peer netip.Addr) int {
	for i, g := range p.table.gids {
		a := g.Addr()
		if p.has(a) && a.Is4() == peer.Is4() && a.IsLinkLocalUnicast() == peer.IsLinkLocalUnicast() {
			return i
		}
	}
	return -1
}

// usable lists the entries that packets can be sent from.
func (p *portInfo) usable() string {
	var list []string
	for i, g := range p.table.gids {
		if a := g.Addr(); p.has(a) {
			list = append(list, fmt.Sprintf("%d (%v)", i, a))
		}
	}
	if list == nil {
		return "the device has no address at all"
	}
	return "usable GID indices are " + strings.Join(list, ", ")
}

// routeSource asks the system which local address it would send to peer from.
func routeSource(peer netip.Addr, iface string) (netip.Addr, bool) {
	if peer.IsLinkLocalUnicast() && peer.Is6() && peer.Zone() == "" {
		peer = peer.WithZone(iface)
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, wire.Port)))
	if err != nil {
		return netip.Addr{}, false
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), true
}
