package rdmacm

import (
	"cmp"
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// SockaddrIB is an address of the family AF_IB: a GID and a service ID instead of an IP address and a port (struct
// sockaddr_ib). On RoCE a GID is an IP address in another form, so both kinds reach each other's ports. But a request
// between GIDs carries no IP header: the program has more room for private data (92 bytes, for datagrams 216), and
// the peer learns no source port.
type SockaddrIB struct {
	PKey     uint16 // 0 means the default one
	FlowInfo uint32
	GID      verbs.GID
	SID      uint64 // service ID: a port space in bits 16 and above, and a port; see ServiceID
	SIDMask  uint64 // which bits of SID count; 0 means all
	ScopeID  uint64
}

// ServiceID is the service ID of a port of a port space (RDMA_IB_IP_PS_TCP and so on).
func ServiceID(ps PortSpace, port uint16) uint64 { return uint64(ps.service(port)) }

// sidPortSpace is the mask of the port space in a service ID (RDMA_IB_IP_PS_MASK).
const sidPortSpace = ^uint64(0xFFFF)

// ibAddr is the IP address of a, with the service ID's port. The zero SockaddrIB gives the zero address.
//
// +checklocks:id.mu
func (id *ID) ibAddr(op string, a SockaddrIB) (netip.AddrPort, error) {
	mask := a.SIDMask
	if mask == 0 {
		mask = ^uint64(0)
	}
	if a.PKey != 0 && a.PKey != defaultPKey && !id.host.hasPKey(a.PKey) {
		return netip.AddrPort{}, id.fail(op, syscall.EINVAL, "P_Key %#x: must be in the table of a device", a.PKey)
	}
	if want := ServiceID(id.ps, 0); a.SID&mask&sidPortSpace != want&mask {
		return netip.AddrPort{}, id.fail(op, syscall.EPROTONOSUPPORT, "service ID %#x is not one of port space %v, %#x",
			a.SID, id.ps, want)
	}
	return netip.AddrPortFrom(a.GID.Addr(), uint16(a.SID&mask)), nil
}

// BindAddrIB is BindAddr with an address of the family AF_IB (rdma_bind_addr with a struct sockaddr_ib). A zero GID
// is the wildcard. EPROTONOSUPPORT if the service ID is of another port space, EINVAL for a P_Key that no device has.
// The QP of the ID gets the index of the P_Key.
func (id *ID) BindAddrIB(a SockaddrIB) error {
	const op = "bind_addr"
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in(op, stIdle); err != nil {
		return err
	}
	addr, err := id.ibAddr(op, a)
	if err != nil {
		return err
	}
	old := id.pkey
	id.pkey, id.afIB = a.PKey, true
	if err = id.bindAddr(op, addr); err != nil {
		id.pkey, id.afIB = old, false
	}
	return err
}

// ResolveAddrIB is ResolveAddr with addresses of the family AF_IB (rdma_resolve_addr with a struct sockaddr_ib). src
// may be nil. The P_Key of dst, else that of src, selects the partition of the connection; ResolveRoute fails with
// EINVAL if the port does not have it. EOPNOTSUPP if the device is an adapter's.
func (id *ID) ResolveAddrIB(ctx context.Context, src *SockaddrIB, dst SockaddrIB, timeout time.Duration) error {
	const op = "resolve_addr"
	id.mu.Lock()
	var from netip.AddrPort
	to, err := id.ibAddr(op, dst)
	pkey := dst.PKey
	if err == nil && src != nil {
		from, err = id.ibAddr(op, *src)
		pkey = cmp.Or(pkey, src.PKey)
	}
	id.mu.Unlock()
	if err != nil {
		return err
	}
	return id.resolveAddr(ctx, from, to, timeout, true, pkey)
}

// ib is an address of a result of GetAddrInfo as one of the family AF_IB.
func (ai *AddrInfo) ib(a netip.AddrPort) SockaddrIB {
	gid := verbs.GID{}
	if !a.Addr().IsUnspecified() {
		gid = verbs.GIDFromAddr(a.Addr())
	}
	return SockaddrIB{GID: gid, SID: ServiceID(ai.PortSpace, a.Port())}
}

// bind is BindAddr of the result's source.
func (id *ID) bind(res *AddrInfo) error {
	if res.Family == AFIB {
		return id.BindAddrIB(res.ib(res.SrcAddr))
	}
	return id.BindAddr(res.SrcAddr)
}

// resolveTo is ResolveAddr from and to the result's addresses.
func (id *ID) resolveTo(ctx context.Context, res *AddrInfo) error {
	if res.Family != AFIB {
		return id.ResolveAddr(ctx, res.SrcAddr, res.DstAddr, epTimeout)
	}
	var src *SockaddrIB
	if res.SrcAddr.IsValid() {
		a := res.ib(res.SrcAddr)
		src = &a
	}
	return id.ResolveAddrIB(ctx, src, res.ib(res.DstAddr), epTimeout)
}

// IsAFIB reports whether the ID's addresses are of the family AF_IB: the program gave such addresses, or the request
// that made the ID had no IP header.
func (id *ID) IsAFIB() bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.afIB
}

// LocalAddrIB is LocalAddr as an address of the family AF_IB (rdma_get_local_addr), zero while the ID is not bound.
func (id *ID) LocalAddrIB() SockaddrIB { return id.asIB(id.LocalAddr()) }

// PeerAddrIB is PeerAddr as an address of the family AF_IB (rdma_get_peer_addr), zero before ResolveAddr.
func (id *ID) PeerAddrIB() SockaddrIB { return id.asIB(id.PeerAddr()) }

// asIB is an address of the ID as one of the family AF_IB, with the P_Key of the route or the one that was asked for.
func (id *ID) asIB(a netip.AddrPort) SockaddrIB {
	if !a.IsValid() {
		return SockaddrIB{}
	}
	id.mu.Lock()
	pkey := cmp.Or(id.pkey, defaultPKey)
	if id.haveRoute {
		pkey = id.path.PKey
	}
	id.mu.Unlock()
	return SockaddrIB{PKey: pkey, GID: verbs.GIDFromAddr(a.Addr()), SID: ServiceID(id.ps, a.Port()), SIDMask: ^uint64(0)}
}
