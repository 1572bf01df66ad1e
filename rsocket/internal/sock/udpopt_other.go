//go:build !linux

package sock

import (
	"net"
	"net/netip"
	"syscall"
)

// setUDP sets an option of the UDP socket: the sizes of its buffers, in bytes. It ignores others.
func setUDP(c *net.UDPConn, o udpOption) {
	switch {
	case o.level == solSocket && o.name == soRcvBuf:
		_ = c.SetReadBuffer(o.value)
	case o.level == solSocket && o.name == soSndBuf:
		_ = c.SetWriteBuffer(o.value)
	}
}

// beforeBind does nothing: several sockets cannot have one address here.
func beforeBind(syscall.RawConn, udpOption) {}

// connectUDP does nothing: Datagram leaves out the messages of others.
func connectUDP(*net.UDPConn, netip.AddrPort) error { return nil }
