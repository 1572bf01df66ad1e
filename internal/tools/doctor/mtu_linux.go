package doctor

import (
	"net"

	"golang.org/x/sys/unix"
)

// pathMTU returns the path MTU that the system knows for a connected socket, 0 if none.
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
