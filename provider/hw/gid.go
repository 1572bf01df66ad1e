//go:build linux && (amd64 || arm64)

package hw

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/verbs"
)

// GIDTable returns the GID table of a port, up to the last entry that is not empty.
func (c *devContext) GIDTable(port uint8) ([]verbs.GIDEntry, error) {
	attr, err := c.QueryPort(port)
	if err != nil {
		return nil, err
	}
	if c.lib.queryGIDTable == 0 {
		return c.readGIDs(port, attr.GIDTblLen)
	}
	list := make([]cGIDEntry, c.gids(port, attr.GIDTblLen))
	if len(list) == 0 {
		return nil, nil
	}
	n := int(call(c.lib.queryGIDTable, c.ptr, uintptr(unsafe.Pointer(&list[0])), uintptr(len(list)), 0,
		unsafe.Sizeof(list[0])))
	if n < 0 {
		return nil, explain(syscall.Errno(-n), "the GID table")
	}
	var table []verbs.GIDEntry
	names := map[uint32]string{}
	for i := range list[:min(n, len(list))] {
		e := &list[i]
		if e.port != uint32(port) || e.index >= uint32(attr.GIDTblLen) {
			continue
		}
		for len(table) <= int(e.index) {
			table = append(table, verbs.GIDEntry{})
		}
		table[e.index] = verbs.GIDEntry{GID: e.gid, Type: verbs.GIDType(e.typ), NetDev: netdev(names, e.netdevIdx)}
	}
	return table, nil
}

// gids is the number of entries of the tables of all ports, n of which are those of one port. The kernel answers for
// all ports at once, and with EINVAL if there is too little room.
func (c *devContext) gids(port uint8, n int) int {
	for p := 1; p <= int(c.attr.PhysPortCnt); p++ {
		if p == int(port) {
			continue
		}
		if attr, err := c.QueryPort(uint8(p)); err == nil {
			n += attr.GIDTblLen
		}
	}
	return n
}

// netdev returns the name of a network interface; empty for index 0.
func netdev(names map[uint32]string, index uint32) string {
	name, ok := names[index]
	if !ok && index != 0 {
		if ifi, err := net.InterfaceByIndex(int(index)); err == nil {
			name = ifi.Name
		}
		names[index] = name
	}
	return name
}

// readGIDs reads the table of a library without ibv_query_gid_table. The types are not known: RoCE v2 is assumed on
// Ethernet.
func (c *devContext) readGIDs(port uint8, n int) ([]verbs.GIDEntry, error) {
	var table []verbs.GIDEntry
	gid := new(verbs.GID)
	for i := range n {
		if err := c.lib.status(c.lib.queryGID, c.ptr, uintptr(port), uintptr(i), uintptr(unsafe.Pointer(gid))); err != nil {
			return nil, explain(err, "the GID table")
		}
		if gid.IsZero() {
			continue
		}
		for len(table) <= i {
			table = append(table, verbs.GIDEntry{})
		}
		e := verbs.GIDEntry{GID: *gid, NetDev: c.dev.info.Interface}
		if e.NetDev != "" {
			e.Type = verbs.GIDTypeRoCEv2
		}
		table[i] = e
	}
	return table, nil
}

// SelectGID chooses an entry for a peer: that of the source address of the system's route, else the first of the peer's
// family and scope, else on InfiniBand and iWARP the first.
func (c *devContext) SelectGID(port uint8, peer netip.Addr) (verbs.GIDChoice, error) {
	table, err := c.GIDTable(port)
	if err != nil {
		return verbs.GIDChoice{}, err
	}
	peer = peer.Unmap()
	ethernet := false
	for i := range table {
		table[i].Index = i
		ethernet = ethernet || table[i].Type == verbs.GIDTypeRoCEv2
	}
	if src, err := sysroute.Source(peer, c.dev.info.Interface); err == nil {
		for i := range table {
			if e := &table[i]; usable(e) && e.GID.Addr() == src && inZone(e, peer) {
				return choice(e, "the source address of the route to %v", peer)
			}
		}
	}
	for i := range table {
		if e := &table[i]; usable(e) && like(e.GID.Addr(), peer) && ethernet && inZone(e, peer) {
			return choice(e, "it is the first of the same family and scope as %v", peer)
		}
	}
	for i := range table {
		if e := &table[i]; !ethernet && !e.GID.IsZero() {
			return choice(e, "the port is not RoCE")
		}
	}
	return verbs.GIDChoice{}, fail(verbs.ENODATA, "no entry of the GID table of port %d is for peer %v", port, peer)
}

// inZone reports whether packets to a peer may leave from the interface of an entry.
func inZone(e *verbs.GIDEntry, peer netip.Addr) bool {
	return e.NetDev == "" || sysroute.InZone(peer, e.NetDev)
}

// usable reports whether packets of RoCE v2, InfiniBand or iWARP can be sent from an entry.
func usable(e *verbs.GIDEntry) bool { return !e.GID.IsZero() && e.Type != verbs.GIDTypeRoCEv1 }

func like(a, b netip.Addr) bool {
	return a.Is4() == b.Is4() && a.IsLinkLocalUnicast() == b.IsLinkLocalUnicast()
}

func choice(e *verbs.GIDEntry, format string, args ...any) (verbs.GIDChoice, error) {
	return verbs.GIDChoice{Index: e.Index, GID: e.GID,
		Reason: fmt.Sprintf("GID index %d, %v: %s", e.Index, e.GID.Addr(), fmt.Sprintf(format, args...))}, nil
}
