package transport

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Ports is what QPs need to know of the ports of their device. It is safe for concurrent use.
type Ports interface {
	// PKey returns an entry of a port's P_Key table, 0 if the entry is empty or does not exist.
	PKey(port uint8, index uint16) uint16
	// PortOf returns the port that has a local address.
	PortOf(local netip.Addr) uint8
	// BadPKey and BadQKey count packets with a wrong key that a port has received.
	BadPKey(port uint8)
	BadQKey(port uint8)
	// FindPKey returns the entry that permits communication with key, of the port that has a local address.
	FindPKey(local netip.Addr, key uint16) (index uint16, ok bool)
}

// PKeyMatch reports whether two P_Keys permit communication: equal keys, at least one full member (V-PKEY-04). A key of
// 0 is that of an empty entry and matches nothing, of either membership.
func PKeyMatch(a, b uint16) bool { return a<<1 == b<<1 && a<<1 != 0 && (a|b)&0x8000 != 0 }

// portOf returns the port of a packet to the QP.
func (qp *QP) portOf(p *link.RxPacket) uint8 {
	if qp.Num == wire.GSIQPN {
		return qp.Ports.PortOf(p.Dst) // QP 1 of every port
	}
	return qp.attr.Port
}

// here reports whether a datagram has come to the QP's port. Groups belong to all ports.
func (qp *QP) here(p *link.RxPacket) bool {
	return qp.Ports == nil || qp.Num == wire.GSIQPN || p.Dst.IsMulticast() || qp.Ports.PortOf(p.Dst) == qp.attr.Port
}

// fromHere reports whether a datagram over a path leaves through the QP's port (IBV_DEVICE_UD_AV_PORT_ENFORCE).
func (qp *QP) fromHere(path *link.Path) bool {
	return qp.Ports == nil || qp.Num == wire.GSIQPN || qp.Ports.PortOf(path.Src) == qp.attr.Port
}

// badPKey counts a packet with a wrong P_Key.
func (qp *QP) badPKey(p *link.RxPacket) {
	qp.Counters.BadPKey++
	if qp.Ports != nil {
		qp.Ports.BadPKey(qp.portOf(p))
	}
}

// badQKey counts a datagram with a wrong Q_Key.
func (qp *QP) badQKey(p *link.RxPacket) {
	qp.Counters.BadQKey++
	if qp.Ports != nil {
		qp.Ports.BadQKey(qp.portOf(p))
	}
}

// LoadPKeys reads the P_Keys of the QP's indices again: the table or an index has changed. The shard is held.
func (qp *QP) LoadPKeys() {
	if qp.Ports == nil {
		return
	}
	a := &qp.attr
	a.PKey = qp.Ports.PKey(a.Port, a.PKeyIndex)
	a.AltPKey = qp.Ports.PKey(a.AltPort, a.AltPKeyIdx)
}

// permits reports whether the P_Key of a packet permits communication. A packet over the alternate path has that path's
// key. QP 1 belongs to all partitions of its port; which one the datagram is of is noted for its completion.
func (qp *QP) permits(p *link.RxPacket) bool {
	key := wire.BTH(p.Data).PKey()
	switch {
	case qp.Num == wire.GSIQPN && qp.Ports != nil:
		index, ok := qp.Ports.FindPKey(p.Dst, key)
		qp.resp.pkeyIndex = index
		return ok
	case PKeyMatch(key, qp.attr.PKey):
		return true
	}
	return qp.Type != UD && qp.attr.Alt.Dst.IsValid() && PKeyMatch(key, qp.attr.AltPKey) && reaches(&qp.attr.Alt, p)
}
