package rsocket

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Conn is a connection, a stream of bytes each way: a net.Conn. All methods are safe for concurrent use.
//
// Write returns when the data is on its way, not when it has arrived; a deadline may have let a part of it go. What was written before
// Close arrives, as long as the peer is there. Data that the peer sent before it closed can be read, then Read returns io.EOF.
type Conn struct {
	st            *stream
	network       string
	local, remote net.Addr
	linger        time.Duration
}

var (
	_ net.Conn      = (*Conn)(nil)
	_ io.ReaderFrom = (*Conn)(nil)
	_ io.WriterTo   = (*Conn)(nil)
)

func newConn(st *stream, network string) *Conn {
	return &Conn{
		st: st, network: network, linger: lingerInClose,
		local: net.TCPAddrFromAddrPort(st.localAddr()), remote: net.TCPAddrFromAddrPort(st.peerAddr()),
	}
}

// Read reads what has come, one byte at least, len(b) at most (rread). At the end of the stream it returns io.EOF; after Close an
// error that is net.ErrClosed; when the read deadline has come one that is os.ErrDeadlineExceeded; of a connection that has failed
// ECONNRESET, or ETIMEDOUT if the peer has not answered.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.st.recv(b, 0, c.reading())
	switch {
	case err != nil:
		return n, c.fail("read", err)
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write sends all of b (rwrite), or says how much and why not more: EPIPE after CloseWrite, ECONNRESET after the peer has
// closed the connection, and otherwise as Read. It waits while the peer has no room. Concurrent calls do not mix their data.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.st.send(b, c.writing())
	if err != nil {
		return n, c.fail("write", err)
	}
	return n, nil
}

// ReadFrom sends what r has until its end.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.st.readFrom(r, c.writing)
	return n, c.fail("readfrom", err)
}

// WriteTo writes what comes to w until the end of the stream.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	n, err := c.st.writeTo(w, c.reading)
	return n, c.fail("writeto", err)
}

func (c *Conn) reading() patience { return patience{deadline: &c.st.read.deadline} }
func (c *Conn) writing() patience { return patience{deadline: &c.st.write.deadline} }

// Close ends the connection both ways (rclose). It waits a while, at most two seconds, until the peer has acknowledged what was
// written; what takes longer goes on in the background for half a minute. SetLinger changes that.
func (c *Conn) Close() error {
	if !c.st.close(c.linger) {
		return c.fail("close", net.ErrClosed)
	}
	return nil
}

// CloseRead ends reading (rshutdown with SHUT_RD): what comes is thrown away. The peer is not told.
func (c *Conn) CloseRead() error { return c.fail("close", c.st.shutdown(true, false)) }

// CloseWrite ends writing (rshutdown with SHUT_WR): the peer reads io.EOF after what was written, and may go on writing.
func (c *Conn) CloseWrite() error { return c.fail("close", c.st.shutdown(false, true)) }

// LocalAddr is this end's address, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the peer's address, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *Conn) SetDeadline(t time.Time) error { return c.set(t, &c.st.read, &c.st.write) }

// SetReadDeadline ends reads that wait, and those to come, at a moment. The zero time is never.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.set(t, &c.st.read) }

// SetWriteDeadline ends writes that wait, and those to come, at a moment. The zero time is never.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.set(t, &c.st.write) }

func (c *Conn) set(t time.Time, sides ...*side) error {
	if c.st.isClosed() {
		return c.fail("set", net.ErrClosed)
	}
	for _, s := range sides {
		s.deadline.set(t)
	}
	return nil
}

// SetKeepAlive looks after a silent peer (SO_KEEPALIVE): when nothing was sent for so long a message of nothing is, and the connection
// fails if the peer does not acknowledge it. 0 ends that.
func (c *Conn) SetKeepAlive(every time.Duration) error {
	if c.st.isClosed() {
		return c.fail("set", net.ErrClosed)
	}
	c.st.startKeepalive(every)
	return nil
}

// SetLinger says how long Close waits, at most two seconds. With 0 it does not wait, and what is under way is lost.
func (c *Conn) SetLinger(d time.Duration) error {
	if d < 0 {
		return c.fail("set", syscall.EINVAL)
	}
	c.linger = d
	return nil
}

// SetNoDelay does nothing (TCP_NODELAY): no data waits for more data.
func (c *Conn) SetNoDelay(bool) error { return nil }

// fail is the error of a call.
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
	if err != net.ErrClosed {
		err = ioError{err}
	}
	return opError(op, c.network, c.local, c.remote, err)
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
