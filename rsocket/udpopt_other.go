//go:build !linux

package rsocket

import (
	"net"
)

// setUDP sets an option of the UDP socket: the sizes of its buffers. The values of options are Linux's.
func setUDP(c *net.UDPConn, o udpOption) error {
	switch {
	case o.level == SolSocket && o.name == SoRcvBuf:
		return c.SetReadBuffer(o.value)
	case o.level == SolSocket && o.name == SoSndBuf:
		return c.SetWriteBuffer(o.value)
	}
	return nil
}
