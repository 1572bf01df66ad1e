package udp

import (
	"fmt"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// ipv6FlowinfoSend is IPV6_FLOWINFO_SEND of linux/in6.h: sendmsg takes the flow label from the address.
const ipv6FlowinfoSend = 33

// options sets socket options until one fails.
type options struct {
	fd  int
	err error
}

// set sets an option of type int. name is for the error.
func (o *options) set(name string, level, opt, value int) {
	if o.err != nil {
		return
	}
	if err := unix.SetsockoptInt(o.fd, level, opt, value); err != nil {
		o.err = fmt.Errorf("link/udp: setsockopt %s to %d: %w", name, value, err)
	}
}

// try sets an option that the link does not require, and reports whether it is set.
func (o *options) try(level, opt, value int) bool {
	return o.err == nil && unix.SetsockoptInt(o.fd, level, opt, value) == nil
}

func newSocket(a netip.Addr) (options, error) {
	family := unix.AF_INET6
	if a.Is4() {
		family = unix.AF_INET
	}
	fdset.Opening()
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	fd = fdset.Own(fd)
	fdset.Opened()
	if err != nil {
		return options{}, fmt.Errorf("link/udp: socket for %v: %w", a, err)
	}
	o := options{fd: fd}
	if family == unix.AF_INET6 {
		o.set("IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	return o, nil
}

// sockaddr returns a:port for bind. An address that is valid only on one link gets the index of the interface as its
// zone.
func sockaddr(a netip.Addr, port uint16, ifindex int) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(port), Addr: a.As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(port), Addr: a.As16()}
	if zoned(a) {
		sa.ZoneId = uint32(ifindex)
	}
	return sa
}

// setBuffer requests a kernel buffer, beyond the limit of the system if the process has the right.
func (o *options) setBuffer(force, opt, size int) {
	if !o.try(unix.SOL_SOCKET, force, size) {
		o.try(unix.SOL_SOCKET, opt, size)
	}
}

// openRecv opens a receive socket for a, a local address or a group. If join is set, it joins the REUSEPORT group of
// the sockets that are bound to a already.
func (l *Link) openRecv(a netip.Addr, join bool) (fd int, err error) {
	o, err := newSocket(a)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(o.fd)
		}
	}()
	if a.IsMulticast() {
		o.set("SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		// Only packets of this interface, although other processes may have joined the group on others.
		if a.Is4() {
			o.set("IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0)
		} else {
			o.try(unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0) // since Linux 4.20
		}
	}
	if join {
		o.set("SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if a.Is4() {
		o.set("IP_RECVTOS", unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
		o.set("IP_RECVTTL", unix.IPPROTO_IP, unix.IP_RECVTTL, 1)
	} else {
		o.set("IPV6_RECVTCLASS", unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
		o.set("IPV6_RECVHOPLIMIT", unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1)
		// Otherwise the kernel drops the datagrams with checksum 0 that RoCEv2 devices send.
		o.set("UDP_NO_CHECK6_RX", unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1)
	}
	if l.gro.Load() && !o.try(unix.IPPROTO_UDP, unix.UDP_GRO, 1) {
		l.gro.Store(false)
	}
	o.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, l.cfg.RecvBuffer)
	if o.err != nil {
		return -1, o.err
	}
	if err := unix.Bind(o.fd, sockaddr(a, l.cfg.Port, l.ifi.Load().Index)); err != nil {
		return -1, bindError(netip.AddrPortFrom(a, l.cfg.Port), l.serves, err)
	}
	return o.fd, nil
}

// openSend opens a transmit socket for a local address, with source port want if that is free and not 0.
func (l *Link) openSend(a netip.Addr, want uint16) (s *txSocket, err error) {
	o, err := newSocket(a)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(o.fd)
		}
	}()
	if a.Is4() {
		// The socket is not connected and does not fragment, so the identification is 0, as the package
		// comment says.
		o.set("IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		o.set("IP_TTL", unix.IPPROTO_IP, unix.IP_TTL, defaultHopLimit)
		o.set("IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, defaultHopLimit)
		o.set("IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1)
		if err := unix.SetsockoptIPMreqn(o.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF,
			&unix.IPMreqn{Ifindex: int32(l.ifi.Load().Index)}); err != nil && o.err == nil {
			o.err = fmt.Errorf("link/udp: setsockopt IP_MULTICAST_IF to %s: %w", l.ifi.Load().Name, err)
		}
	} else {
		o.set("IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
		o.set("IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, defaultHopLimit)
		o.set("IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, defaultHopLimit)
		o.set("IPV6_MULTICAST_LOOP", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 1)
		o.set("IPV6_MULTICAST_IF", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, l.ifi.Load().Index)
		o.try(unix.IPPROTO_IPV6, ipv6FlowinfoSend, 1)
	}
	o.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, l.cfg.SendBuffer)
	o.set("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, 0)
	if !l.loopback {
		l.reportErrors(&o, a)
	}
	dropAll(&o)
	if o.err != nil {
		return nil, o.err
	}
	bind := func(port uint16) error { return unix.Bind(o.fd, sockaddr(a, port, l.ifi.Load().Index)) }
	if want != 0 && bind(want) == nil {
		return &txSocket{fd: o.fd, addr: a, port: want}, nil
	}
	port, err := eachSourcePort(a, bind)
	return &txSocket{fd: o.fd, addr: a, port: port}, err
}

// Classic BPF instructions.
const (
	bpfLoadWord = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfAnd      = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfMod      = unix.BPF_ALU | unix.BPF_MOD | unix.BPF_K
	bpfRetA     = unix.BPF_RET | unix.BPF_A
	bpfRetK     = unix.BPF_RET | unix.BPF_K
)

// steer makes the kernel choose among the n sockets of the REUSEPORT group of fd by the destination QPN, which is in
// bytes 5 to 7 of the UDP payload. The index of a socket is its position in the order of binding.
func steer(fd, n int) error {
	err := attach(fd, unix.SO_ATTACH_REUSEPORT_CBPF, []unix.SockFilter{
		{Code: bpfLoadWord, K: 4},
		{Code: bpfAnd, K: 0xFFFFFF},
		{Code: bpfMod, K: uint32(n)},
		{Code: bpfRetA},
	})
	if err != nil {
		return fmt.Errorf("link/udp: setsockopt SO_ATTACH_REUSEPORT_CBPF for %d shards: %w", n, err)
	}
	return nil
}

// dropAll attaches a filter that drops everything that arrives at the socket.
func dropAll(o *options) {
	if o.err == nil {
		attach(o.fd, unix.SO_ATTACH_FILTER, []unix.SockFilter{{Code: bpfRetK}})
	}
}

func attach(fd, opt int, prog []unix.SockFilter) error {
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, opt, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	runtime.KeepAlive(prog)
	return err
}

// dontFragment makes the socket send with DF and the identification 0.
func dontFragment(fd uintptr, a netip.Addr) {
	if a.Is4() {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	} else {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	}
}
