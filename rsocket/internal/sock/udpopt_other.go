//go:build !linux

package sock

import (
	"net"
	"net/netip"
	"syscall"
)

// UDPOptions reports whether the system has all options of UDP sockets that SetUDPOption is called with.
const UDPOptions = false

// setUDP sets an option of the UDP socket: the sizes of its buffers, in bytes. It ignores others.
func setUDP(c *net.UDPConn, o udpOption) error {
	switch {
	case o.level == solSocket && o.name == soRcvBuf:
		_ = c.SetReadBuffer(o.number())
	case o.level == solSocket && o.name == soSndBuf:
		_ = c.SetWriteBuffer(o.number())
	}
	return nil
}

// beforeBind does nothing: several sockets cannot have one address here.
func beforeBind(syscall.RawConn, udpOption) error { return nil }

// tryUDP does nothing.
func tryUDP(bool, udpOption) error { return nil }

// connectUDP does nothing: Datagram leaves out the messages of others.
func connectUDP(*net.UDPConn, netip.AddrPort) error { return nil }

// disconnectUDP does nothing, as connectUDP.
func disconnectUDP(*net.UDPConn) error { return nil }
