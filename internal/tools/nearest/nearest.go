// Package nearest opens the device that reaches a peer, for tools whose user named none. It imports verbs.
package nearest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

// Open opens the device that has the local address from which the system would talk to the peer; if none has, the first one that
// can reach the peer.
func Open(peer netip.Addr) (*verbs.Context, error) {
	devices, err := verbs.Devices()
	if err != nil && len(devices) == 0 {
		return nil, err
	}
	source := sourceFor(peer)
	var usable *verbs.Context
	var errs []error
	for _, d := range devices {
		ctx, err := d.Open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		choice, err := ctx.SelectGID(peer)
		switch {
		case err != nil:
			errs = append(errs, err)
			ctx.Close()
		case choice.GID.Addr() == source || usable == nil && len(devices) == 1:
			if usable != nil {
				usable.Close()
			}
			return ctx, nil
		case usable == nil:
			usable = ctx
		default:
			ctx.Close()
		}
	}
	if usable != nil {
		return usable, nil
	}
	if len(errs) == 0 {
		return nil, errors.New("no IB devices found")
	}
	return nil, fmt.Errorf("no device reaches %s: %w", peer, errors.Join(errs...))
}

// sourceFor is the address from which the system would send to the peer; invalid if it cannot.
func sourceFor(peer netip.Addr) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, 4791)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
}
