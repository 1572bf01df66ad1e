package lookup

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
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
	from := c.LocalAddr().(*net.UDPAddr).AddrPort()
	asked := map[netip.Addr]netip.AddrPort{}
	for _, dst := range dsts {
		asked[dst.Addr().Unmap().WithZone("")] = dst
		b := probe(from, dst)
		if _, err := c.WriteToUDPAddrPort(b, dst); err != nil { // it may be the answer to an earlier one
			_, _ = c.WriteToUDPAddrPort(b, dst)
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
		oob := make([]byte, 512)
		for {
			_, n, _, to, err := unix.Recvmsg(int(fd), make([]byte, 1), oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			errno, from := parseExtended(oob[:n])
			if dst := destination(to); errno == unix.ECONNREFUSED && from == dst {
				dsts = append(dsts, dst)
			}
		}
	})
	return dsts
}

// destination is the address of to without its zone.
func destination(to unix.Sockaddr) netip.Addr {
	switch to := to.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(to.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(to.Addr).Unmap()
	}
	return netip.Addr{}
}
