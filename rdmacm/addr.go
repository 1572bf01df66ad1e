package rdmacm

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// BindAddr gives the ID a source address (rdma_bind_addr): a local address, which binds it to its device, or 0.0.0.0 or ::,
// which does not; and a port, or 0 for a free one of the system's ephemeral range. EINVAL if the ID is bound already or the
// address is an IPv6 link-local one without zone; ENODEV if no RDMA device has the address; EADDRINUSE or, when one of both
// is a wildcard, EADDRNOTAVAIL if the port is in use; EACCES for the ports that the system keeps for root.
func (id *ID) BindAddr(addr netip.AddrPort) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in("bind_addr", stIdle); err != nil {
		return err
	}
	return id.bindAddr("bind_addr", addr)
}

func (id *ID) bindAddr(op string, addr netip.AddrPort) error {
	ip := addr.Addr()
	switch {
	case !ip.IsValid():
		return id.fail(op, syscall.EINVAL, "there is no address")
	case needsZone(ip) && !id.afIB:
		return id.fail(op, syscall.EINVAL, "%v needs a zone, as in %v%%eth0", ip, ip)
	case ip.IsMulticast():
		return id.fail(op, syscall.EINVAL, "%v is a multicast group", ip)
	}
	zone := ip.Zone()
	ip = ip.Unmap().WithZone("")
	id.host.mu.Lock()
	defer id.host.mu.Unlock()
	var d *device
	var sgid int
	if !ip.IsUnspecified() {
		var err error
		if d, sgid, err = id.host.owner(ip); err != nil {
			return id.because(op, err)
		}
	}
	id.local = netip.AddrPortFrom(ip, addr.Port())
	if err := id.host.ports.bind(id); err != nil {
		id.local = netip.AddrPort{}
		return err
	}
	if d != nil {
		id.bindDevice(d, sgid)
	}
	if zone != "" {
		id.zone = zone
	}
	id.state = stAddrBound
	return nil
}

// ResolveAddr finds the device, the local address and the GIDs for traffic to dst (rdma_resolve_addr); EventAddrResolved or
// EventAddrError tells the result. src is the source address, as for BindAddr; without one (the zero AddrPort), and if the
// ID is not bound, the system's routes decide. An ID that is bound keeps its address. timeout bounds the wait.
//
// EINVAL if dst is missing or of another family than the source; errors of BindAddr. The event's status is -ENODEV without a suitable
// device, or the negated errno of the system's refusal to route.
func (id *ID) ResolveAddr(c context.Context, src, dst netip.AddrPort, timeout time.Duration) error {
	return id.resolveAddr(c, src, dst, false)
}

func (id *ID) resolveAddr(c context.Context, src, dst netip.AddrPort, afIB bool) error {
	const op = "resolve_addr"
	id.mu.Lock()
	old := id.afIB
	id.afIB = afIB || old && id.state == stAddrBound
	if err := id.startResolve(op, src, dst); err != nil {
		id.afIB = old
		id.mu.Unlock()
		return err
	}
	id.state = stAddrQuery
	if err := id.resolve(); err != nil {
		id.state = stAddrBound
		id.push(&Event{Type: EventAddrError, Status: -int(errnoOf(err)), cause: err})
	} else {
		id.state = stAddrResolved
		id.push(&Event{Type: EventAddrResolved})
	}
	id.mu.Unlock()
	return id.complete(c, op)
}

