package rdmacm

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/sysroute"
)

// binding is an ID's device, addresses and port.
type binding struct {
	dev  *device
	sgid gidPlace // of the local address

	local, remote netip.AddrPort // the table of ports reads them under Host.mu; they change under both locks
	bound         portKey        // entry in the table of ports; guarded by Host.mu
	portUnread    bool           // the package chose the port, and the program has not asked which one
	zone          string         // of link-local addresses; guarded as local
	pkey          uint16         // asked for by an address of AF_IB; 0: the default
	afIB          bool           // addressed by GIDs and service IDs: requests have no IP header
	addrLost      bool           // ADDR_CHANGE was reported: the device does not have the local address any more
	stopReaching  func()         // ends the wait for the peer's link address; nil if there is none
	wildcard      netip.Addr     // the local address before resolve chose one; invalid if it did not
}

// BindAddr gives the ID a source address (rdma_bind_addr): a local address, which binds it to its device, or 0.0.0.0 or
// ::, which does not; and a port, or 0 for a free ephemeral port. EINVAL if the ID is bound already, or if the address
// is the zero AddrPort, a multicast group or an IPv6 link-local one without zone; ENODEV if no RDMA device has the
// address; EADDRINUSE or, if one of both addresses is a wildcard, EADDRNOTAVAIL if the port is in use; EACCES for ports
// that the system reserves for root.
func (id *ID) BindAddr(addr netip.AddrPort) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in("bind_addr", stIdle); err != nil {
		return err
	}
	return id.bindAddr("bind_addr", addr)
}

// bindAddr is BindAddr. It starts the devices: some programs, such as qperf, tell their client the port before they
// listen, and starting takes longer than the client needs.
//
// +checklocks:id.mu
func (id *ID) bindAddr(op string, addr netip.AddrPort) error {
	ip := addr.Addr()
	switch {
	case !ip.IsValid():
		return id.fail(op, syscall.EINVAL, "no address: must be a local one or a wildcard")
	case lookup.NeedsZone(ip) && !id.afIB:
		return id.fail(op, syscall.EINVAL, "%v: must have a zone, as in %v%%eth0", ip, ip)
	case ip.IsMulticast():
		return id.fail(op, syscall.EINVAL, "%v: must not be a multicast group", ip)
	}
	ip = sysroute.Named(ip.Unmap())
	id.host.mu.Lock()
	defer id.host.mu.Unlock()
	var d *device
	var sgid gidPlace
	if !ip.IsUnspecified() {
		var err error
		if d, sgid, err = id.host.owner(id.ps, ip); err != nil {
			return id.because(op, err)
		}
	}
	id.local, id.zone = netip.AddrPortFrom(ip.WithZone(""), addr.Port()), ip.Zone()
	if err := id.host.ports.bind(id); err != nil {
		id.local, id.zone = netip.AddrPort{}, ""
		return err
	}
	if d != nil {
		id.bindDevice(d, sgid)
	} else {
		id.host.startAll(id.ps)
	}
	id.state = stAddrBound
	return nil
}

// ResolveAddr finds the device, the local address and the GIDs for traffic to dst (rdma_resolve_addr);
// EventAddrResolved or EventAddrError reports the result. src is the source address, as for BindAddr. Without src
// (the zero AddrPort), and if the ID is not bound, the system's routes decide. An ID that is bound keeps its address.
// timeout bounds the wait for the link address of the peer or the router on the way, which the system asks for by ARP
// or ND if it does not know it; 0 and less mean 2 s. Without a wait the event comes within the call, also for devices
// without interface and on systems other than Linux, where nothing is known of link addresses.
//
// EINVAL if dst is missing or of another family than the source; errors of BindAddr. The source :: has both families,
// unless SetAFOnly is set, as a TCP socket has, and unlike in C. The event's status is -ENODEV
// without a suitable device, -ETIMEDOUT after the time-out, -EHOSTUNREACH if the system has asked for the link address
// in vain, which takes it 3 s, or the negated errno of the system's route: -ENETUNREACH if there is none,
// -EHOSTUNREACH, -EACCES or -EINVAL for a route of the type unreachable, prohibit or blackhole.
func (id *ID) ResolveAddr(ctx context.Context, src, dst netip.AddrPort, timeout time.Duration) error {
	return id.resolveAddr(ctx, src, dst, timeout, false, 0)
}

