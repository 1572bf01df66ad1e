// Package errqueue reads the error queue of a socket, which has the ICMP messages about its datagrams (IP_RECVERR). It
// is for Linux. It imports golang.org/x/sys.
package errqueue

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Entry is an entry of an error queue.
type Entry struct {
	Errno    unix.Errno
	ICMP     bool       // else the error is of this host
	To, From netip.Addr // the datagram's destination, and the sender of the ICMP message; without zones
}

// Read takes an entry out of a socket's error queue. ok is false if there is none. It does not block.
func Read(fd int) (e Entry, ok bool) {
	var name unix.RawSockaddrInet6
	var oob [256]byte
	var data [1]byte
	iov := unix.Iovec{Base: &data[0]}
	iov.SetLen(len(data))
	h := unix.Msghdr{Name: (*byte)(unsafe.Pointer(&name)), Namelen: unix.SizeofSockaddrInet6, Iov: &iov, Control: &oob[0]}
	h.SetIovlen(1)
	h.SetControllen(len(oob))
	_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)),
		unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if errno != 0 {
		return e, false
	}
	e = parse(oob[:min(int(h.Controllen), len(oob))])
	e.To = address(unsafe.Slice((*byte)(unsafe.Pointer(&name)), unix.SizeofSockaddrInet6))
	return e, true
}

// parse finds struct sock_extended_err, and the address behind it.
func parse(oob []byte) (e Entry) {
	const extended = 16 // bytes of the struct
	list, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range list {
		ip4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		ip6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if (ip4 || ip6) && len(m.Data) >= extended {
			e.Errno = unix.Errno(binary.NativeEndian.Uint32(m.Data))
			e.ICMP = m.Data[4] == unix.SO_EE_ORIGIN_ICMP || m.Data[4] == unix.SO_EE_ORIGIN_ICMP6
			e.From = address(m.Data[extended:])
		}
	}
	return e
}

// address is the address in a struct sockaddr_in or sockaddr_in6.
func address(b []byte) netip.Addr {
	switch {
	case len(b) >= 8 && binary.NativeEndian.Uint16(b) == unix.AF_INET:
		return netip.AddrFrom4([4]byte(b[4:8]))
	case len(b) >= 24 && binary.NativeEndian.Uint16(b) == unix.AF_INET6:
		return netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	}
	return netip.Addr{}
}
