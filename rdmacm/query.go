package rdmacm

import (
	"cmp"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/verbs"
)

// PS is the ID's port space.
func (id *ID) PS() PortSpace { return id.ps }

// QPType is the type of QP that the ID connects: UD for datagrams, else RC, unless CreateEP was given another type.
func (id *ID) QPType() verbs.QPType { return id.qpType }

// Channel is the ID's event channel. A synchronous ID has one of its own, for programs that wait for EventDisconnected.
func (id *ID) Channel() *EventChannel {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ch
}

// Verbs is the device that the ID is bound to; nil before.
func (id *ID) Verbs() *verbs.Context {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.dev == nil {
		return nil
	}
	return id.dev.ctx
}

// PortNum is the device's port that has the local address, from 1; 0 while the ID is not bound to a device.
func (id *ID) PortNum() uint8 {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.sgid.port
}

// PD is the PD of the ID's QP or SRQ, else the default PD of its device; nil while the ID is not bound to a device.
func (id *ID) PD() *verbs.PD {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp != nil && id.qp.PD() != nil {
		return id.qp.PD()
	}
	if id.srq != nil {
		return id.srq.PD()
	}
	pd, _ := id.defaultPD()
	return pd
}

// defaultPD is the default PD of the ID's device, nil without a device.
//
// +checklocks:id.mu
func (id *ID) defaultPD() (*verbs.PD, error) {
	if id.dev == nil {
		return nil, nil
	}
	id.host.mu.Lock()
	defer id.host.mu.Unlock()
	return id.dev.defaultPD()
}

// defaultXRCD is the XRC domain of all IDs of the device.
//
// +checklocks:id.mu
func (id *ID) defaultXRCD() (_ *verbs.XRCD, err error) {
	id.host.mu.Lock()
	defer id.host.mu.Unlock()
	d := id.dev
	if d.xrcd == nil {
		d.xrcd, err = d.ctx.OpenXRCD(nil)
	}
	return d.xrcd, err
}

// created is a copy of the ID's objects.
func (id *ID) created() objects {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.objects
}

// QP is the ID's QP, nil without one.
func (id *ID) QP() *verbs.QP { return id.created().qp }

// SRQ is the ID's SRQ, nil without one.
func (id *ID) SRQ() *verbs.SRQ { return id.created().srq }

// SendCQ is the CQ of the sends that CreateQP has made for the ID, nil if CreateQP was given one.
func (id *ID) SendCQ() *verbs.CQ { return id.created().sendCQ }

// RecvCQ is the CQ of the receives that CreateQP has made for the ID, nil if CreateQP was given one.
func (id *ID) RecvCQ() *verbs.CQ { return id.created().recvCQ }

// SendCQChannel is the channel of SendCQ.
func (id *ID) SendCQChannel() *verbs.CompChannel { return id.created().sendChannel }

// RecvCQChannel is the channel of RecvCQ.
func (id *ID) RecvCQChannel() *verbs.CompChannel { return id.created().recvChannel }

// LocalAddr is the ID's own address and port, the zero AddrPort while it is not bound (rdma_get_local_addr). An IPv6
// link-local address has its zone.
func (id *ID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.readPort()
	return id.zoned(id.local)
}

// PeerAddr is the peer's address and port, known from ResolveAddr on; the zero AddrPort before (rdma_get_peer_addr).
// An IPv6 link-local address has its zone.
func (id *ID) PeerAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.zoned(id.remote)
}

// zoned is an address with the zone that a program needs to reach it.
//
// +checklocks:id.mu
func (id *ID) zoned(a netip.AddrPort) netip.AddrPort {
	if lookup.NeedsZone(a.Addr()) {
		return netip.AddrPortFrom(a.Addr().WithZone(id.zone), a.Port())
	}
	return a
}

// SrcPort is the local port in host order, 0 while there is none (rdma_get_src_port): while the ID is not bound, and
// while an iWARP device makes a connection whose port the program has neither bound nor read before.
func (id *ID) SrcPort() uint16 { return id.LocalAddr().Port() }

// DstPort is the peer's port in host order, 0 while there is none (rdma_get_dst_port).
func (id *ID) DstPort() uint16 { return id.PeerAddr().Port() }

// Route is the addresses, and the path when it is resolved.
func (id *ID) Route() Route {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.readPort()
	r := Route{SrcAddr: id.local, DstAddr: id.remote}
	if id.dev != nil {
		r.SGID, r.DGID = verbs.GIDFromAddr(id.local.Addr()), verbs.GIDFromAddr(id.remote.Addr())
		r.PKey = cmp.Or(id.pkey, defaultPKey)
	}
	if id.haveRoute {
		r.PathRec, r.PKey = []PathRec{id.path}, id.path.PKey
	}
	return r
}
