package rdmacm

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

// PS is the ID's port space.
func (id *ID) PS() PortSpace { return id.ps }

// QPType is the kind of QP that the ID connects: UD for datagrams, else RC, unless CreateEP was told another.
func (id *ID) QPType() verbs.QPType { return id.qpType }

// Channel is the ID's event channel; of a synchronous ID, the private one, on which to wait for EventDisconnected.
func (id *ID) Channel() *EventChannel { return locked(id, func() *EventChannel { return id.ch }) }

// Verbs is the device that the ID is bound to; nil before.
func (id *ID) Verbs() *verbs.Context {
	return locked(id, func() *verbs.Context {
		if id.dev == nil {
			return nil
		}
		return id.dev.ctx
	})
}

// PortNum is the device's port, from 1; 0 while the ID is not bound to a device.
func (id *ID) PortNum() uint8 {
	return locked(id, func() uint8 {
		if id.dev == nil {
			return 0
		}
		return portNum
	})
}

// PD is the PD of the ID's QP, else the default one of its device; nil while the ID is not bound to a device.
func (id *ID) PD() *verbs.PD {
	return locked(id, func() *verbs.PD {
		if id.qp != nil && id.qp.PD() != nil {
			return id.qp.PD()
		}
		if id.srq != nil {
			return id.srq.PD()
		}
		pd, _ := id.defaultPD()
		return pd
	})
}

func (id *ID) defaultPD() (*verbs.PD, error) {
	if id.dev == nil {
		return nil, nil
	}
	id.host.mu.Lock()
	defer id.host.mu.Unlock()
	return id.dev.defaultPD()
}

// defaultXRCD is the XRC domain of IDs, one for the device.
func (id *ID) defaultXRCD() (_ *verbs.XRCD, err error) {
	id.host.mu.Lock()
	defer id.host.mu.Unlock()
	d := id.dev
	if d.xrcd == nil {
		d.xrcd, err = d.ctx.OpenXRCD(nil)
	}
	return d.xrcd, err
}

// QP is the ID's QP, nil without one.
func (id *ID) QP() *verbs.QP { return locked(id, func() *verbs.QP { return id.qp }) }

// SRQ is the ID's SRQ, nil without one.
func (id *ID) SRQ() *verbs.SRQ { return locked(id, func() *verbs.SRQ { return id.srq }) }

// SendCQ and RecvCQ are the CQs that CreateQP has made for the ID, nil without.
func (id *ID) SendCQ() *verbs.CQ { return locked(id, func() *verbs.CQ { return id.sendCQ }) }

// RecvCQ is the CQ of the receives, nil if CreateQP was given one.
func (id *ID) RecvCQ() *verbs.CQ { return locked(id, func() *verbs.CQ { return id.recvCQ }) }

// SendCQChannel and RecvCQChannel are the channels of SendCQ and RecvCQ.
func (id *ID) SendCQChannel() *verbs.CompChannel {
	return locked(id, func() *verbs.CompChannel { return id.sendChannel })
}

// RecvCQChannel is the channel of RecvCQ.
func (id *ID) RecvCQChannel() *verbs.CompChannel {
	return locked(id, func() *verbs.CompChannel { return id.recvChannel })
}

// LocalAddr is the ID's own address and port, the zero AddrPort while it is not bound (rdma_get_local_addr). An IPv6 link-local one has
// its zone.
func (id *ID) LocalAddr() netip.AddrPort {
	return locked(id, func() netip.AddrPort {
		id.unseen = false
		return id.zoned(id.local)
	})
}

// PeerAddr is the peer's address and port, known from ResolveAddr on; the zero AddrPort before (rdma_get_peer_addr). An IPv6 link-local
// one has its zone.
func (id *ID) PeerAddr() netip.AddrPort {
	return locked(id, func() netip.AddrPort { return id.zoned(id.remote) })
}

// zoned is an address as the program needs it to reach it. id.mu is held.
func (id *ID) zoned(a netip.AddrPort) netip.AddrPort {
	if needsZone(a.Addr()) {
		return netip.AddrPortFrom(a.Addr().WithZone(id.zone), a.Port())
	}
	return a
}

// needsZone tells whether an address means nothing without a zone.
func needsZone(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "" }

// SrcPort is the local port, 0 while there is none (rdma_get_src_port); in host order.
func (id *ID) SrcPort() uint16 { return id.LocalAddr().Port() }

// DstPort is the peer's port, 0 while there is none (rdma_get_dst_port); in host order.
func (id *ID) DstPort() uint16 { return id.PeerAddr().Port() }

// Route is what the ID knows of the way to its peer.
func (id *ID) Route() Route {
	return locked(id, func() Route {
		id.unseen = false
		r := Route{SrcAddr: id.local, DstAddr: id.remote}
		if id.dev != nil {
			r.SGID, r.DGID, r.PKey = verbs.GIDFromAddr(id.local.Addr()), verbs.GIDFromAddr(id.remote.Addr()), defaultPKey
		}
		if id.haveRoute {
			r.PathRec = []PathRec{id.path}
		}
		return r
	})
}

func locked[T any](id *ID, f func() T) T {
	id.mu.Lock()
	defer id.mu.Unlock()
	return f()
}
