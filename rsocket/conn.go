package rsocket

import (
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// Conn is a connection, a stream of bytes each way: a net.Conn. All methods are safe for concurrent use.
//
// Write returns when the data is on its way, not when it has arrived; a write that ends at its deadline may have
// sent a part. Data that was written before Close arrives unless the connection fails. Data that the peer sent before
// it closed can be read; then Read returns io.EOF.
type Conn struct {
	st            *sock.Stream
	network       string
	local, remote net.Addr
	linger        atomic.Int64 // a time.Duration
}

var (
	_ net.Conn      = (*Conn)(nil)
	_ io.ReaderFrom = (*Conn)(nil)
	_ io.WriterTo   = (*Conn)(nil)
)

func newConn(st *sock.Stream, network string) *Conn {
	c := &Conn{
		st: st, network: network,
		local: net.TCPAddrFromAddrPort(st.LocalAddr()), remote: net.TCPAddrFromAddrPort(st.PeerAddr()),
	}
	c.linger.Store(int64(sock.MaxLinger))
	return c
}

// Read reads received data, at least one byte and at most len(b) (rread). At the end of the stream it returns
// io.EOF, after Close an error that is net.ErrClosed, after the read deadline one that is os.ErrDeadlineExceeded.
// ECONNRESET if the connection has failed, EIO if its device was removed, ETIMEDOUT if the peer did not answer.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.st.Recv(b, 0, c.st.Reading())
	switch {
	case err != nil:
		return n, c.fail("read", err)
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write sends all of b (rwrite), or returns how much it has sent and an error: EPIPE after CloseWrite, ECONNRESET
// after the peer has closed the connection, otherwise as Read. It waits while the peer has no room. Concurrent calls
// do not mix their data.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.st.Send(b, c.st.Writing())
	return n, c.fail("write", err)
}

// ReadFrom sends the data of r until its end.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.st.CopyFrom(r, c.st.Writing)
	return n, c.fail("readfrom", err)
}

// WriteTo writes received data to w until the end of the stream.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	n, err := c.st.CopyTo(w, c.st.Reading)
	return n, c.fail("writeto", err)
}

// Close ends the connection both ways (rclose). It waits at most two seconds until the peer has acknowledged the
// written data; delivery continues in the background for at most 30 seconds. SetLinger changes the wait. The error is
// net.ErrClosed if the connection is closed, otherwise nil.
func (c *Conn) Close() error {
	if !c.st.Close(time.Duration(c.linger.Load())) {
		return c.fail("close", net.ErrClosed)
	}
	return nil
}

// CloseRead ends reading (rshutdown with SHUT_RD): received data is dropped. The peer is not notified.
func (c *Conn) CloseRead() error { return c.fail("close", c.st.Shutdown(true, false)) }

// CloseWrite ends writing (rshutdown with SHUT_WR): the peer reads io.EOF after the written data, and may continue
// to write. It waits at most two seconds until the peer has acknowledged the written data; delivery continues in the
// background for at most 30 seconds. net.ErrClosed after Close.
func (c *Conn) CloseWrite() error { return c.fail("close", c.st.Shutdown(false, true)) }

// LocalAddr returns the local address, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the peer, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets the read and the write deadline. net.ErrClosed after Close.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(t, true, true) }

// SetReadDeadline sets the time at which present and future reads end; the zero time stands for none.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, true, false) }

// SetWriteDeadline sets the time at which present and future writes end; the zero time stands for none.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, false, true) }

func (c *Conn) setDeadline(t time.Time, read, write bool) error {
	return c.fail("set", c.st.SetDeadline(t, read, write))
}

// SetKeepAlive sets how long the connection may be idle (SO_KEEPALIVE): when no message was sent for the time idle, an
// empty message is sent. The connection fails if the peer does not acknowledge it. 0 turns the checks off.
func (c *Conn) SetKeepAlive(idle time.Duration) error {
	if c.st.IsClosed() {
		return c.fail("set", net.ErrClosed)
	}
	c.st.SetKeepalive(idle)
	return nil
}

// SetLinger sets how long Close waits, at most two seconds. With 0 Close does not wait, and unacknowledged data is
// lost. EINVAL for a time below 0, net.ErrClosed after Close.
func (c *Conn) SetLinger(d time.Duration) error {
	if c.st.IsClosed() {
		return c.fail("set", net.ErrClosed)
	}
	if d < 0 {
		return c.fail("set", syscall.EINVAL)
	}
	c.linger.Store(int64(d))
	return nil
}

// SetNoDelay has no effect (TCP_NODELAY): data never waits for more data.
func (c *Conn) SetNoDelay(bool) error { return nil }

// fail returns the error of a call.
func (c *Conn) fail(op string, err error) error {
	switch err.(type) {
	case nil:
		return nil
	case *net.OpError:
		return err
	}
	if err == io.EOF {
		return err
	}
	return failure(op, c.network, c.local, c.remote, err)
}

func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort()
	case *net.UDPAddr:
		return a.AddrPort()
	case *net.IPAddr:
		ip, _ := netip.AddrFromSlice(a.IP)
		return netip.AddrPortFrom(ip.Unmap().WithZone(a.Zone), 0)
	}
	return netip.AddrPort{}
}

// IOMap registers buf with the connection's device and lets the peer write to it with IOWrite (riomap): at offset,
// or with offset -1 at an offset that IOMap chooses. It returns the offset. The peer can use the map when it has
// received data that was sent after this call. The peer's writes change buf at any time, until IOUnmap or the end of
// the connection. EINVAL for an empty buffer and for one of 4 GiB or more. ENOMEM if as many maps exist as the peer's
// Options.IOMaps permits, or if the connection has had half as many as the peer's Options.RQSize, those that have ended
// included. net.ErrClosed after Close.
func (c *Conn) IOMap(buf []byte, offset int64) (int64, error) {
	n, err := c.st.IOMap(buf, true, offset)
	return n, c.fail("iomap", err)
}

// IOUnmap ends the map of exactly this buffer (riounmap); EINVAL if there is none. The peer is not notified: if it
// writes there, the connection fails.
func (c *Conn) IOUnmap(buf []byte) error { return c.fail("iounmap", c.st.IOUnmap(buf)) }

// IOWrite writes b to memory that the peer has mapped at offset (riowrite), and returns how much it has written:
// less than len(b) if no map covers the rest. The peer is not notified; data of a later Write arrives after it. The
// write deadline applies.
func (c *Conn) IOWrite(b []byte, offset int64) (int, error) {
	n, err := c.st.IOWrite(b, offset, c.st.Writing())
	return n, c.fail("iowrite", err)
}
