package soft

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/verbs"
)

// gidTableLen is the number of entries of the GID table.
const gidTableLen = 1024

// gidTable is a port's GID table. An entry keeps its index while its address exists.
type gidTable struct {
	def  verbs.GID
	gids []verbs.GID // index 0 is the default GID; zero where an address was removed
}

// update sets the addresses of the table and reports whether the table changed.
func (t *gidTable) update(addrs []netip.Addr) (changed bool) {
	if t.gids == nil {
		t.gids = []verbs.GID{t.def}
	}
	want := make([]verbs.GID, 0, len(addrs))
	for _, a := range addrs {
		if g := verbs.GIDFromAddr(a); g != t.def {
			want = append(want, g)
		}
	}
	for i := 1; i < len(t.gids); i++ {
		if !t.gids[i].IsZero() && !slices.Contains(want, t.gids[i]) {
			t.gids[i] = verbs.GID{}
			changed = true
		}
	}
	for _, g := range want {
		if !slices.Contains(t.gids, g) {
			changed = t.add(g) || changed
		}
	}
	return changed
}

// add adds an entry and reports whether there was room.
func (t *gidTable) add(g verbs.GID) bool {
	if i := slices.Index(t.gids[1:], verbs.GID{}); i >= 0 {
		t.gids[i+1] = g
		return true
	}
	if len(t.gids) == gidTableLen {
		return false
	}
	t.gids = append(t.gids, g)
	return true
}

// gidEntries returns the table in the form of verbs.
func (p *portInfo) gidEntries() []verbs.GIDEntry {
	list := make([]verbs.GIDEntry, len(p.table.gids))
	for i, g := range p.table.gids {
		if !g.IsZero() {
			list[i] = verbs.GIDEntry{GID: g, Type: verbs.GIDTypeRoCEv2, NetDev: p.spec.netdev(g.Addr(), p.iface)}
		}
	}
	return list
}

// selectGID returns the local address for traffic to peer: the source address of the system's route, else one in the
// same network, else one of the same family and scope.
func (p *portInfo) selectGID(peer netip.Addr) (verbs.GIDChoice, error) {
	peer = peer.Unmap()
	if !p.virtual && !sysroute.InZone(peer, p.spec.interfaces()...) {
		return verbs.GIDChoice{}, fail(verbs.ENODATA, "peer %v: %s is on %s", peer, p.name,
			strings.Join(p.spec.interfaces(), ", "))
	}
	if !p.virtual {
		if src, err := sysroute.Source(peer, p.iface); err == nil {
			if i := p.index(src); i >= 0 {
				return p.choose(i, "the source address of the route to %v", peer)
			}
		}
		if ifi, err := net.InterfaceByName(p.iface); err == nil && inSubnet(ifi, peer.WithZone(""), false) {
			if i := p.firstLike(peer); i >= 0 {
				return p.choose(i, "%v is in a network of %s", peer, p.iface)
			}
		}
	}
	if i := p.firstLike(peer); i >= 0 {
		return p.choose(i, "it is the first of the same family and scope as %v", peer)
	}
	return verbs.GIDChoice{}, fail(verbs.ENODATA, "no address of %s for peer %v; %s", p.name, peer, p.usable())
}

// choose returns a table entry with the reason for its choice.
func (p *portInfo) choose(index int, format string, args ...any) (verbs.GIDChoice, error) {
	g := p.table.gids[index]
	return verbs.GIDChoice{
		Index: index, GID: g,
		Reason: fmt.Sprintf("GID index %d, %v: %s", index, g.Addr(), fmt.Sprintf(format, args...)),
	}, nil
}

// index returns the index of a local address in the table, -1 if the table does not have it.
func (p *portInfo) index(a netip.Addr) int {
	for i, g := range p.table.gids {
		if g == verbs.GIDFromAddr(a) && p.has(a) {
			return i
		}
	}
	return -1
}

// firstLike returns the index of the first entry whose address is of the peer's family and scope, -1 if there is
// none.
func (p *portInfo) firstLike(peer netip.Addr) int {
	for i, g := range p.table.gids {
		a := g.Addr()
		if p.has(a) && a.Is4() == peer.Is4() && a.IsLinkLocalUnicast() == peer.IsLinkLocalUnicast() {
			return i
		}
	}
	return -1
}

// usable lists the entries that packets can be sent from, for errors.
func (p *portInfo) usable() string {
	var list []string
	for i, g := range p.table.gids {
		if a := g.Addr(); p.has(a) {
			list = append(list, fmt.Sprintf("%d (%v)", i, a))
		}
	}
	if list == nil {
		return "the device has no address"
	}
	return "usable GID indices are " + strings.Join(list, ", ")
}

// guidOf returns a device's node GUID: the EUI-64 of the interface's MAC address, formed as the kernel forms it (the
// universal/local bit inverted, ff:fe in the middle), or a GUID derived from names.
func guidOf(s *spec) verbs.GUID {
	if s.addrs == nil {
		if ifi, err := net.InterfaceByName(s.iface); err == nil && len(ifi.HardwareAddr) == 6 {
			return eui64([6]byte(ifi.HardwareAddr))
		}
	}
	return pseudoGUID(s.name, s.addrs)
}

func eui64(mac [6]byte) verbs.GUID {
	return verbs.GUID{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}

// pseudoGUID derives a GUID from the names of host and device and its addresses. Its universal/local bit marks it as
// locally administered.
func pseudoGUID(name string, addrs []netip.Addr) (g verbs.GUID) {
	host, _ := os.Hostname()
	sum := sha256.Sum256(fmt.Append(nil, "verbena\x00", host, "\x00", name, "\x00", addrs))
	copy(g[:], sum[:])
	g[0] = g[0] &^ 3 // in EUI-64 with the bit inverted: local, unicast
	return g
}

// defaultGID returns the GID of index 0: the link-local prefix and the node GUID.
func defaultGID(g verbs.GUID) (gid verbs.GID) {
	gid[0], gid[1] = 0xfe, 0x80
	copy(gid[8:], g[:])
	return gid
}
