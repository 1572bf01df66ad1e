package lookup

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// usable are the states of a neighbour whose link address can be used (NUD_VALID).
const usable = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE |
	unix.NUD_DELAY

// Neighbour returns what the system knows of the link address to which packets from src to dst go: that of dst, or of
// the router on the way. It sends nothing. The error is the one of the system's route: ENETUNREACH if there is none,
// EHOSTUNREACH, EACCES or EINVAL for a route of the type unreachable, prohibit or blackhole. src may be the zero Addr.
// Neighbour returns Known if the system does not tell.
func Neighbour(src, dst netip.Addr) (Knowledge, error) {
	dst = dst.Unmap()
	if dst.IsLoopback() || dst.IsMulticast() || dst == src.Unmap() {
		return Known, nil
	}
	r, err := openRtnetlink()
	if err != nil {
		return Known, nil
	}
	defer unix.Close(r.fd)
	hop, err := r.route(src.Unmap(), dst)
	switch {
	case err != nil:
		return Unknown, err
	case hop.iface == 0: // this host's own address, or the system does not tell
		return Known, nil
	}
	switch state, err := r.neighbour(hop); {
	case errors.Is(err, syscall.ENOENT):
		if r.withoutNeighbours(hop.iface) {
			return Known, nil
		}
		return Unknown, nil
	case err != nil:
		return Known, nil // kernels before 5.0 return lists only
	case state&usable != 0:
		return Known, nil
	case state&unix.NUD_FAILED != 0:
		return Unanswered, nil
	}
	return Unknown, nil
}

// Solicit sends a datagram from src to dst, with the payload that probe returns, so that the system asks for the link
// address of the way to dst. The error is the one of sending: EPERM if a firewall of this host forbids it.
func Solicit(ctx context.Context, src netip.Addr, dst netip.AddrPort, probe Probe) error {
	c, err := unconnected(ctx, src, dst)
	if err != nil {
		return errnoOnly(err)
	}
	defer c.Close()
	_, err = c.WriteToUDPAddrPort(probe(c.LocalAddr().(*net.UDPAddr).AddrPort(), dst), dst)
	return errnoOnly(err)
}

// rtnetlink is a socket that answers questions about routes and neighbours.
type rtnetlink struct{ fd int }

// answerTime is how long the kernel has for an answer. It answers within the call that asks.
var answerTime = unix.Timeval{Sec: 1}

func openRtnetlink() (rtnetlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return rtnetlink{}, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &answerTime); err != nil {
		unix.Close(fd)
		return rtnetlink{}, err
	}
	return rtnetlink{fd}, nil
}

// errNoAnswer: the kernel's answer is not of the form that was asked for.
var errNoAnswer = errors.New("no answer from rtnetlink")

// ask sends a request and returns the payload of its answer. An error of the kernel is a syscall.Errno.
func (r rtnetlink) ask(kind uint16, payload []byte) ([]byte, error) {
	ne := binary.NativeEndian
	msg := ne.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(payload)))
	msg = ne.AppendUint16(msg, kind)
	msg = ne.AppendUint16(msg, unix.NLM_F_REQUEST)
	msg = append(msg, 1, 0, 0, 0, 0, 0, 0, 0) // sequence number, port
	if err := unix.Sendto(r.fd, append(msg, payload...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errNoAnswer
	}
	buf := make([]byte, 1<<13) // what does not fit, properties of an interface, is not used
	n, _, err := unix.Recvfrom(r.fd, buf, 0)
	if err != nil || n < unix.SizeofNlMsghdr {
		return nil, errNoAnswer
	}
	b := buf[unix.SizeofNlMsghdr:n]
	switch got := ne.Uint16(buf[4:]); {
	case got == unix.NLMSG_ERROR && len(b) >= 4:
		if errno := -int32(ne.Uint32(b)); errno > 0 {
			return nil, syscall.Errno(errno)
		}
		return nil, errNoAnswer
	case got != kind-2: // RTM_NEWx is RTM_GETx - 2
		return nil, errNoAnswer
	}
	return b, nil
}