func (id *ID) startResolve(op string, src, dst netip.AddrPort) error {
	if err := id.in(op, stIdle, stAddrBound); err != nil {
		return err
	}
	ip := dst.Addr().Unmap()
	from := src.Addr().Unmap()
	if id.state == stAddrBound {
		from = id.local.Addr()
	}
	switch {
	case !ip.IsValid():
		return id.fail(op, syscall.EINVAL, "there is no destination address")
	case from.IsValid() && from.Is4() != ip.Is4():
		return id.fail(op, syscall.EINVAL, "the source %v and the destination %v are of different families", from, ip)
	}
	id.setRemote(netip.AddrPortFrom(ip, dst.Port()))
	if id.state == stIdle {
		if !from.IsValid() {
			any := netip.IPv4Unspecified()
			if ip.Is6() {
				any = netip.IPv6Unspecified()
			}
			src = netip.AddrPortFrom(any, src.Port())
		}
		if err := id.bindAddr(op, src); err != nil {
			id.setRemote(netip.AddrPort{})
			return err
		}
	}
	if zone := ip.Zone(); zone != "" {
		id.zone = zone
	}
	return nil
}

// setRemote sets the peer's address, which the table of ports looks at.
func (id *ID) setRemote(a netip.AddrPort) {
	id.host.mu.Lock()
	id.remote = a
	id.host.mu.Unlock()
}

// resolve binds the ID to the device toward its peer, if it is not bound to one.
func (id *ID) resolve() error {
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.dev != nil {
		return nil
	}
	d, local, err := h.toward(id.remote.Addr())
	if err != nil {
		return err
	}
	sgid := d.gidIndex(local)
	if sgid < 0 {
		return id.fail("resolve_addr", syscall.ENODEV, "%v is not in the GID table of %v", local, d.vdev)
	}
	id.local = netip.AddrPortFrom(local, id.local.Port())
	id.bindDevice(d, sgid)
	return nil
}

// PathRec is a way to a peer (struct ibv_sa_path_rec). RoCE has no subnet manager to ask: it is made from the addresses, the route
// and the port.
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

// Route is what an ID knows of the way to its peer (struct rdma_route).
type Route struct {
	SrcAddr, DstAddr netip.AddrPort
	SGID, DGID       verbs.GID
	PKey             uint16
	PathRec          []PathRec // one, when the route is resolved
}

// packetLifeTime is that of RoCE paths in Linux, 268 ms as a time code.
const packetLifeTime = 16

const (
	defaultPKey     = 0xFFFF
	defaultHopLimit = 64
)

// ResolveRoute finds the path to the peer (rdma_resolve_route); EventRouteResolved or EventRouteError tells the result. ResolveAddr has
// succeeded before, else EINVAL; so is a timeout of 0.
func (id *ID) ResolveRoute(c context.Context, timeout time.Duration) error {
	const op = "resolve_route"
	id.mu.Lock()
	err := id.in(op, stAddrResolved)
	if err == nil && timeout <= 0 {
		err = id.fail(op, syscall.EINVAL, "the timeout is %v, must be positive", timeout)
	}
	if err != nil {
		id.mu.Unlock()
		return err
	}
	port, err := id.dev.ctx.QueryPort(portNum)
	if err != nil {
		id.push(&Event{Type: EventRouteError, Status: -int(errnoOf(err)), cause: err})
	} else {
		id.path = id.makePath(port.ActiveMTU)
		id.haveRoute = true
		id.state = stRouteResolved
		id.push(&Event{Type: EventRouteResolved})
	}
	id.mu.Unlock()
	return id.complete(c, op)
}

// makePath is the path that a RoCE device takes.
func (id *ID) makePath(mtu verbs.MTU) PathRec {
	p := PathRec{
		SGID: verbs.GIDFromAddr(id.local.Addr()), DGID: verbs.GIDFromAddr(id.remote.Addr()), FlowLabel: flowLabel(id.local.Port(), id.remote.Port()),
		HopLimit: defaultHopLimit, TrafficClass: id.tos, Reversible: true, NumbPath: 1, PKey: defaultPKey, MTU: mtu,
		PacketLifeTime: packetLifeTime,
	}
	if id.ackTimeoutSet && id.ackTimeout > 0 {
		p.PacketLifeTime = id.ackTimeout - 1
	}
	return p
}

// flowLabel spreads connections over the ways through a network, as Linux does it.
func flowLabel(src, dst uint16) uint32 { return (uint32(src)*31 + uint32(dst)) & 0xFFFFF }
