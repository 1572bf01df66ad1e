package sock

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// udpOption is an option of the UDP socket of a Datagram.
type udpOption struct {
	level, name int
	value       []byte
}

// number is the value of an option that is an int.
func (o udpOption) number() int {
	if len(o.value) < 4 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(o.value)))
}

// The options that are looked at here, with Linux's values.
const (
	solSocket   = 1
	soReuseAddr = 2
	soSndBuf    = 7
	soRcvBuf    = 8
	soReusePort = 15
)

// listenUDP opens a UDP socket with options, at the unspecified address if addr is zero.
func listenUDP(v4 bool, addr netip.AddrPort, options []udpOption) (*net.UDPConn, error) {
	network, any := "udp6", netip.IPv6Unspecified()
	if v4 {
		network, any = "udp4", netip.IPv4Unspecified()
	}
	if !addr.Addr().IsValid() {
		addr = netip.AddrPortFrom(any, addr.Port())
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		for _, o := range options {
			if o.shares() {
				_ = beforeBind(raw, o)
			}
		}
		return nil
	}}
	p, err := config.ListenPacket(context.Background(), network, addr.String())
	if err != nil {
		return nil, err
	}
	c := p.(*net.UDPConn)
	for _, o := range options {
		if !o.shares() {
			_ = setUDP(c, o)
		}
	}
	return c, nil
}

// shares reports whether an option lets several sockets have one address. The system looks at it when it binds one.
func (o udpOption) shares() bool {
	return o.level == solSocket && (o.name == soReuseAddr || o.name == soReusePort)
}

// shared reports whether other sockets may have the address of the socket.
//
// +checklocks:d.mu
func (d *Datagram) shared() bool {
	return slices.ContainsFunc(d.options, func(o udpOption) bool { return o.shares() && o.number() != 0 })
}

// SetUDPOption sets an option of the UDP socket, now or when it is opened. The errors are those of the system, on Linux
// only.
func (d *Datagram) SetUDPOption(level, name int, value []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := udpOption{level, name, slices.Clone(value)}
	var err error
	if d.udp != nil {
		err = setUDP(d.udp, o)
	} else {
		err = tryUDP(d.v4, o)
	}
	if err != nil {
		return Fail("rsetsockopt", ErrnoOf(err), "option %d of level %#x of the UDP socket: %v", name, level, err)
	}
	d.options = append(slices.DeleteFunc(d.options, func(p udpOption) bool {
		return p.level == level && p.name == name
	}), o)
	return nil
}
