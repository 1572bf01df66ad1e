package lookup

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// RouteMTU returns the MTU in bytes of the system's route from src to dst, which includes what routers on the way have
// reported (ICMP); 0 if it is not known. src may be the zero Addr. It sends nothing.
func RouteMTU(src, dst netip.Addr) int {
	family, level, opt := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU
	if dst = dst.Unmap(); dst.Is6() {
		family, level, opt = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if src.IsValid() {
		if sa := Sockaddr(netip.AddrPortFrom(src.WithZone(dst.Zone()), 0)); sa == nil || unix.Bind(fd, sa) != nil {
			return 0
		}
	}
	const discard = 9 // any port: nothing is sent
	sa := Sockaddr(netip.AddrPortFrom(dst, discard))
	if sa == nil || unix.Connect(fd, sa) != nil {
		return 0
	}
	mtu, _ := unix.GetsockoptInt(fd, level, opt)
	return mtu
}
