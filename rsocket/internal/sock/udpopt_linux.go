package sock

import (
	"net"

	"golang.org/x/sys/unix"
)

// setUDP sets an option of the UDP socket. One that the system refuses has no effect.
func setUDP(c *net.UDPConn, o udpOption) {
	raw, _ := c.SyscallConn() // it has no error if c is not nil
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), o.level, o.name, o.value) })
}
