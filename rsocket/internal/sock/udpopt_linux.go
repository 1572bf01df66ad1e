package sock

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/lookup"
)

// UDPOptions reports whether the system has all options of UDP sockets that SetUDPOption is called with.
const UDPOptions = true

// setUDP sets an option of the UDP socket.
func setUDP(c *net.UDPConn, o udpOption) error {
	raw, _ := c.SyscallConn() // it has no error if c is not nil
	return beforeBind(raw, o)
}

// beforeBind is setUDP for a socket that has no address yet.
func beforeBind(raw syscall.RawConn, o udpOption) error {
	var err error
	if e := raw.Control(func(fd uintptr) { err = o.set(int(fd)) }); e != nil {
		return e
	}
	return err
}

// tryUDP sets an option of a UDP socket that is closed then.
func tryUDP(v4 bool, o udpOption) error {
	family := unix.AF_INET6
	if v4 {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return o.set(fd)
}

func (o udpOption) set(fd int) error {
	return unix.SetsockoptString(fd, o.level, o.name, string(o.value))
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

// disconnectUDP undoes connectUDP. The system takes a port from the socket that it has chosen itself. The socket then
// gets that port again.
func disconnectUDP(c *net.UDPConn) error {
	raw, _ := c.SyscallConn()
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	var err error
	e := raw.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
		if errno != 0 {
			err = errno
		} else if at := c.LocalAddr().(*net.UDPAddr).AddrPort(); lostPort(int(fd)) {
			err = unix.Bind(int(fd), lookup.Sockaddr(at))
		}
	})
	return errors.Join(e, err)
}

// lostPort reports whether a socket has no port.
func lostPort(fd int) bool {
	switch at, _ := unix.Getsockname(fd); at := at.(type) {
	case *unix.SockaddrInet4:
		return at.Port == 0
	case *unix.SockaddrInet6:
		return at.Port == 0
	}
	return false
}
