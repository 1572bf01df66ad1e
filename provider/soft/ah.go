package soft

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/verbs"
)

// ah is a DriverHandle: a path, which never changes.
type ah struct {
	path link.Path
	keys *pkeyTable // of its port
	pkey uint16     // index of the P_Key of datagrams of QP 1
}

// SetPKeyIndex selects the P_Key of datagrams of QP 1; see gsi.SetPKeyIndex.
func (a *ah) SetPKeyIndex(index uint16) { a.pkey = index }

// key returns the P_Key of datagrams of QP 1, 0 if the entry is empty.
func (a *ah) key() uint16 {
	if keys := a.keys.get(); int(a.pkey) < len(keys) {
		return keys[a.pkey]
	}
	return 0
}

// Destroy does nothing: requests that still use the path keep it.
func (*ah) Destroy() error { return nil }

// CreateAH makes an address handle. Errors are those of path.
func (p *pd) CreateAH(attr verbs.AHAttr) (verbs.DriverHandle, error) {
	if p.ctx.dev.spec.streams {
		return nil, notOverStreams("an address handle")
	}
	path, err := p.ctx.dev.at(attr.PortNum).path(&attr)
	if err != nil {
		return nil, err
	}
	path.AnyOrder = true
	return &ah{path: path, keys: p.ctx.dev.pkeys[attr.PortNum-1]}, nil
}

// path returns the path that the attributes describe, EINVAL unless the entry of the GID table is a local address
// that packets can be sent from, of the destination's family.
func (p *portInfo) path(a *verbs.AHAttr) (link.Path, error) {
	g := &a.GRH
	if g.SGIDIndex >= len(p.table.gids) {
		return link.Path{}, fail(verbs.EINVAL, "GID index %d: empty entry; %s", g.SGIDIndex, p.usable())
	}
	src, dst := p.table.gids[g.SGIDIndex].Addr(), addrOf(g.DGID)
	switch {
	case !p.has(src) && g.SGIDIndex == 0:
		return link.Path{}, fail(verbs.EINVAL, "GID index 0, %v: the default GID, not an address of %s; %s", src, p.where(),
			p.usable())
	case !p.has(src):
		return link.Path{}, fail(verbs.EINVAL, "GID index %d: not an address of %s; %s", g.SGIDIndex, p.where(), p.usable())
	case src.Is4() != dst.Is4():
		return link.Path{}, fail(verbs.EINVAL, "destination %v, GID index %d, %v: one is IPv4, the other IPv6; %s",
			dst, g.SGIDIndex, src, p.usable())
	}
	return link.Path{
		Src: src, Dst: dst, TClass: g.TrafficClass, HopLimit: g.HopLimit, FlowLabel: g.FlowLabel,
		Rate:   uint64(max(0, a.StaticRate.Mbps())) * 1e6,
		Source: link.SourcePort(g.FlowLabel, 0, 0), // the QP numbers choose it for a QP's path without a flow label
	}, nil
}

// where names the interface, or the device if it has none, in an error.
func (p *portInfo) where() string {
	if p.iface != "" {
		return "interface " + p.iface
	}
	return "device " + p.name
}

// addrOf returns the IP address of a GID. An IPv4 group may also be written as ff0e::ffff:a.b.c.d, the form of RoCE
// v1.
func addrOf(g verbs.GID) netip.Addr {
	if g.IsMulticast() && g[0] == 0xff && isMapped(g) {
		if a := netip.AddrFrom4([4]byte(g[12:])); a.IsMulticast() {
			return a
		}
	}
	return g.Addr()
}

// isMapped reports whether the GID is 0:...:ffff:a.b.c.d after the two bytes of a multicast prefix.
func isMapped(g verbs.GID) bool {
	for _, b := range g[2:10] {
		if b != 0 {
			return false
		}
	}
	return g[10] == 0xff && g[11] == 0xff
}
