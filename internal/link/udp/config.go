package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A Config configures Open. The zero value of each field but Addrs is usable.
type Config struct {
	// Interface is the name of the network interface, for multicast and link-local addresses. Empty means the interface
	// that has the first address.
	Interface string
	// Addrs are the local addresses, without zones: at least one.
	Addrs []netip.Addr
	// Ports is the number of ports, one for each shard: 0 to 64. 0 means 1.
	Ports int
	// Port is the UDP port that packets are sent to and received at; 0 means 4791. Tests use other ports.
	Port uint16
	// RecvBuffer and SendBuffer are the requested sizes of the kernel buffers of each socket, in bytes as
	// SO_RCVBUF counts; 0 means 8 MiB and 4 MiB. The kernel may provide less: see Link.RecvBuffer.
	RecvBuffer, SendBuffer int
	// Shared lets other processes of the user open links at the same addresses (Linux). Each port then has a
	// range of QP numbers, see Link.QPNs, and there may be fewer ports than requested if there are many
	// processes.
	Shared bool
	// NoGSO and NoGRO disable UDP_SEGMENT and UDP_GRO.
	NoGSO, NoGRO bool
	// Lost is called, by any goroutine, when verbena serve, which shared an address, has ended: packets do not
	// arrive there afterwards. Close waits for it, so it must not call Close.
	Lost func(error)
	// Screen makes the screen of the requests for another process that shares an address, from its board; nil: all are
	// passed on to it. It is used while this process reads QP 1.
	Screen func(*board.Board) board.Screen
	// NoLend disables lent pages: the kernel copies every packet.
	NoLend bool
}

const (
	maxPorts          = 64
	defaultRecvBuffer = 8 << 20
	defaultSendBuffer = 4 << 20

	// Source ports of RoCEv2 are firstSourcePort to firstSourcePort + sourcePorts - 1.
	firstSourcePort = 0xC000
	sourcePorts     = 0x4000

	defaultHopLimit = 64
)

// withDefaults checks c and sets its defaults, also from the environment.
func (c Config) withDefaults() (Config, *net.Interface, error) {
	if c.Ports == 0 {
		c.Ports = 1
	}
	if c.Ports < 0 || c.Ports > maxPorts {
		return c, nil, fmt.Errorf("link/udp: %d ports: must be 1 to %d: %w", c.Ports, maxPorts, syscall.EINVAL)
	}
	if c.Port == 0 {
		c.Port = wire.Port
	}
	if c.RecvBuffer <= 0 {
		c.RecvBuffer = defaultRecvBuffer
	}
	if c.SendBuffer <= 0 {
		c.SendBuffer = defaultSendBuffer
	}
	c.NoGSO = c.NoGSO || os.Getenv("VERBENA_UDP_GSO") == "0"
	c.NoGRO = c.NoGRO || os.Getenv("VERBENA_UDP_GRO") == "0"
	c.NoLend = c.NoLend || os.Getenv("VERBENA_UDP_LEND") == "0"
	addrs, err := checkAddrs(c.Addrs)
	if err != nil {
		return c, nil, err
	}
	c.Addrs = addrs
	ifi, err := findInterface(c.Interface, c.Addrs[0])
	return c, ifi, err
}

// checkAddrs returns addrs without 4-in-6 forms, zones and duplicates.
func checkAddrs(addrs []netip.Addr) ([]netip.Addr, error) {
	if len(addrs) == 0 {
		return nil, fmt.Errorf("link/udp: no local address: must be one or more: %w", syscall.EINVAL)
	}
	var out []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return nil, fmt.Errorf("link/udp: local address %v: must be unicast: %w", a, syscall.EINVAL)
		}
		if !seen[a] {
			seen[a] = true
			out = append(out, a)
		}
	}
	return out, nil
}

// findInterface returns the interface name, or the one that has addr if name is empty.
func findInterface(name string, addr netip.Addr) (*net.Interface, error) {
	if name != "" {
		ifi, err := net.InterfaceByName(name)
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			return nil, fmt.Errorf("link/udp: interface %q: %w", name, err)
		}
		if err != nil {
			return nil, fmt.Errorf("link/udp: interface %q: %v: %w", name, err, syscall.ENODEV)
		}
		return ifi, nil
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("link/udp: listing interfaces: %w", err)
	}
	for i := range ifs {
		if hasAddr(&ifs[i], addr) {
			return &ifs[i], nil
		}
	}
	return nil, fmt.Errorf("link/udp: no interface has the address %v: %w", addr, syscall.EADDRNOTAVAIL)
}

// hasAddr reports whether ifi has the address. A loopback interface has every address of its network.
func hasAddr(ifi *net.Interface, addr netip.Addr) bool {
	addrs, err := ifi.Addrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		if p.Addr().Unmap().WithZone("") == addr || ifi.Flags&net.FlagLoopback != 0 && p.Masked().Contains(addr) {
			return true
		}
	}
	return false
}
