package iwtcp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// setAnyPort makes a bind to port 0 choose no port. Connect chooses one then, which only has to be free for its
// destination; bind takes a port that no other socket has, including connections in TIME_WAIT. Without the option, as
// in some sandboxes, bind chooses the port.
func setAnyPort(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}

// PortIsFree reports whether a socket can be bound to a port now. It is true also if that is unknown.
func PortIsFree(at netip.AddrPort) bool {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	if at.Addr().Zone() != "" {
		return true
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	return setReuse(uintptr(fd)) != nil || unix.Bind(fd, sa) != unix.EADDRINUSE
}
