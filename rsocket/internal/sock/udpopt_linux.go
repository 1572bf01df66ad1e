package sock

import (
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
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
	raw, _ := c.SyscallConn()
	var err error
	if e := raw.Control(func(fd uintptr) { err = unix.Connect(int(fd), sockaddr(to)) }); e != nil {
		return e
	}
	return err
}

// sockaddr is the system's form of an address. A zone that does not exist is none.
func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	sa := &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	zone := a.Addr().Zone()
	if ifi, err := net.InterfaceByName(zone); err == nil {
		sa.ZoneId = uint32(ifi.Index)
	} else if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		sa.ZoneId = uint32(n)
	}
	return sa
}
