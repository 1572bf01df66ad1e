package rdmacm

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// AIFlags are the flags of an AddrInfo (RAI_*).
type AIFlags uint32

// The flags.
const (
	RAIPassive     AIFlags = 1 // for the side that listens
	RAINumericHost AIFlags = 2 // node is an address, not a name
	RAINoRoute     AIFlags = 4 // do not look for routes
	RAIFamily      AIFlags = 8 // node is of the hints' Family
)

// Family is an address family (ai_family), with Linux's values everywhere.
type Family int

// The families.
const (
	AFUnspec Family = 0
	AFInet   Family = 2
	AFInet6  Family = 10
	AFIB     Family = 27 // see SockaddrIB
)

// AddrInfo is an address to connect to or to listen on (struct rdma_addrinfo).
type AddrInfo struct {
	Flags     AIFlags
	Family    Family
	QPType    verbs.QPType // RC or UD
	PortSpace PortSpace
	SrcAddr   netip.AddrPort // zero if unknown
	DstAddr   netip.AddrPort // zero for the passive side

	SrcCanonName, DstCanonName string

	Route   []byte // path records (struct ibv_path_data) for SetOption; empty on RoCE
	Connect []byte // prefix of the program's private data; empty on RoCE

	Next *AddrInfo
}

// GetAddrInfo translates a host and a service for CreateEP (rdma_getaddrinfo). node is a name or an address, service
// a name or a port number; either may be empty, and hints nil, but not all of them. Of hints it uses Flags, Family,
// QPType, PortSpace, SrcAddr and, without node, DstAddr. With RAIPassive the result has the address to listen on in
// SrcAddr, the wildcard if there is no node. Nothing needs to be freed.
//
// EINVAL if everything is missing, EOPNOTSUPP for an unknown flag or family (AFIB too); *net.DNSError for a node or
// service that is not found.
func GetAddrInfo(ctx context.Context, node, service string, hints *AddrInfo) (*AddrInfo, error) {
	const op = "getaddrinfo"
	h := AddrInfo{}
	if hints != nil {
		h = *hints
	}
	if node == "" && service == "" && hints == nil {
		return nil, &Error{Op: op, Errno: syscall.EINVAL, Detail: "no node, no service, no hints: must have one of them"}
	}
	if unknown := h.Flags &^ (RAIPassive | RAINumericHost | RAINoRoute | RAIFamily); unknown != 0 {
		return nil, &Error{Op: op, Errno: syscall.EOPNOTSUPP, Detail: fmt.Sprintf("flags %#x", unknown)}
	}
	switch h.Family {
	case AFUnspec, AFInet, AFInet6:
	default:
		return nil, &Error{Op: op, Errno: syscall.EOPNOTSUPP, Detail: fmt.Sprintf("address family %d", h.Family),
			Hint: "SockaddrIB does without names"}
	}
	res := &AddrInfo{Flags: h.Flags, QPType: h.QPType, PortSpace: h.PortSpace, SrcAddr: h.SrcAddr, Route: h.Route}
	if err := res.complete(); err != nil {
		return nil, err
	}
	port, err := lookupService(ctx, service, res.PortSpace)
	if err != nil {
		return nil, err
	}
	switch {
	case node != "":
		ip, err := lookupNode(ctx, node, &h)
		if err != nil {
			return nil, err
		}
		res.set(netip.AddrPortFrom(ip, port))
	case h.Flags&RAIPassive != 0 && h.SrcAddr.IsValid():
		if service == "" {
			port = h.SrcAddr.Port()
		}
		res.set(netip.AddrPortFrom(h.SrcAddr.Addr(), port))
	case h.Flags&RAIPassive != 0 && h.Family == AFInet6:
		res.set(netip.AddrPortFrom(netip.IPv6Unspecified(), port))
	case h.Flags&RAIPassive != 0:
		res.set(netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	case h.DstAddr.IsValid():
		if service == "" {
			port = h.DstAddr.Port()
		}
		res.set(netip.AddrPortFrom(h.DstAddr.Addr(), port))
	case h.SrcAddr.IsValid():
		res.Family = familyOf(h.SrcAddr.Addr())
	default: // as the C library: the service on this host
		res.set(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	}
	return res, nil
}

// complete derives the QP type from the port space, or the port space from the QP type.
func (ai *AddrInfo) complete() error {
	if ai.QPType == 0 {
		ai.QPType = verbs.QPTypeRC
		if ai.PortSpace == PSUDP || ai.PortSpace == PSIPoIB {
			ai.QPType = verbs.QPTypeUD
		}
	}
	if ai.PortSpace == 0 {
		ai.PortSpace = PSTCP
		if ai.QPType == verbs.QPTypeUD {
			ai.PortSpace = PSUDP
		} else if ai.QPType != verbs.QPTypeRC {
			ai.PortSpace = PSIB
		}
	}
	if !ai.PortSpace.valid() || ai.PortSpace != PSIB && ai.QPType != ai.PortSpace.defaultQPType() {
		return &Error{Op: "getaddrinfo", Errno: syscall.EINVAL,
			Detail: fmt.Sprintf("%v QPs do not go with port space %v", ai.QPType, ai.PortSpace)}
	}
	return nil
}

// set stores the address as source or destination.
func (ai *AddrInfo) set(a netip.AddrPort) {
	ai.Family = familyOf(a.Addr())
	if ai.Flags&RAIPassive != 0 {
		ai.SrcAddr = a
	} else {
		ai.DstAddr = a
	}
}

func familyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return AFInet
	}
	return AFInet6
}

func lookupService(ctx context.Context, service string, ps PortSpace) (uint16, error) {
	if service == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(service, 10, 16); err == nil {
		return uint16(n), nil
	}
	network := "tcp"
	if ps == PSUDP {
		network = "udp"
	}
	n, err := net.DefaultResolver.LookupPort(ctx, network, service)
	return uint16(n), err
}

func lookupNode(ctx context.Context, node string, h *AddrInfo) (netip.Addr, error) {
	network := map[Family]string{AFInet: "ip4", AFInet6: "ip6"}[h.Family]
	if network == "" {
		network = "ip"
	}
	if a, err := netip.ParseAddr(node); err == nil {
		a = a.Unmap()
		if h.Family != AFUnspec && h.Family != familyOf(a) {
			return a, &net.DNSError{Err: "address of another family than the hints want", Name: node, IsNotFound: true}
		}
		return a, nil
	}
	if h.Flags&RAINumericHost != 0 {
		return netip.Addr{}, &net.DNSError{Err: "not an address, which RAI_NUMERICHOST wants", Name: node, IsNotFound: true}
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, network, node)
	if err != nil {
		return netip.Addr{}, err
	}
	if len(list) == 0 {
		return netip.Addr{}, &net.DNSError{Err: "no address", Name: node, IsNotFound: true}
	}
	return list[0].Unmap(), nil
}
