package rstools

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/rsocket"
)

var background = context.Background()

// end is a connected stream: an rsocket, or a TCP connection for comparison.
type end interface {
	Send(b []byte, flags rsocket.Flags) (int, error)
	Recv(b []byte, flags rsocket.Flags) (int, error)
	// wait polls for an event, if the test does.
	wait(e rsocket.Events) error
	end() error
}

// rsEnd is an rsocket.
type rsEnd struct {
	*rsocket.Socket
	async   bool
	timeout time.Duration // of each Poll
}

func (s *rsEnd) wait(e rsocket.Events) error {
	if !s.async {
		return nil
	}
	return waitFor(s.Socket, e, s.timeout)
}

// waitFor polls until there is an event. Poll tells of errors by events.
func waitFor(s *rsocket.Socket, e rsocket.Events, timeout time.Duration) error {
	fds := []rsocket.PollFD{{Socket: s, Events: e}}
	for {
		n, err := rsocket.Poll(fds, timeout)
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
	_ = s.Shutdown(rsocket.ShutBoth)
	return s.Close()
}

// tcpEnd is a TCP connection.
type tcpEnd struct{ net.Conn }

func (t tcpEnd) Send(b []byte, _ rsocket.Flags) (int, error) { return t.Write(b) }
func (t tcpEnd) Recv(b []byte, _ rsocket.Flags) (int, error) { return t.Read(b) }
func (tcpEnd) wait(rsocket.Events) error                     { return nil }
func (t tcpEnd) end() error                                  { return t.Close() }

// addresses looks a host and a port up; without a host it is that of a listener.
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

func domainOf(a netip.AddrPort) rsocket.Domain {
	if a.Addr().Is4() {
		return rsocket.Inet
	}
	return rsocket.Inet6
}

// again tells whether a call would have waited.
func again(err error) bool { return errors.Is(err, syscall.EAGAIN) }
