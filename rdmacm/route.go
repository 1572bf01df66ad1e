package rdmacm

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// PathRec is a path to a peer (struct ibv_sa_path_rec). RoCE has no subnet manager: the path is made from the
// addresses, the route and the port.
type PathRec struct {
	DGID, SGID     verbs.GID
	DLID, SLID     uint16
	FlowLabel      uint32 // 20 bits
	HopLimit       uint8
	TrafficClass   uint8
	Reversible     bool
	NumbPath       uint8
	PKey           uint16
	SL             uint8
	MTU            verbs.MTU
	Rate           uint8 // 0: the port's own
	PacketLifeTime uint8 // a time code: 4.096 us * 2^n
	Preference     uint8
}

// Route is the addresses and the path of an ID (struct rdma_route).
type Route struct {
	SrcAddr, DstAddr netip.AddrPort
	SGID, DGID       verbs.GID
	PKey             uint16
	PathRec          []PathRec // one, when the route is resolved
}

// route is the resolved path of an ID.
type route struct {
	path      PathRec
	haveRoute bool
}

// packetLifeTime is that of RoCE paths in Linux, 268 ms as a time code.
const packetLifeTime = 16

const defaultHopLimit = 64

// ResolveRoute finds the path to the peer (rdma_resolve_route); EventRouteResolved or EventRouteError reports the
// result. timeout bounds the wait for the link address of the way, as in ResolveAddr, if the system has forgotten it
// meanwhile; the status of the event is the same, or -EINVAL if the port cannot have the path MTU of SetPathMTU or does
// not have the P_Key of the route, -EMSGSIZE if the MTU of the route is less than a connection request needs. What the
// host knows of the route is at most 100 ms old. EINVAL before ResolveAddr has succeeded, and for a timeout that is not
// positive.
func (id *ID) ResolveRoute(ctx context.Context, timeout time.Duration) error {
	const op = "resolve_route"
	id.mu.Lock()
	err := id.in(op, stAddrResolved)
	if err == nil && timeout <= 0 {
		err = id.fail(op, syscall.EINVAL, "timeout %v: must be positive", timeout)
	}
	if err != nil {
		id.mu.Unlock()
		return err
	}
	id.forgetErrors()
	if id.dev.kernel {
		err = id.routeByKernel(op, timeout)
		id.mu.Unlock()
		if err != nil {
			return err
		}
		return id.complete(ctx, op)
	}
	id.state = stRouteQuery
	id.reachPeer(timeout, id.onRoute)
	id.mu.Unlock()
	return id.complete(ctx, op)
}

// onRoute makes the path of a peer that can be reached, and reports the result of ResolveRoute.
//
// +checklocks:id.mu
func (id *ID) onRoute(err error) {
	var mtu verbs.MTU
	if err == nil {
		mtu, err = id.routeMTU("resolve_route")
	}
	if err == nil {
		_, err = id.pathPKey("resolve_route")
	}
	if err != nil {
		id.state = stAddrResolved
		id.push(&Event{Type: EventRouteError, Status: -int(errnoOf(err)), cause: err})
		return
	}
	id.path = id.makePath(mtu)
	id.haveRoute = true
	id.state = stRouteResolved
	id.push(&Event{Type: EventRouteResolved})
}

// messageLen is the length in bytes, IP header first, of a packet with a message of connection managers.
func messageLen(peer netip.Addr) int {
	ip, udp := 40, 8
	if peer.Unmap().Is4() {
		ip = 20
	}
	return ip + udp + wire.BTHLen + wire.DETHLen + wire.MADLen + wire.ICRCLen
}

// routeMTU is the path MTU to ask for: the one that the program has fixed, or the largest that the port and the
// system's route allow. A router on the way that has told the system of a smaller MTU is part of the latter.
//
// +checklocks:id.mu
func (id *ID) routeMTU(op string) (verbs.MTU, error) {
	mtu, err := id.dev.mtu(id.sgid.port)
	if err != nil {
		return 0, err
	}
	room := 0
	if id.dev.onInterface(id.sgid) {
		room = id.host.routeMTUs.of(id.local.Addr(), id.remote.Addr().WithZone(id.zone), time.Now())
	}
	if need := messageLen(id.remote.Addr()); !id.dev.streams && room > 0 && room < need {
		return 0, id.fail(op, syscall.EMSGSIZE, "the MTU of the route to %v is %d bytes: must be at least %d, which a "+
			"connection request needs (ip link set dev INTERFACE mtu SIZE)", id.remote.Addr(), room, need)
	}
	if id.pathMTU > mtu {
		return 0, id.fail(op, syscall.EINVAL, "path MTU %v: must be at most the port's active MTU %v", id.pathMTU, mtu)
	}
	if id.pathMTU != 0 {
		return id.pathMTU, nil
	}
	if room > 0 {
		mtu = verbs.MTUOf(wire.FittingMTU(mtu.Bytes(), room))
	}
	return mtu, nil
}

// makePath is the path that a RoCE device takes.
//
// +checklocks:id.mu
func (id *ID) makePath(mtu verbs.MTU) PathRec {
	_, pkey, _ := id.dev.partition(id.sgid.port, id.pkey)
	p := PathRec{
		SGID: verbs.GIDFromAddr(id.local.Addr()), DGID: verbs.GIDFromAddr(id.remote.Addr()),
		FlowLabel: flowLabel(id.local.Port(), id.remote.Port()),
		HopLimit:  defaultHopLimit, TrafficClass: id.tos, Reversible: true, NumbPath: 1, PKey: pkey, MTU: mtu,
		PacketLifeTime: packetLifeTime,
	}
	if id.ackTimeoutSet && id.ackTimeout > 0 {
		p.PacketLifeTime = id.ackTimeout - 1
	}
	return p
}

// flowLabel spreads connections over the paths of a network, with Linux's formula.
func flowLabel(src, dst uint16) uint32 { return (uint32(src)*31 + uint32(dst)) & 0xFFFFF }
