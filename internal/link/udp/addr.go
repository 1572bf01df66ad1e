package udp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
)

var errClosed = fmt.Errorf("link/udp: the link is closed: %w", net.ErrClosed)

// zoned reports whether an address is valid only together with an interface.
func zoned(a netip.Addr) bool {
	return a.IsLinkLocalUnicast() && a.Is6() || a.IsLinkLocalMulticast() || a.IsInterfaceLocalMulticast()
}

func inUse(err error) bool { return errnoOf(err) == syscall.EADDRINUSE }

// bindError returns the error of binding a receive socket, with the remedy for a program or for verbena serve.
func bindError(at netip.AddrPort, serves bool, err error) error {
	switch {
	case inUse(err):
		return fmt.Errorf("link/udp: bind %v: the port is taken by %s: %w", at, portOwner(at, serves), syscall.EADDRINUSE)
	case errnoOf(err) == syscall.EADDRNOTAVAIL:
		return fmt.Errorf("link/udp: bind %v: not an address of this machine, or not usable yet: %w", at,
			syscall.EADDRNOTAVAIL)
	}
	return fmt.Errorf("link/udp: bind %v: %w", at, err)
}

// eachSourcePort calls bind with the source ports of RoCEv2, from a random one on, until one is free.
func eachSourcePort(a netip.Addr, bind func(port uint16) error) (port uint16, err error) {
	first := rand.IntN(sourcePorts)
	for i := range sourcePorts {
		port = uint16(firstSourcePort + (first+i)%sourcePorts)
		if err = bind(port); !inUse(err) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("link/udp: bind a source port of %v: %w", a, err)
	}
	return port, nil
}
