package udp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// dontFragment has the socket send with DF, and the identification 0.
func dontFragment(fd uintptr, a netip.Addr) {
	if a.Is4() {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	} else {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	}
}
