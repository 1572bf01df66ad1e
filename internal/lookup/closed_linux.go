package lookup

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/errqueue"
)

// Closed sends one datagram from src to each of dsts, with the payload that probe returns, and returns those of dsts
// that answer within the time patience that their port is closed. A host sends few ICMP messages per second to one
// address, and a firewall may drop them: an address that is not returned may be closed, too.
func Closed(ctx context.Context, src netip.Addr, dsts []netip.AddrPort, patience time.Duration, probe Probe,
) (closed []netip.AddrPort) {
	if len(dsts) == 0 {
		return nil
	}
	c, err := unconnected(ctx, src, dsts[0])
	if err != nil {
		return nil
	}
	defer c.Close()
	asked := map[netip.Addr]netip.AddrPort{}
	for _, dst := range dsts {
		asked[dst.Addr().Unmap().WithZone("")] = dst
		if send(c, dst, probe) != nil { // it may be the answer to an earlier one
			_ = send(c, dst, probe)
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	for ctx.Err() == nil && len(asked) > 0 {
		_, err := c.Read(make([]byte, 1))
		for _, dst := range refusals(c) {
			if at, ok := asked[dst]; ok {
				closed = append(closed, at)
				delete(asked, dst)
			}
		}
		if isTimeout(err) {
			break
		}
	}
	return closed
}

// refusals takes all errors out of a socket's queue and returns the destinations that have themselves answered that
// their port is closed.
func refusals(c *net.UDPConn) (dsts []netip.Addr) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			e, ok := errqueue.Read(int(fd))
			if !ok {
				return
			}
			if e.Errno == unix.ECONNREFUSED && e.From == e.To {
				dsts = append(dsts, e.To)
			}
		}
	})
	return dsts
}
