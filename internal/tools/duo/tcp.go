package duo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// The first byte that the client sends selects the kind of TCP connection.
const (
	tcpEcho = 'e' // messages are echoed
	tcpSink = 's' // messages are read; the last one is answered with a byte
)

// tcpHeader is the length of the kind and the message size.
const tcpHeader = 1 + 4

// ServeTCP answers TCPConns on the address until the process ends.
func ServeTCP(ip netip.Addr) (netip.AddrPort, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if err != nil {
		return netip.AddrPort{}, err
	}
	go ServeStreams(l)
	return l.Addr().(*net.TCPAddr).AddrPort(), nil
}

// ServeStreams serves the connections of a stream listener, TCP or other, until it is closed.
func ServeStreams(l net.Listener) {
	for {
		c, err := tool.Accept(l, nil)
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = serve(c) // the client sees the error
		}()
	}
}

func serve(c net.Conn) error {
	var h [tcpHeader]byte
	if _, err := io.ReadFull(c, h[:]); err != nil {
		return err
	}
	buf := make([]byte, binary.BigEndian.Uint32(h[1:]))
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		var err error
		switch {
		case h[0] == tcpEcho:
			_, err = c.Write(buf)
		case buf[0] == lastMessage:
			_, err = c.Write(buf[:1])
		}
		if err != nil {
			return err
		}
	}
}

// lastMessage as a message's first byte requests an answer.
const lastMessage = 0xff

// A TCPConn is a TCP connection to the second process, for comparison, or another stream with the same
// interface.
type TCPConn struct {
	c    net.Conn
	mode byte
	buf  []byte
}

// DialTCP connects, for messages of size bytes, which the second process echoes or discards.
func DialTCP(to netip.AddrPort, size int, echo bool) (*TCPConn, error) {
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	return NewStream(c, size, echo)
}

// NewStream is DialTCP over a connection to a listener of ServeStreams.
func NewStream(c net.Conn, size int, echo bool) (*TCPConn, error) {
	t := &TCPConn{c, tcpSink, make([]byte, size)}
	if echo {
		t.mode = tcpEcho
	}
	h := binary.BigEndian.AppendUint32([]byte{t.mode}, uint32(size))
	if _, err := c.Write(h); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// RoundTrip sends a message and waits for its echo.
func (t *TCPConn) RoundTrip() error {
	if t.mode != tcpEcho {
		return errors.New("not an echo connection")
	}
	if _, err := t.c.Write(t.buf); err != nil {
		return fmt.Errorf("%s: %w", t.c.RemoteAddr().Network(), err)
	}
	if _, err := io.ReadFull(t.c, t.buf); err != nil {
		return fmt.Errorf("%s: %w", t.c.RemoteAddr().Network(), err)
	}
	return nil
}

// Stream sends n messages and waits until the other process has read the last one.
func (t *TCPConn) Stream(n int) error {
	if t.mode != tcpSink {
		return errors.New("not a sink connection")
	}
	for i := range n {
		t.buf[0] = 0
		if i == n-1 {
			t.buf[0] = lastMessage
		}
		if _, err := t.c.Write(t.buf); err != nil {
			return fmt.Errorf("%s: %w", t.c.RemoteAddr().Network(), err)
		}
	}
	if _, err := io.ReadFull(t.c, t.buf[:1]); err != nil {
		return fmt.Errorf("%s: %w", t.c.RemoteAddr().Network(), err)
	}
	return nil
}

// Close closes the connection.
func (t *TCPConn) Close() error { return t.c.Close() }
