//go:build linux && cgo

package main

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// The lengths of struct sockaddr_in, sockaddr_in6 and sockaddr_ib.
const (
	lenInet, lenInet6, lenIB = 16, 28, 48
)

// familyAt returns the family of a struct sockaddr, 0 for none.
func familyAt(p unsafe.Pointer) rdmacm.Family {
	if p == nil {
		return rdmacm.AFUnspec
	}
	return rdmacm.Family(*(*uint16)(p))
}

// addrAt reads a struct sockaddr of the families AF_INET and AF_INET6; the zero AddrPort for no address.
func addrAt(p unsafe.Pointer) (netip.AddrPort, error) {
	switch familyAt(p) {
	case rdmacm.AFUnspec:
		return netip.AddrPort{}, nil
	case rdmacm.AFInet:
		b := unsafe.Slice((*byte)(p), lenInet)
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), nil
	case rdmacm.AFInet6:
		b := unsafe.Slice((*byte)(p), lenInet6)
		a := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 && !a.Is4In6() {
			a = a.WithZone(zoneName(int(scope)))
		}
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[2:])), nil
	}
	return netip.AddrPort{}, syscall.EAFNOSUPPORT
}

// zoneName is the name of the interface with an index; the index, if there is none.
func zoneName(index int) string {
	if i, err := net.InterfaceByIndex(index); err == nil {
		return i.Name
	}
	return strconv.Itoa(index)
}

// ibAt reads a struct sockaddr_ib.
func ibAt(p unsafe.Pointer) rdmacm.SockaddrIB {
	b := unsafe.Slice((*byte)(p), lenIB)
	be := binary.BigEndian
	return rdmacm.SockaddrIB{PKey: be.Uint16(b[2:]), FlowInfo: be.Uint32(b[4:]), GID: verbs.GID(b[8:24]),
		SID: be.Uint64(b[24:]), SIDMask: be.Uint64(b[32:]), ScopeID: binary.NativeEndian.Uint64(b[40:])}
}

// putAddr writes an address as a struct sockaddr and returns its length; family 0 and length 0 for the zero AddrPort.
func putAddr(b []byte, a netip.AddrPort) int {
	clear(b)
	ip := a.Addr()
	switch {
	case !ip.IsValid():
		return 0
	case ip.Unmap().Is4():
		binary.NativeEndian.PutUint16(b, uint16(rdmacm.AFInet))
		binary.BigEndian.PutUint16(b[2:], a.Port())
		v4 := ip.Unmap().As4()
		copy(b[4:8], v4[:])
		return lenInet
	}
	binary.NativeEndian.PutUint16(b, uint16(rdmacm.AFInet6))
	binary.BigEndian.PutUint16(b[2:], a.Port())
	v6 := ip.As16()
	copy(b[8:24], v6[:])
	if zone := ip.Zone(); zone != "" {
		index := ifIndex(zone)
		if index == 0 {
			index, _ = strconv.Atoi(zone)
		}
		binary.NativeEndian.PutUint32(b[24:], uint32(index))
	}
	return lenInet6
}

// putIB writes an address of the family AF_IB as a struct sockaddr_ib.
func putIB(b []byte, a rdmacm.SockaddrIB) {
	clear(b)
	if a == (rdmacm.SockaddrIB{}) {
		return
	}
	be := binary.BigEndian
	binary.NativeEndian.PutUint16(b, uint16(rdmacm.AFIB))
	be.PutUint16(b[2:], a.PKey)
	be.PutUint32(b[4:], a.FlowInfo)
	copy(b[8:24], a.GID[:])
	be.PutUint64(b[24:], a.SID)
	be.PutUint64(b[32:], a.SIDMask)
	binary.NativeEndian.PutUint64(b[40:], a.ScopeID)
}
