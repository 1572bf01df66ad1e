package exchange

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/winsock"
)

// timeout bounds connecting and each message of the peer. The C programs wait for ever, so a silent client
// blocks their server.
const timeout = time.Minute

// done is the client's last message, with its NUL.
var done = []byte("done\x00")

// A Conn is the TCP connection between the two ends.
type Conn struct {
	c *net.TCPConn
}

// Dial connects to the server at host.
func Dial(host string, port uint16) (*Conn, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))), timeout)
	if err != nil {
		return nil, DialError(host, port, err)
	}
	return &Conn{c.(*net.TCPConn)}, nil
}

// DialError says why a client does not reach the server at host, and the remedy if there is one.
func DialError(host string, port uint16, err error) error {
	remedy := ""
	if a, e := netip.ParseAddr(host); e == nil && lookup.NeedsZone(a) {
		remedy = "; a link-local address must have a zone, as in " + host + "%eth0"
	} else if winsock.Is(err, syscall.ECONNREFUSED) {
		remedy = "; start the server first, with the same -p"
	}
	return fmt.Errorf("couldn't connect to %s:%d: %w%s", host, port, err, remedy)
}

// A Listener waits for the client.
type Listener struct {
	l net.Listener
}

// Listen listens on the TCP port, on every address.
func Listen(port uint16) (*Listener, error) {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, fmt.Errorf("couldn't listen to port %d: %w", port, err)
	}
	return &Listener{l}, nil
}

// Port returns the port, which the system chose if Listen was given 0.
func (l *Listener) Port() uint16 { return uint16(l.l.Addr().(*net.TCPAddr).Port) }

// Accept waits for the first client and stops listening.
func (l *Listener) Accept() (*Conn, error) {
	defer l.l.Close()
	return l.Next()
}

// Next waits for another client.
func (l *Listener) Next() (*Conn, error) {
	c, err := l.l.Accept()
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	return &Conn{c.(*net.TCPConn)}, nil
}

// Close stops listening; a waiting Accept returns an error.
func (l *Listener) Close() error { return l.l.Close() }

// Peer returns the address of the other end.
func (c *Conn) Peer() netip.Addr {
	return c.c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Send sends one message for each destination, each in a write of its own, since the C programs expect to
// read it in one piece.
func (c *Conn) Send(dests []Dest) error {
	buf := make([]byte, 0, MessageLen)
	for _, d := range dests {
		if err := c.write(d.AppendMessage(buf)); err != nil {
			return fmt.Errorf("couldn't send local address: %w", err)
		}
	}
	return nil
}

// Recv reads one message for each element of dests.
func (c *Conn) Recv(dests []Dest) error {
	var buf [MessageLen]byte
	for i := range dests {
		n, err := c.read(buf[:])
		if err != nil {
			return fmt.Errorf("%d/%d: couldn't read remote address: %w", n, MessageLen, err)
		}
		if dests[i], err = ParseMessage(buf[:]); err != nil {
			return err
		}
	}
	return nil
}

// SendDone tells the server that the client has received its addresses.
func (c *Conn) SendDone() error {
	if err := c.write(done); err != nil {
		return fmt.Errorf("couldn't send \"done\": %w", err)
	}
	return nil
}

// WaitDone waits for the client's SendDone.
func (c *Conn) WaitDone() error {
	var buf [5]byte
	if _, err := c.read(buf[:]); err != nil {
		return fmt.Errorf("the client did not confirm our address: %w", err)
	}
	if string(buf[:]) != string(done) {
		return fmt.Errorf("the client sent %q instead of %q: the client must be the same program with the same options",
			buf[:], done)
	}
	return nil
}

func (c *Conn) write(b []byte) error {
	if err := c.c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := c.c.Write(b)
	return err
}

func (c *Conn) read(b []byte) (int, error) {
	return receive(c.c, b, timeout)
}

// receive fills b within the time d.
func receive(c net.Conn, b []byte, d time.Duration) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(c, b)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || winsock.Is(err, syscall.ECONNRESET):
		err = errors.New("the peer closed the connection: look at its output")
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("the peer sent nothing for %v: run the same program at both ends, with the same options: %w", d,
			err)
	}
	return n, err
}
