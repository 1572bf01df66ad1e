package udp

import (
	"net/netip"
	"syscall"
)

// dontFragment makes the socket send with DF. The options are those of ws2ipdef.h.
func dontFragment(fd uintptr, a netip.Addr) {
	const ipDontFragment = 14 // IP_DONTFRAGMENT and IPV6_DONTFRAG
	level := syscall.IPPROTO_IPV6
	if a.Is4() {
		level = syscall.IPPROTO_IP
	}
	syscall.SetsockoptInt(syscall.Handle(fd), level, ipDontFragment, 1)
}
