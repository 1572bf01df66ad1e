package lookup

import (
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Sockaddr is the system's form of an address, whose zone is the name or the number of an interface; nil if there is no
// interface of that name.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	addr, port := a.Addr().Unmap(), int(a.Port())
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: port}
	}
	sa := &unix.SockaddrInet6{Addr: addr.As16(), Port: port}
	if zone := addr.Zone(); zone != "" {
		if ifi, err := net.InterfaceByName(zone); err == nil {
			sa.ZoneId = uint32(ifi.Index)
		} else if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
			sa.ZoneId = uint32(n)
		} else {
			return nil
		}
	}
	return sa
}
