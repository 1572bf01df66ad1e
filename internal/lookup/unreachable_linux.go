package lookup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/errqueue"
)

const (
	// turn is how long a wait for the system's answer lasts before ctx is looked at again.
	turn = 200 * time.Millisecond
	// again is the time between two datagrams. Linux sends ICMP messages to one address at this rate, so that the
	// answer to one datagram may be missing.
	again = time.Second
)

// Unreachable sends a datagram from src to dst each second, with the payload that probe returns, and waits until the
// system reports that it cannot arrive, or ctx is done. The error is nil in the latter case: nothing is known then.
// Otherwise it wraps an errno: EPERM if this host does not let it out; ECONNREFUSED if dst itself answered that its
// port is closed, or that a firewall rejects it; EHOSTUNREACH, ENETUNREACH or EACCES from this host or a router. src
// may be the zero Addr. Further calls wait while some are under way.
func Unreachable(ctx context.Context, src netip.Addr, dst netip.AddrPort, probe Probe) error {
	select {
	case asking <- struct{}{}:
		defer func() { <-asking }()
	case <-ctx.Done():
		return nil
	}
	c, err := unconnected(ctx, src, dst)
	if Exhausted(err) {
		return nil
	}
	if err != nil {
		return errnoOnly(err)
	}
	defer c.Close()
	var sent time.Time
	for ctx.Err() == nil {
		if err = nil; time.Since(sent) >= again {
			sent = time.Now()
			err = send(c, dst, probe)
		}
		if err == nil {
			_ = c.SetReadDeadline(time.Now().Add(turn))
			_, err = c.Read(make([]byte, 1))
		}
		if err == nil || isTimeout(err) {
			continue
		}
		from := offender(c)
		err = errnoOnly(err)
		if hearsay(err, from, dst.Addr()) {
			continue
		}
		return explain(err, from, dst)
	}
	return nil
}

// Withheld sends one datagram, as Unreachable does, and does not wait: the error says that this host does not let it
// out, and is nil otherwise.
func Withheld(src netip.Addr, dst netip.AddrPort, probe Probe) error {
	c, err := unconnected(context.Background(), src, dst)
	if err != nil {
		return nil
	}
	defer c.Close()
	return explain(errnoOnly(send(c, dst, probe)), netip.Addr{}, dst)
}

// asking has a token for each socket that asks. Thousands of requests may wait at once, and a process has few
// descriptors.
var asking = make(chan struct{}, 8)

// unconnected opens a socket with the source address of packets to dst, which gets the errors of its datagrams. A
// connected socket would number its IPv4 datagrams, and the ICRC of a RoCEv2 packet depends on that number; those of
// this socket have 0.
func unconnected(ctx context.Context, src netip.Addr, dst netip.AddrPort) (*net.UDPConn, error) {
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0))}
	c, err := d.DialContext(ctx, "udp", dst.String()) // finds the route; sends nothing
	if err != nil {
		return nil, err
	}
	local := c.LocalAddr().(*net.UDPAddr).AddrPort()
	_ = c.Close()
	l := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
		})
	}}
	p, err := l.ListenPacket(ctx, "udp", netip.AddrPortFrom(local.Addr(), 0).String())
	if err != nil {
		return nil, err
	}
	return p.(*net.UDPConn), nil
}

// send sends a datagram with the payload that probe returns.
func send(c *net.UDPConn, dst netip.AddrPort, probe Probe) error {
	_, err := c.WriteToUDPAddrPort(probe(c.LocalAddr().(*net.UDPAddr).AddrPort(), dst), dst)
	return err
}

// isTimeout reports whether a deadline has passed.
func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// errnoOnly is the errno of an error of package net; nil if it has none.
func errnoOnly(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return nil
}

// hearsay reports whether another host than dst says that the port of dst is closed.
func hearsay(err error, from, dst netip.Addr) bool {
	return errors.Is(err, syscall.ECONNREFUSED) && from != dst.Unmap().WithZone("")
}

// offender takes an error out of a socket's queue and returns the host that reported it; the zero Addr if that is not
// known.
func offender(c *net.UDPConn) (from netip.Addr) {
	raw, err := c.SyscallConn()
	if err != nil {
		return from
	}
	_ = raw.Control(func(fd uintptr) {
		e, _ := errqueue.Read(int(fd))
		from = e.From
	})
	return from
}

// explain adds what an errno means here.
func explain(err error, from netip.Addr, dst netip.AddrPort) error {
	by := ""
	if from.IsValid() {
		by = fmt.Sprintf(", says %v (ICMP)", from)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("this host does not send to UDP port %d of %v: does a firewall forbid it? nft list ruleset: %w",
			dst.Port(), dst.Addr(), err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("UDP port %d of %v is closed, or a firewall there rejects it%s: start the server there first, or "+
			"open the port: %w", dst.Port(), dst.Addr(), by, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%v cannot be reached, or a firewall on the way rejects it%s: %w", dst.Addr(), by, err)
	}
	return fmt.Errorf("%v cannot be reached%s: %w", dst.Addr(), by, err)
}
