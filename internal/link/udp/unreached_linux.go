package udp

import (
	"encoding/binary"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// ICMP messages about packets of a transmit socket are in the socket's error queue, and make its next call fail with
// their errno whatever that call sends. The call is then repeated, and packets to the address of the message count as
// refused for a while: they are sent all the same, because the message may be forged or out of date.

// unreached has the errno of the last ICMP message about each address.
type unreached map[netip.Addr]notice

// notice is an errno and the time until which it counts.
type notice struct {
	errno unix.Errno
	until time.Time
}

const (
	noticeAge  = 5 * time.Second
	maxNotices = 256
	// errorRoom is the receive buffer of a transmit socket in bytes, which holds its error queue.
	errorRoom = 16 << 10
	// maxErrors bounds the messages read at once: the socket may get new ones as fast.
	maxErrors = 16
)

// reportErrors makes the socket keep ICMP messages.
func (l *Link) reportErrors(o *options, a netip.Addr) {
	level, opt := unix.IPPROTO_IP, unix.IP_RECVERR
	if a.Is6() {
		level, opt = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	if o.try(level, opt, 1) {
		o.set("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, errorRoom)
	}
}

// reported reads the error queue of the sender's socket after errno. It reports whether an ICMP message was the cause,
// so that the call is to be repeated.
func (p *port) reported(errno unix.Errno) (again bool) {
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EMSGSIZE:
	default:
		return false
	}
	for range maxErrors {
		m, ok := readError(p.sender.socket.fd)
		if !ok {
			break
		}
		if !m.icmp {
			continue
		}
		again = true
		if m.errno == unix.EHOSTUNREACH || m.errno == unix.ECONNREFUSED && m.from == m.to {
			p.note(m.to, m.errno)
		}
	}
	return again
}

// note remembers a message about an address.
func (p *port) note(to netip.Addr, errno unix.Errno) {
	if p.unreached == nil || len(p.unreached) >= maxNotices {
		p.unreached = unreached{}
	}
	p.unreached[to] = notice{errno, time.Now().Add(noticeAge)}
}

// markUnreached marks the packets of a message for addresses that an ICMP message is about as refused.
func (p *port) markUnreached(b *link.TxBatch, r run) {
	first := &b.Packets[r.first] // a run has one destination
	n, ok := p.unreached[first.Path.Dst]
	if !ok {
		return
	}
	if time.Now().After(n.until) {
		delete(p.unreached, first.Path.Dst)
		if len(p.unreached) == 0 {
			p.unreached = nil
		}
		return
	}
	for i := r.first; i < r.first+r.count; i++ {
		b.Packets[i].Path.Refuse(n.errno, b.Packets[i].Len)
	}
}

// socketError is an entry of an error queue.
type socketError struct {
	errno    unix.Errno
	icmp     bool       // else the error is of this host
	to, from netip.Addr // the packet's destination, and the sender of the ICMP message
}

// readError takes an entry out of a socket's error queue.
func readError(fd int) (e socketError, ok bool) {
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
	e.to = addrIn(unsafe.Slice((*byte)(unsafe.Pointer(&name)), unix.SizeofSockaddrInet6))
	list, _ := unix.ParseSocketControlMessage(oob[:min(int(h.Controllen), len(oob))])
	for _, m := range list {
		const extended = 16 // bytes of struct sock_extended_err
		ip4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		ip6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if (ip4 || ip6) && len(m.Data) >= extended {
			e.errno = unix.Errno(binary.NativeEndian.Uint32(m.Data))
			e.icmp = m.Data[4] == unix.SO_EE_ORIGIN_ICMP || m.Data[4] == unix.SO_EE_ORIGIN_ICMP6
			e.from = addrIn(m.Data[extended:])
		}
	}
	return e, true
}

// addrIn is the address in a struct sockaddr_in or sockaddr_in6.
func addrIn(b []byte) netip.Addr {
	switch {
	case len(b) >= 8 && binary.NativeEndian.Uint16(b) == unix.AF_INET:
		return netip.AddrFrom4([4]byte(b[4:8]))
	case len(b) >= 24 && binary.NativeEndian.Uint16(b) == unix.AF_INET6:
		return netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	}
	return netip.Addr{}
}
