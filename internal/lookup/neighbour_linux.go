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
	state, err := r.neighbour(hop)
	if errors.Is(err, syscall.ENOENT) && r.withoutNeighbours(hop.iface) {
		return Known, nil
	}
	return knowledge(state, err), nil
}

// knowledge is what the kernel's answer about a neighbour means.
func knowledge(state uint16, err error) Knowledge {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return Unknown
	case err != nil:
		return Known // kernels before 5.0 return lists only
	case state&usable != 0:
		return Known
	case state&unix.NUD_FAILED != 0:
		return Unanswered
	}
	return Unknown
}

// Solicit sends a datagram from src to dst, with the payload that probe returns, so that the system asks for the link
// address of the way to dst. The error is the one of sending: EPERM if a firewall of this host forbids it.
func Solicit(ctx context.Context, src netip.Addr, dst netip.AddrPort, probe Probe) error {
	c, err := unconnected(ctx, src, dst)
	if err != nil {
		return errnoOnly(err)
	}
	defer c.Close()
	return errnoOnly(send(c, dst, probe))
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
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &answerTime)
	return rtnetlink{fd}, nil
}

// errNoAnswer: the kernel's answer is not of the form that was asked for.
var errNoAnswer = errors.New("no answer from rtnetlink")

// ask sends a request and returns the payload of its answer. An error of the kernel is a syscall.Errno.
func (r rtnetlink) ask(kind uint16, payload []byte) ([]byte, error) {
	if err := unix.Sendto(r.fd, request(kind, payload), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errNoAnswer
	}
	buf := make([]byte, 1<<13) // what does not fit, properties of an interface, is not used
	n, _, _ := unix.Recvfrom(r.fd, buf, 0)
	return answer(kind, buf[:max(n, 0)])
}

// request is a message with a payload, to the kernel.
func request(kind uint16, payload []byte) []byte {
	ne := binary.NativeEndian
	msg := ne.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(payload)))
	msg = ne.AppendUint16(msg, kind)
	msg = ne.AppendUint16(msg, unix.NLM_F_REQUEST)
	msg = append(msg, 1, 0, 0, 0, 0, 0, 0, 0) // sequence number, port
	return append(msg, payload...)
}

// answer is the payload of the kernel's answer to a request.
func answer(kind uint16, msg []byte) ([]byte, error) {
	ne := binary.NativeEndian
	if len(msg) < unix.SizeofNlMsghdr {
		return nil, errNoAnswer
	}
	b := msg[unix.SizeofNlMsghdr:]
	switch got := ne.Uint16(msg[4:]); {
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
	b, err := r.ask(unix.RTM_GETROUTE, routeRequest(src, dst))
	if err != nil {
		return hop, routeError(err)
	}
	return parseRoute(dst.WithZone(""), b)
}

// routeError is the errno of the route, of an answer that is an error; nil if the system does not tell.
func routeError(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != syscall.EPERM && errno != syscall.EOPNOTSUPP {
		return errno
	}
	return nil
}

// routeRequest is the payload of a request for the way from src to dst.
func routeRequest(src, dst netip.Addr) []byte {
	req := make([]byte, unix.SizeofRtMsg)
	req[0], req[1] = addrFamily(dst), uint8(dst.BitLen())
	req = appendAttr(req, unix.RTA_DST, dst.AsSlice())
	if src.IsValid() && !src.IsUnspecified() {
		req[2] = uint8(src.BitLen())
		req = appendAttr(req, unix.RTA_SRC, src.AsSlice())
	}
	if ifi, err := net.InterfaceByName(dst.Zone()); err == nil {
		req = appendAttr(req, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(ifi.Index)))
	}
	return req
}

// parseRoute reads the way to dst from the kernel's answer: the zero value if it is this host, or no way to one host.
func parseRoute(dst netip.Addr, b []byte) (hop nextHop, err error) {
	if len(b) < unix.SizeofRtMsg {
		return hop, nil
	}
	if errno, ok := routeErrors[b[7]]; ok {
		return hop, errno
	} else if b[7] != unix.RTN_UNICAST {
		return hop, nil // local, broadcast, multicast
	}
	hop.addr = dst
	for kind, value := range attrs(b[unix.SizeofRtMsg:]) {
		switch {
		case kind == unix.RTA_OIF && len(value) == 4:
			hop.iface = int(binary.NativeEndian.Uint32(value))
		case kind == unix.RTA_GATEWAY:
			hop.router(value)
		case kind == unix.RTA_VIA && len(value) > 2: // a router of the other family
			hop.router(value[2:])
		}
	}
	return hop, nil
}

// router takes the address of a router.
func (h *nextHop) router(value []byte) {
	if a, ok := netip.AddrFromSlice(value); ok {
		h.addr = a
	}
}

// neighbour asks for the state of a neighbour (NUD_*).
func (r rtnetlink) neighbour(hop nextHop) (state uint16, err error) {
	req := make([]byte, unix.SizeofNdMsg)
	req[0] = addrFamily(hop.addr)
	binary.NativeEndian.PutUint32(req[4:], uint32(hop.iface))
	b, err := r.ask(unix.RTM_GETNEIGH, appendAttr(req, unix.NDA_DST, hop.addr.AsSlice()))
	if err != nil {
		return 0, err
	}
	return parseState(b)
}

// parseState reads the state of a neighbour from the kernel's answer.
func parseState(b []byte) (uint16, error) {
	if len(b) < unix.SizeofNdMsg {
		return 0, errNoAnswer
	}
	return binary.NativeEndian.Uint16(b[8:]), nil
}

// withoutNeighbours reports whether an interface has no link addresses, or the system does not tell.
func (r rtnetlink) withoutNeighbours(iface int) bool {
	req := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(req[4:], uint32(iface))
	b, err := r.ask(unix.RTM_GETLINK, req)
	return err != nil || plain(b)
}

// plain is withoutNeighbours, with the kernel's answer.
func plain(b []byte) bool {
	return len(b) < unix.SizeofIfInfomsg ||
		binary.NativeEndian.Uint32(b[8:])&(unix.IFF_NOARP|unix.IFF_LOOPBACK) != 0
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
