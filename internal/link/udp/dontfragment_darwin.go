package udp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// dontFragment makes the socket send with DF, and therefore, as RFC 6864 allows, with the identification 0.
func dontFragment(fd uintptr, a netip.Addr) {
	if a.Is4() {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_DONTFRAG, 1)
	} else {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1)
	}
}
