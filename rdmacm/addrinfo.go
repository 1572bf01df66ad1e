package rdmacm

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
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

// AddrInfo is an address to connect to or to listen on (struct rdma_addrinfo). With the family AFIB, CreateEP uses its
// addresses as GIDs and its ports as service IDs: see SockaddrIB.
type AddrInfo struct {
	Flags     AIFlags
	Family    Family
	QPType    verbs.QPType // RC or UD; with PSIB any type
	PortSpace PortSpace
	SrcAddr   netip.AddrPort // zero if unknown
	DstAddr   netip.AddrPort // zero for the passive side

	SrcCanonName, DstCanonName string

	Route   []byte // path records (struct ibv_path_data, 72 bytes each) for SetOption; empty unless the hints have it
	Connect []byte // prefix of the program's private data; empty on RoCE

	Next *AddrInfo
}

// GetAddrInfo translates a host and a service for CreateEP (rdma_getaddrinfo). node is a name or an address, service
// a name or a port number; either may be empty, and hints nil, but not all of them. Of hints it uses Flags, Family,
// QPType, PortSpace, SrcAddr, Route and, without node, DstAddr or else the GIDs of Route. With RAIPassive the result
// has the address to listen on in SrcAddr, the wildcard if there is no node. With the family AFIB, node is a GID, an
// address or a name. Route is one struct ibv_path_record of 64 bytes, or structs ibv_path_data of 72 bytes; with
// RAINoRoute the result has no route, and CreateEP finds it. A node that is a name has its canonical name in
// SrcCanonName or DstCanonName. Nothing needs to be freed.
//
// EINVAL if everything is missing, for a route of another length, or a QP type that does not go with the port space;
// EOPNOTSUPP for an unknown flag or family. The error wraps a *net.DNSError for a node or service that is not found,
// and ctx's if ctx is done.
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
	case AFUnspec, AFInet, AFInet6, AFIB:
	default:
		return nil, &Error{Op: op, Errno: syscall.EOPNOTSUPP, Detail: fmt.Sprintf("address family %d", h.Family)}
	}
	res := &AddrInfo{Flags: h.Flags, QPType: h.QPType, PortSpace: h.PortSpace, SrcAddr: h.SrcAddr}
	if err := res.complete(); err != nil {
		return nil, err
	}
	if err := res.follow(&h, node); err != nil {
		return nil, err
	}
	port, err := lookupService(ctx, service, res.PortSpace)
	if err == nil {
		err = res.locate(ctx, node, service, port, &h)
	}
	if err != nil { // of the resolver, without an errno
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if h.Family == AFIB {
		res.Family = AFIB
	}
	return res, nil
}

// follow takes over the route of the hints. Without node and addresses the route's GIDs are the addresses of h.
func (ai *AddrInfo) follow(h *AddrInfo, node string) error {
	route, err := pathData(h.Route)
	if err != nil || len(route) == 0 {
		return err
	}
	if h.Flags&RAINoRoute == 0 {
		ai.Route = route
	}
	if node == "" && !h.DstAddr.IsValid() && !h.SrcAddr.IsValid() {
		p := parsePath(route[8:pathDataLen])
		h.SrcAddr, h.DstAddr = netip.AddrPortFrom(p.SGID.Addr(), 0), netip.AddrPortFrom(p.DGID.Addr(), 0)
		ai.SrcAddr = h.SrcAddr
	}
	return nil
}

// pathData is a route of hints as structs ibv_path_data.
func pathData(route []byte) ([]byte, error) {
	switch {
	case len(route) == pathRecordLen:
		data := binary.NativeEndian.AppendUint32(nil, pathBoth)
		return append(append(data, 0, 0, 0, 0), route...), nil
	case len(route)%pathDataLen == 0:
		return bytes.Clone(route), nil
	}
	return nil, &Error{Op: "getaddrinfo", Errno: syscall.EINVAL, Detail: fmt.Sprintf(
		"route of %d bytes: must be a path record of %d, or a multiple of %d", len(route), pathRecordLen, pathDataLen)}
}

// locate finds the address, from the node or else from the hints.
func (ai *AddrInfo) locate(ctx context.Context, node, service string, port uint16, h *AddrInfo) error {
	own := func(a netip.AddrPort) netip.AddrPort {
		if service == "" {
			port = a.Port()
		}
		return netip.AddrPortFrom(a.Addr(), port)
	}
	switch passive := h.Flags&RAIPassive != 0; {
	case node != "":
		ip, name, err := lookupNode(ctx, node, h)
		if err != nil {
			return err
		}
		if ai.set(netip.AddrPortFrom(ip, port)); passive {
			ai.SrcCanonName = name
		} else {
			ai.DstCanonName = name
		}
	case passive && h.SrcAddr.IsValid():
		ai.set(own(h.SrcAddr))
	case passive && (h.Family == AFInet6 || h.Family == AFIB):
		ai.set(netip.AddrPortFrom(netip.IPv6Unspecified(), port))
	case passive:
		ai.set(netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	case h.DstAddr.IsValid():
		ai.set(own(h.DstAddr))
	case h.SrcAddr.IsValid():
		ai.Family = familyOf(h.SrcAddr.Addr())
	default: // as the C library: the service on this host
		ai.set(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	}
	return nil
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
	if !ai.PortSpace.valid() {
		return &Error{Op: "getaddrinfo", Errno: syscall.EINVAL,
			Detail: fmt.Sprintf("%v: must be TCP, UDP, IB or IPOIB", ai.PortSpace)}
	}
	if ai.PortSpace != PSIB && ai.QPType != ai.PortSpace.defaultQPType() {
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

// lookupService finds the port of a service, or of its number; 0 for an empty one.
func lookupService(ctx context.Context, service string, ps PortSpace) (uint16, error) {
	network := "tcp"
	if ps == PSUDP {
		network = "udp"
	}
	n, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		err = fmt.Errorf("port %q: must be 0 to 65535, or the name of a service: %w", service, err)
	}
	return uint16(n), err
}

// lookupNode finds the address of a node, and of a name the canonical name.
func lookupNode(ctx context.Context, node string, h *AddrInfo) (netip.Addr, string, error) {
	network := map[Family]string{AFInet: "ip4", AFInet6: "ip6"}[h.Family]
	if network == "" {
		network = "ip"
	}
	if a, err := netip.ParseAddr(node); err == nil {
		a = a.Unmap()
		if h.Family != AFUnspec && h.Family != AFIB && h.Family != familyOf(a) {
			return a, "", &net.DNSError{Err: "address of another family than the hints want", Name: node, IsNotFound: true}
		}
		return a, "", nil
	}
	if h.Flags&RAINumericHost != 0 {
		return netip.Addr{}, "", &net.DNSError{Err: "not an address, which RAI_NUMERICHOST wants", Name: node,
			IsNotFound: true}
	}
	name := make(chan string, 1)
	go func() { name <- canonical(ctx, node) }()
	list, err := net.DefaultResolver.LookupNetIP(ctx, network, node)
	canon := <-name
	if err != nil {
		return netip.Addr{}, "", err
	}
	return list[0].Unmap(), canon, nil
}

// canonical is the canonical name of a node; the name itself if the resolver knows no other.
func canonical(ctx context.Context, node string) string {
	if name, err := net.DefaultResolver.LookupCNAME(ctx, node); err == nil {
		return strings.TrimSuffix(name, ".")
	}
	return node
}
