package doctor

import (
	"net"

	"golang.org/x/sys/unix"
)

// pathMTU is what the system knows about the way of a connected socket; 0 if nothing.
func pathMTU(c *net.UDPConn) (mtu int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	level, opt := unix.IPPROTO_IP, unix.IP_MTU
	if c.RemoteAddr().(*net.UDPAddr).IP.To4() == nil {
		level, opt = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	_ = raw.Control(func(fd uintptr) { mtu, err = unix.GetsockoptInt(int(fd), level, opt) })
	if err != nil {
		return 0
	}
	return mtu
}
