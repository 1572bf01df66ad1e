package duo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"
)

// rocePort is the UDP port of RoCEv2.
const rocePort = 4791

// Addresses finds two loopback addresses whose RoCEv2 port nobody uses: 127.0.0.2 and
// 127.0.0.3, unless another demo has them.
func Addresses() (a, b netip.Addr, err error) {
	var free []netip.Addr
	for i := byte(2); i < 250; i++ {
		ip := netip.AddrFrom4([4]byte{127, 0, 0, i})
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, rocePort)))
		switch {
		case err == nil:
			c.Close()
		case errors.Is(err, syscall.EADDRNOTAVAIL) && runtime.GOOS == "darwin":
			return a, b, fmt.Errorf("this system has no %s; add two with: sudo ifconfig lo0 alias 127.0.0.2 && sudo ifconfig lo0 alias 127.0.0.3", ip)
		case errors.Is(err, syscall.EADDRINUSE):
			continue
		default:
			return a, b, err
		}
		if free = append(free, ip); len(free) == 2 {
			return free[0], free[1], nil
		}
	}
	return a, b, errors.New("UDP port 4791 is taken on every loopback address: a program, or rdma_rxe of the kernel, has it on the wildcard address")
}
