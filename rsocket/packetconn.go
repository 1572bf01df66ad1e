package rsocket

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// MaxDatagram4 and MaxDatagram6 are the largest messages of datagram sockets, in bytes, by IPv4 and by IPv6. The
// first messages to a peer, until its QP is known, and those that with a header of 8 or 24 bytes exceed the path MTU of
// the device go by UDP: librdmacm truncates those to 2032 and 2020 bytes.
const (
	MaxDatagram4 = rs.DatagramMax - rs.HeaderLen4
	MaxDatagram6 = rs.DatagramMax - rs.HeaderLen6
)

// PacketConn is a datagram socket: a net.PacketConn, and a net.Conn if Dial made it. Messages have at most
// MaxDatagram4 or MaxDatagram6 bytes, and may be lost or reordered, as those of UDP: a message that is too long for the
// QP goes by UDP, and arrives before or after the shorter ones around it. Between two programs on an Ethernet with
// 1500 bytes those are the messages of more than 1016 bytes. All methods are safe for concurrent use.
type PacketConn struct {
	d       *sock.Datagram
	network string
}

var (
	_ net.PacketConn = (*PacketConn)(nil)
	_ net.Conn       = (*PacketConn)(nil)
)

// ListenPacket makes a datagram socket (rsocket with SOCK_DGRAM, rbind) at a local address of an RDMA device: network
// is udp, udp4 or udp6. An empty host stands for all IPv4 addresses, with udp6 for all IPv6 addresses: unlike in
// package net, a socket has one family. The socket also has a UDP socket of the system with that address.
func ListenPacket(network, address string) (net.PacketConn, error) {
	return new(ListenConfig).ListenPacket(context.Background(), network, address)
}

// ListenPacket is the function ListenPacket on the host of lc. Of the options only SendBuf, RecvBuf, SQSize and
// RQSize apply.
func (lc *ListenConfig) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	if !strings.HasPrefix(network, "udp") {
		return nil, opError("listen", network, nil, nil, net.UnknownNetworkError(network))
	}
	addrs, err := resolve(ctx, network, anyPort(address))
	if err != nil {
		return nil, opError("listen", network, nil, nil, err)
	}
	d := openDatagram(lc.Host, addrs[0], lc.withDefaults())
	if err := d.Bind(addrs[0]); err != nil {
		d.Close()
		return nil, opError("listen", network, nil, net.UDPAddrFromAddrPort(addrs[0]), err)
	}
	return &PacketConn{d, network}, nil
}

func openDatagram(host *rdmacm.Host, a netip.AddrPort, o sock.Options) *sock.Datagram {
	return sock.NewDatagram(sock.JoinHub(sock.HostOf(host)), a.Addr().Unmap().Is4(), o)
}

// dialPacket makes a datagram socket with a destination.
func (d *Dialer) dialPacket(network string, to netip.AddrPort) (_ net.Conn, err error) {
	dg := openDatagram(d.Host, to, d.withDefaults())
	if from := addrPort(d.LocalAddr); from.IsValid() {
		err = dg.Bind(from)
	}
	if err == nil {
		err = dg.Connect(to)
	}
	if err != nil {
		dg.Close()
		return nil, err
	}
	return &PacketConn{dg, network}, nil
}

// ReadFrom receives a message and returns its source, a *net.UDPAddr (rrecvfrom). The part that does not fit in b is
// lost. os.ErrDeadlineExceeded after the read deadline, net.ErrClosed after Close.
func (c *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.d.RecvFrom(b, 0, c.d.Reading())
	if err != nil {
		return n, nil, c.fail("read", err)
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// WriteTo sends a message to a *net.UDPAddr (rsendto). EMSGSIZE for a message that is too long, os.ErrDeadlineExceeded
// after the write deadline, net.ErrClosed after Close. EINVAL for an address of another type or family, or with port 0.
func (c *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	u, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, opError("write", c.network, c.LocalAddr(), to, syscall.EINVAL)
	}
	n, err := c.d.SendTo(b, u.AddrPort(), c.d.Writing())
	switch {
	case err == nil:
		return n, nil
	case u == nil:
		to = nil
	}
	return n, failure("write", c.network, c.LocalAddr(), to, err)
}

// Read receives a message (rrecv); if Dial made the socket, of the peer only. It fails as ReadFrom does.
func (c *PacketConn) Read(b []byte) (int, error) {
	n, _, err := c.d.RecvFrom(b, 0, c.d.Reading())
	return n, c.fail("read", err)
}

// Write sends a message to the peer (rsend). EDESTADDRREQ if Dial did not make the socket; otherwise it fails as
// WriteTo does.
func (c *PacketConn) Write(b []byte) (int, error) {
	n, err := c.d.Send(b, c.d.Writing())
	return n, c.fail("write", err)
}

// Close destroys the socket (rclose). net.ErrClosed if it is closed.
func (c *PacketConn) Close() error {
	if c.d.IsClosed() {
		return c.fail("close", net.ErrClosed)
	}
	c.d.Close()
	return nil
}

// LocalAddr returns the local address, a *net.UDPAddr.
func (c *PacketConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.d.Local()) }

// RemoteAddr returns the address of the peer, a *net.UDPAddr; nil if Dial did not make the socket.
func (c *PacketConn) RemoteAddr() net.Addr {
	if to := c.d.Peer(); to.IsValid() {
		return net.UDPAddrFromAddrPort(to)
	}
	return nil
}

// SetDeadline sets the read and the write deadline.
func (c *PacketConn) SetDeadline(t time.Time) error { return c.setDeadline(t, true, true) }

// SetReadDeadline sets the time at which present and future reads end; the zero time stands for none.
func (c *PacketConn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, true, false) }

// SetWriteDeadline sets the time at which present and future writes end; the zero time stands for none.
func (c *PacketConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, false, true) }

func (c *PacketConn) setDeadline(t time.Time, read, write bool) error {
	return c.fail("set", c.d.SetDeadline(t, read, write))
}

func (c *PacketConn) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return failure(op, c.network, c.LocalAddr(), c.RemoteAddr(), err)
}
