package rstools

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

var background = context.Background()

// end is a connected stream: an rsocket, or a TCP connection for comparison.
type end interface {
	Send(b []byte, flags socket.Flags) (int, error)
	Recv(b []byte, flags socket.Flags) (int, error)
	// wait polls for an event if the test uses poll.
	wait(e socket.Events) error
	end() error
}

// rsEnd is an rsocket.
type rsEnd struct {
	*socket.Socket
	async   bool
	timeout time.Duration // of each Poll
}

func (s *rsEnd) wait(e socket.Events) error {
	if !s.async {
		return nil
	}
	return waitFor(s.Socket, e, s.timeout)
}

// waitFor polls until there is an event. Poll reports errors as events.
func waitFor(s *socket.Socket, e socket.Events, timeout time.Duration) error {
	fds := []socket.PollFD{{Socket: s, Events: e}}
	for {
		n, err := socket.Poll(fds, timeout)
		switch {
		case err != nil:
			return err
		case n == 0:
		case fds[0].Revents&e == 0:
			return errors.New("the connection has ended")
		default:
			return nil
		}
	}
}

func (s *rsEnd) end() error {
	_ = s.Shutdown(socket.ShutBoth)
	return s.Close()
}

// tcpEnd is a TCP connection.
type tcpEnd struct{ net.Conn }

func (t tcpEnd) Send(b []byte, _ socket.Flags) (int, error) { return t.Write(b) }
func (t tcpEnd) Recv(b []byte, _ socket.Flags) (int, error) { return t.Read(b) }
func (tcpEnd) wait(socket.Events) error                     { return nil }
func (t tcpEnd) end() error                                 { return t.Close() }

// addresses resolves a host and a port; without a host it returns a listener's address.
func addresses(host, port string, numeric bool) (netip.AddrPort, error) {
	c := background
	p, err := net.DefaultResolver.LookupPort(c, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(p)), nil
	}
	if numeric {
		a, err := netip.ParseAddr(host)
		return netip.AddrPortFrom(a.Unmap(), uint16(p)), err
	}
	list, err := lookup.Addrs(c, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(list[0], uint16(p)), nil
}

func domainOf(a netip.AddrPort) socket.Domain {
	if a.Addr().Is4() {
		return socket.Inet
	}
	return socket.Inet6
}

// again reports whether a nonblocking call would have blocked.
func again(err error) bool { return errors.Is(err, syscall.EAGAIN) }
