package iwtcp

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// Starter is a QP that package rdmacm connects.
type Starter interface {
	// Start gives the QP its connection and moves it from INIT to RTS. It takes the connection over, also if it fails.
	// ended is called once, by a goroutine of its own, when the connection has ended and the QP is in ERR. silent: it has
	// ended because the peer did not answer any more.
	Start(c *Conn, ended func(silent bool)) error
	// Disconnect begins the orderly end: what is posted is sent, then the stream is closed.
	Disconnect()
}

// Conn is a connection whose start-up is complete.
type Conn struct {
	tcp     *net.TCPConn
	Params  iwarp.Params
	Private []byte // initiator: the peer's
	rest    []byte // initiator: the first bytes for the QP
	// The start-up frames, for taps.
	request, reply []byte
}

// Close closes a connection that no QP has taken over.
func (c *Conn) Close() { _ = c.tcp.Close() }

// Addrs returns the addresses of both ends.
func (c *Conn) Addrs() (local, remote netip.AddrPort) { return addrsOf(c.tcp) }

func addrsOf(c *net.TCPConn) (local, remote netip.AddrPort) {
	return plain(c.LocalAddr()), plain(c.RemoteAddr())
}

func plain(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// readFrame reads until the start-up has another step than Waiting. err is why the stream has ended.
func readFrame(c *net.TCPConn, s *iwarp.Setup) (iwarp.Step, error) {
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			step, out := s.OnBytes(buf[:n])
			if len(out) > 0 {
				_, _ = c.Write(out)
			}
			if step != iwarp.Waiting {
				return step, nil
			}
		}
		var to net.Error
		switch {
		case err == nil:
		case errors.As(err, &to) && to.Timeout():
			return s.OnTimeout(1 << 62), err
		default:
			return s.OnClosed(), err
		}
	}
}

// sendWait is how long TCP has to take an answer.
const sendWait = 5 * time.Second

// Request is a connection whose initiator waits for an answer. Its methods are not for concurrent use.
type Request struct {
	tcp   *net.TCPConn
	setup *iwarp.Setup
	ended bool
}

// Addrs returns the addresses of both ends.
func (r *Request) Addrs() (local, remote netip.AddrPort) { return addrsOf(r.tcp) }

// Private is the initiator's private data.
func (r *Request) Private() []byte { return r.setup.Peer().Private }

// Depths are the READs and atomics that the initiator answers, and has outstanding, at a time; ok is false if they are
// not in its frame.
func (r *Request) Depths() (ird, ord int, ok bool) {
	p := r.setup.Peer()
	return int(p.IRD), int(p.ORD), p.Enhanced
}

// Accept answers the request. After an error the connection is closed.
func (r *Request) Accept(o iwarp.Options) (*Conn, error) {
	out, ok := r.setup.Accept(o)
	if !ok || r.ended {
		r.Close()
		return nil, errRequest
	}
	r.ended = true
	_ = r.tcp.SetWriteDeadline(time.Now().Add(sendWait))
	if _, err := r.tcp.Write(out); err != nil {
		_ = r.tcp.Close()
		return nil, err
	}
	_ = r.tcp.SetWriteDeadline(time.Time{})
	return &Conn{tcp: r.tcp, Params: r.setup.Params(), request: r.setup.Frame(), reply: out}, nil
}

// Reject refuses the request and closes the connection.
func (r *Request) Reject(private []byte) error {
	out, ok := r.setup.Reject(private)
	if !ok || r.ended {
		return errRequest
	}
	_ = r.tcp.SetWriteDeadline(time.Now().Add(sendWait))
	_, err := r.tcp.Write(out)
	r.Close()
	return err
}

// Close closes the connection without an answer.
func (r *Request) Close() {
	if !r.ended {
		r.ended = true
		_ = r.tcp.Close()
	}
}
