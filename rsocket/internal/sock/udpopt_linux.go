package sock

import (
	"net"

	"golang.org/x/sys/unix"
)

// setUDP sets an option of the UDP socket.
func setUDP(c *net.UDPConn, o udpOption) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), o.level, o.name, o.value) }); cerr != nil {
		return cerr
	}
	return err
}
