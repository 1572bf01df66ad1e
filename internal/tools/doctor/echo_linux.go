package doctor

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// echoWait is how long an answer to an echo request may take.
const echoWait = 300 * time.Millisecond

// echo sends an ICMP echo request of size bytes, IP header first, which nobody may fragment, whatever the system knows
// of the path. can reports whether this process may send one, and answered whether the answer came, of two tries, in
// one packet: a host may receive packets that are longer than those that it can send, and fragments its answer then.
func echo(ctx context.Context, src, dst netip.Addr, size int) (answered, can bool) {
	for seq := range uint16(2) {
		if answered, can = echoOnce(src, dst, size, seq); answered || !can || ctx.Err() != nil {
			break
		}
	}
	return answered, can
}

// echoOnce is one try of echo.
func echoOnce(src, dst netip.Addr, size int, seq uint16) (answered, can bool) {
	const echoHeader = 8
	family, proto, request, ip := unix.AF_INET, unix.IPPROTO_ICMP, byte(8), 20
	if dst.Is6() {
		family, proto, request, ip = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128, 40
	}
	raw := false
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, proto)
	if err != nil { // only groups in ping_group_range may
		raw = true
		if fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto); err != nil {
			return false, false
		}
	}
	defer unix.Close(fd)
	if dst.Is6() {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVFRAGSIZE, 1)
	} else {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVFRAGSIZE, 1)
	}
	tv := unix.NsecToTimeval(int64(echoWait))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	if unix.Bind(fd, sockaddr(src)) != nil || unix.Connect(fd, sockaddr(dst)) != nil {
		return false, false
	}
	b := make([]byte, max(size-ip, echoHeader))
	id := uint16(unix.Getpid())
	b[0] = request
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	if dst.Is4() {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	if _, err := unix.Write(fd, b); err != nil {
		return false, true
	}
	in, control := make([]byte, len(b)+ip+64), make([]byte, 64)
	for begin := time.Now(); time.Since(begin) < echoWait; {
		n, nc, _, _, err := unix.Recvmsg(fd, in, control, 0)
		if err != nil {
			return false, true
		}
		if isAnswer(in[:n], request, raw, id, seq) {
			return !inFragments(control[:nc]), true
		}
	}
	return false, true
}

// inFragments reports whether a message was put together of fragments, by the control messages that came with it.
func inFragments(control []byte) bool {
	list, err := unix.ParseSocketControlMessage(control)
	return err == nil && slices.ContainsFunc(list, func(m unix.SocketControlMessage) bool {
		return m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVFRAGSIZE ||
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVFRAGSIZE
	})
}

// isAnswer reports whether a received message is the answer to a request. A raw IPv4 socket gets it with the IP header,
// and the answers to other processes too.
func isAnswer(b []byte, request byte, raw bool, id, seq uint16) bool {
	const v4, v6, answer6 = 8, 128, 129
	if raw && request == v4 {
		if len(b) < 20 || len(b) < int(b[0]&0xF)*4 {
			return false
		}
		b = b[int(b[0]&0xF)*4:]
	}
	want := byte(0)
	if request == v6 {
		want = answer6
	}
	return len(b) >= 8 && b[0] == want && (!raw || binary.BigEndian.Uint16(b[4:]) == id) &&
		binary.BigEndian.Uint16(b[6:]) == seq
}

// checksum is that of the Internet protocols.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	return ^uint16(sum)
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), ZoneId: zone(a)}
}
