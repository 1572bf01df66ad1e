package duo

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// rocePort is the UDP port of RoCEv2.
const rocePort = 4791

// Addresses finds two loopback addresses whose RoCEv2 port nobody uses: 127.0.0.2 and
// 127.0.0.3, unless another demo has them.
func Addresses() (a, b netip.Addr, err error) {
	var free []netip.Addr
	var failed error // at the first address that could not be had
	for i := byte(2); i < 250; i++ {
		ip := netip.AddrFrom4([4]byte{127, 0, 0, i})
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, rocePort)))
		if err != nil {
			failed = cmp.Or(failed, err)
			continue
		}
		c.Close()
		if free = append(free, ip); len(free) == 2 {
			return free[0], free[1], nil
		}
	}
	if errors.Is(failed, syscall.EADDRNOTAVAIL) {
		return a, b, fmt.Errorf("this system has only one loopback address (%w); add two: "+
			"sudo ifconfig lo0 alias 127.0.0.2 && sudo ifconfig lo0 alias 127.0.0.3", failed)
	}
	return a, b, fmt.Errorf("no two loopback addresses have UDP port %d free (%w): a program, or rdma_rxe of the kernel, has it on the "+
		"wildcard address", rocePort, failed)
}