// nextHop is the host to which packets go first, and the interface that they leave from; 0: it is this host.
type nextHop struct {
	addr  netip.Addr
	iface int
}

// routeErrors are the errnos of the routes that no packet takes.
var routeErrors = map[byte]syscall.Errno{
	unix.RTN_BLACKHOLE: syscall.EINVAL, unix.RTN_UNREACHABLE: syscall.EHOSTUNREACH, unix.RTN_PROHIBIT: syscall.EACCES,
}

// route asks for the way from src to dst.
func (r rtnetlink) route(src, dst netip.Addr) (hop nextHop, err error) {
	family := addrFamily(dst)
	req := make([]byte, unix.SizeofRtMsg)
	req[0], req[1] = family, uint8(dst.BitLen())
	req = appendAttr(req, unix.RTA_DST, dst.AsSlice())
	if src.IsValid() && !src.IsUnspecified() {
		req[2] = uint8(src.BitLen())
		req = appendAttr(req, unix.RTA_SRC, src.AsSlice())
	}
	if zone := dst.Zone(); zone != "" {
		if ifi, err := net.InterfaceByName(zone); err == nil {
			req = appendAttr(req, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(ifi.Index)))
		}
	}
	b, err := r.ask(unix.RTM_GETROUTE, req)
	switch errno := syscall.Errno(0); {
	case errors.As(err, &errno) && errno != syscall.EPERM && errno != syscall.EOPNOTSUPP:
		return hop, errno
	case err != nil || len(b) < unix.SizeofRtMsg:
		return nextHop{}, nil
	}
	if errno, ok := routeErrors[b[7]]; ok {
		return hop, errno
	} else if b[7] != unix.RTN_UNICAST {
		return nextHop{}, nil // local, broadcast, multicast
	}
	hop.addr = dst.WithZone("")
	for kind, value := range attrs(b[unix.SizeofRtMsg:]) {
		switch {
		case kind == unix.RTA_OIF && len(value) == 4:
			hop.iface = int(binary.NativeEndian.Uint32(value))
		case kind == unix.RTA_GATEWAY:
			if a, ok := netip.AddrFromSlice(value); ok {
				hop.addr = a
			}
		case kind == unix.RTA_VIA && len(value) > 2: // a router of the other family
			if a, ok := netip.AddrFromSlice(value[2:]); ok {
				hop.addr = a
			}
		}
	}
	return hop, nil
}

// neighbour asks for the state of a neighbour (NUD_*).
func (r rtnetlink) neighbour(hop nextHop) (state uint16, err error) {
	req := make([]byte, unix.SizeofNdMsg)
	req[0] = addrFamily(hop.addr)
	binary.NativeEndian.PutUint32(req[4:], uint32(hop.iface))
	b, err := r.ask(unix.RTM_GETNEIGH, appendAttr(req, unix.NDA_DST, hop.addr.AsSlice()))
	if err != nil || len(b) < unix.SizeofNdMsg {
		return 0, errors.Join(err, errNoAnswer)
	}
	return binary.NativeEndian.Uint16(b[8:]), nil
}

// withoutNeighbours reports whether an interface has no link addresses, or the system does not tell.
func (r rtnetlink) withoutNeighbours(iface int) bool {
	req := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(req[4:], uint32(iface))
	b, err := r.ask(unix.RTM_GETLINK, req)
	if err != nil || len(b) < unix.SizeofIfInfomsg {
		return true
	}
	return binary.NativeEndian.Uint32(b[8:])&(unix.IFF_NOARP|unix.IFF_LOOPBACK) != 0
}

func addrFamily(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// appendAttr appends an attribute of a netlink message.
func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(b, value...) // 4 or 16 bytes: no padding
}

// attrs are the attributes of a netlink message.
func attrs(b []byte) func(func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofRtAttr || n > len(b) || !yield(binary.NativeEndian.Uint16(b[2:]), b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}
