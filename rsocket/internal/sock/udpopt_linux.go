package sock

import (
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/lookup"
)

// setUDP sets an option of the UDP socket. One that the system refuses has no effect.
func setUDP(c *net.UDPConn, o udpOption) {
	raw, _ := c.SyscallConn() // it has no error if c is not nil
	beforeBind(raw, o)
}

// beforeBind is setUDP for a socket that has no address yet.
func beforeBind(raw syscall.RawConn, o udpOption) {
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), o.level, o.name, o.value) })
}

// connectUDP connects the UDP socket in the system.
func connectUDP(c *net.UDPConn, to netip.AddrPort) error {
	sa := lookup.Sockaddr(to)
	if sa == nil {
		return syscall.EINVAL // as the system says of an address without a zone
	}
	raw, _ := c.SyscallConn()
	var err error
	if e := raw.Control(func(fd uintptr) { err = unix.Connect(int(fd), sa) }); e != nil {
		return e
	}
	return err
}
