package duo

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sysroute"
)

// rocePort is the UDP port of RoCEv2.
const rocePort = 4791

// Addresses finds loopback addresses for two processes: 127.0.0.1 for both if they can share it and its
// RoCEv2 port is free, otherwise two free ones from 127.0.0.2 on.
func Addresses() (a, b netip.Addr, err error) {
	if !hasLoopback() {
		return a, b, errors.New("no interface has the address 127.0.0.1: is the loopback interface down? ip link set dev " +
			"lo up")
	}
	if lo := netip.AddrFrom4([4]byte{127, 0, 0, 1}); runtime.GOOS == "linux" && os.Getenv("VERBENA_UDP") != "plain" &&
		isFree(lo) == nil {
		return lo, lo, nil
	}
	var free []netip.Addr
	var failed error // the first error
	for i := byte(2); i < 250; i++ {
		ip := netip.AddrFrom4([4]byte{127, 0, 0, i})
		if err := isFree(ip); err != nil {
			failed = cmp.Or(failed, err)
			continue
		}
		if free = append(free, ip); len(free) == 2 {
			return free[0], free[1], nil
		}
	}
	if errors.Is(failed, syscall.EADDRNOTAVAIL) {
		return a, b, fmt.Errorf("this system has only one loopback address (%w): add two with "+
			"sudo ifconfig lo0 alias 127.0.0.2 && sudo ifconfig lo0 alias 127.0.0.3", failed)
	}
	return a, b,
		fmt.Errorf(
			"no two loopback addresses have UDP port %d free (%w): a program or the kernel's rdma_rxe has it on the "+
				"wildcard address", rocePort, failed)
}

// hasLoopback reports whether an interface has the address 127.0.0.1. In a new network namespace of Linux none has it,
// and a socket can be bound to it nevertheless.
var hasLoopback = func() bool { return sysroute.Interface(netip.AddrFrom4([4]byte{127, 0, 0, 1})) != "" }

// isFree returns nil if the RoCEv2 port of an address is free, otherwise the error.
func isFree(ip netip.Addr) error {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, rocePort)))
	if err != nil {
		return err
	}
	return c.Close()
}