// resolveAddr is ResolveAddr, for addresses of the family AF_IB with their P_Key; 0 for the one of BindAddrIB.
func (id *ID) resolveAddr(
	ctx context.Context, src, dst netip.AddrPort, timeout time.Duration, afIB bool, pkey uint16,
) error {
	const op = "resolve_addr"
	id.mu.Lock()
	old, oldKey := id.afIB, id.pkey
	id.afIB, id.pkey = afIB || old && id.state == stAddrBound, cmp.Or(pkey, oldKey)
	if err := id.startResolve(op, src, dst); err != nil {
		id.afIB, id.pkey = old, oldKey
		id.mu.Unlock()
		return err
	}
	id.forgetErrors()
	id.state = stAddrQuery
	if timeout <= 0 {
		timeout = stepTime
	}
	err := id.resolve()
	if err == nil && id.dev.kernel {
		err = id.resolveByKernel(timeout)
	} else if err == nil {
		id.reachPeer(timeout, id.onAddr)
	}
	if err != nil {
		id.onAddr(err)
	}
	id.mu.Unlock()
	return id.complete(ctx, op)
}

// onAddr reports the result of ResolveAddr.
//
// +checklocks:id.mu
func (id *ID) onAddr(err error) {
	if err != nil {
		id.unresolveByKernel()
		id.unresolve()
		id.state = stAddrBound
		id.push(&Event{Type: EventAddrError, Status: -int(errnoOf(err)), cause: err})
		return
	}
	id.state = stAddrResolved
	id.push(&Event{Type: EventAddrResolved})
}

// startResolve checks the addresses and binds the ID.
//
// +checklocks:id.mu
func (id *ID) startResolve(op string, src, dst netip.AddrPort) error {
	if err := id.in(op, stIdle, stAddrBound); err != nil {
		return err
	}
	ip := sysroute.Named(dst.Addr().Unmap())
	from := src.Addr().Unmap()
	if id.state == stAddrBound {
		from = id.local.Addr()
	}
	switch {
	case !ip.IsValid():
		return id.fail(op, syscall.EINVAL, "no destination address: must be an IP address")
	case from.IsValid() && from.Is4() != ip.Is4() && (from != netip.IPv6Unspecified() || id.afonly):
		return id.fail(op, syscall.EINVAL, "source %v, destination %v: must be of one family", from, ip)
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
		id.host.mu.Lock()
		id.zone = zone
		id.host.mu.Unlock()
	}
	return nil
}

// setRemote sets the peer's address, which the table of ports reads.
//
// +checklocks:id.mu
func (id *ID) setRemote(a netip.AddrPort) {
	id.host.mu.Lock()
	id.remote = a
	id.host.mu.Unlock()
}

// resolve binds the ID to the device toward its peer, if it is not bound to one.
//
// +checklocks:id.mu
func (id *ID) resolve() error {
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.dev != nil {
		return nil
	}
	if to := id.remote.Addr(); lookup.NeedsZone(to) && id.zone == "" && !id.afIB {
		return &fault{fmt.Sprintf("%v: must have a zone, as in %v%%eth0", to, to), syscall.EINVAL}
	}
	d, local, err := h.toward(id.ps, id.remote.Addr())
	if err != nil {
		return err
	}
	sgid := d.find(local.WithZone(id.zone))
	if sgid == noPlace {
		return id.fail("resolve_addr", syscall.ENODEV, "%v is not in the GID table of %v", local, d.vdev)
	}
	id.wildcard = id.local.Addr()
	id.local = netip.AddrPortFrom(local, id.local.Port())
	id.bindDevice(d, sgid)
	return nil
}

// unresolve undoes resolve after an error, as the next destination may be of another device. An ID that the program has
// made objects for meanwhile keeps its device.
//
// +checklocks:id.mu
func (id *ID) unresolve() {
	if !id.wildcard.IsValid() || id.qp != nil || id.srq != nil || len(id.groups) > 0 {
		return
	}
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	id.local = netip.AddrPortFrom(id.wildcard, id.local.Port())
	id.wildcard = netip.Addr{}
	d := id.dev
	id.dev, id.sgid = nil, gidPlace{}
	delete(d.users, id)
	d.retire()
}
