package rsocket

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// PacketConn is a datagram socket: a net.PacketConn, and a net.Conn if Dial has made it. Messages have at most MaxDatagram4 or MaxDatagram6
// bytes, may be lost and may change places. All methods are safe for concurrent use.
type PacketConn struct {
	d       *datagram
	network string
}

var (
	_ net.PacketConn = (*PacketConn)(nil)
	_ net.Conn       = (*PacketConn)(nil)
)

// ListenPacket makes a datagram socket at a local address of an RDMA device, or all of them: network is udp, udp4 or udp6
// (rsocket with SOCK_DGRAM, rbind). It has a UDP socket of the system with that address.
func ListenPacket(network, address string) (net.PacketConn, error) {
	return new(ListenConfig).ListenPacket(background, network, address)
}

// ListenPacket is the function of that name on the host of lc. Of the options SendBuf, RecvBuf, SQSize and RQSize count.
func (lc *ListenConfig) ListenPacket(c context.Context, network, address string) (net.PacketConn, error) {
	if !strings.HasPrefix(network, "udp") {
		return nil, opError("listen", network, nil, nil, net.UnknownNetworkError(network))
	}
	addrs, err := resolve(c, network, address)
	if err != nil {
		return nil, opError("listen", network, nil, nil, err)
	}
	d, err := openDatagram(lc.Host, addrs[0], lc.withDefaults())
	if err != nil {
		return nil, opError("listen", network, nil, net.UDPAddrFromAddrPort(addrs[0]), err)
	}
	if err := d.bind(addrs[0]); err != nil {
		d.close()
		return nil, opError("listen", network, nil, net.UDPAddrFromAddrPort(addrs[0]), err)
	}
	return &PacketConn{d, network}, nil
}

func openDatagram(host *rdmacm.Host, a netip.AddrPort, o Options) (*datagram, error) {
	b, err := joinHub(hostOf(host))
	if err != nil {
		return nil, err
	}
	domain := Inet6
	if a.Addr().Unmap().Is4() {
		domain = Inet
	}
	return newDatagram(b, domain, o)
}

// dialPacket makes a datagram socket with a destination.
func (d *Dialer) dialPacket(network string, to netip.AddrPort) (net.Conn, error) {
	dg, err := openDatagram(d.Host, to, d.withDefaults())
	if err != nil {
		return nil, err
	}
	if from := addrPort(d.LocalAddr); from.IsValid() {
		err = dg.bind(from)
	}
	if err == nil {
		err = dg.connect(to)
	}
	if err != nil {
		dg.close()
		return nil, err
	}
	return &PacketConn{dg, network}, nil
}

// ReadFrom receives a message and tells where it is from, a *net.UDPAddr. What does not fit in b is lost.
func (c *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.d.recvFrom(b, 0, c.reading())
	if err != nil {
		return n, nil, c.fail("read", err)
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// WriteTo sends a message to a *net.UDPAddr.
func (c *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	n, err := c.d.sendTo(b, addrPort(to), c.writing())
	return n, c.fail("write", err)
}

// Read receives a message, of the peer if Dial has made the socket.
func (c *PacketConn) Read(b []byte) (int, error) {
	n, _, err := c.d.recvFrom(b, 0, c.reading())
	return n, c.fail("read", err)
}

// Write sends a message to the peer. EDESTADDRREQ if Dial has not made the socket.
func (c *PacketConn) Write(b []byte) (int, error) {
	n, err := c.d.send(b, c.writing())
	return n, c.fail("write", err)
}

func (c *PacketConn) reading() patience { return patience{deadline: &c.d.read.deadline} }
func (c *PacketConn) writing() patience { return patience{deadline: &c.d.write.deadline} }

// Close destroys the socket.
func (c *PacketConn) Close() error {
	if c.d.isClosed() {
		return c.fail("close", net.ErrClosed)
	}
	c.d.close()
	return nil
}

// LocalAddr is the socket's address, a *net.UDPAddr.
func (c *PacketConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.d.local()) }

// RemoteAddr is the peer's address, a *net.UDPAddr; nil if Dial has not made the socket.
func (c *PacketConn) RemoteAddr() net.Addr {
	if to := c.d.peer(); to.IsValid() {
		return net.UDPAddrFromAddrPort(to)
	}
	return nil
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *PacketConn) SetDeadline(t time.Time) error { return c.set(t, &c.d.read, &c.d.write) }

// SetReadDeadline ends reads that wait, and those to come, at a moment. The zero time is never.
func (c *PacketConn) SetReadDeadline(t time.Time) error { return c.set(t, &c.d.read) }

// SetWriteDeadline ends writes that wait, and those to come, at a moment. The zero time is never.
func (c *PacketConn) SetWriteDeadline(t time.Time) error { return c.set(t, &c.d.write) }

func (c *PacketConn) set(t time.Time, sides ...*side) error {
	if c.d.isClosed() {
		return c.fail("set", net.ErrClosed)
	}
	for _, s := range sides {
		s.deadline.set(t)
	}
	return nil
}

func (c *PacketConn) fail(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if err != net.ErrClosed {
		err = ioError{err}
	}
	return opError(op, c.network, c.LocalAddr(), c.RemoteAddr(), err)
}
