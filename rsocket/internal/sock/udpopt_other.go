//go:build !linux

package sock

import "net"

// The options that other systems than Linux get, with Linux's values.
const (
	solSocket = 1
	soSndBuf  = 7
	soRcvBuf  = 8
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
