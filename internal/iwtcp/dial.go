package iwtcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// prepare sets the options of a socket before it is bound. Tests change it. The socket may have a port on which older
// connections are in TIME_WAIT; anyPort: connect chooses its port.
var prepare = func(c syscall.RawConn, anyPort bool) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		if anyPort {
			setAnyPort(fd)
		}
		err = setReuse(fd)
	}); e != nil {
		return e
	}
	return err
}

// Pauses before a connection that nobody takes is tried again: pauseFirst, then twice the one before, up to pauseLast.
// Tests change them. Some servers listen anew for each connection, as those of perftest do with -R, and their clients
// do not wait for that.
var pauseFirst, pauseLast = time.Millisecond, 128 * time.Millisecond

// Dial connects to remote and begins the start-up. local may have the port 0. The error is a *Refused if the peer has
// rejected the connection.
func Dial(ctx context.Context, local, remote netip.AddrPort, o iwarp.Options) (*Conn, error) {
	c, err := connect(ctx, local, remote)
	for pause := pauseFirst; pause <= pauseLast && errors.Is(err, syscall.ECONNREFUSED); pause *= 2 {
		select {
		case <-time.After(pause):
			c, err = connect(ctx, local, remote)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, noConnection(err, local, remote)
	}
	tcp := c.(*net.TCPConn)
	fdset.AddConn(tcp)
	made, err := initiate(ctx, tcp, o)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return made, nil
}

// connect makes a connection of TCP.
func connect(ctx context.Context, local, remote netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(local), Control: func(_, _ string, c syscall.RawConn) error {
		return prepare(c, local.Port() == 0)
	}}
	return d.DialContext(ctx, "tcp", remote.String())
}

// initiate is the start-up of an initiator. The end of ctx ends it.
func initiate(ctx context.Context, c *net.TCPConn, o iwarp.Options) (*Conn, error) {
	s, out := iwarp.Initiate(0, o)
	if err := c.SetDeadline(time.Now().Add(time.Duration(s.Deadline()))); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // after the other deadline
	defer stop()
	if _, err := c.Write(out); err != nil {
		return nil, errLost
	}
	step, err := readFrame(c, s)
	private := append([]byte(nil), s.Peer().Private...)
	switch {
	case step == iwarp.Established:
		return &Conn{tcp: c, Params: s.Params(), Private: private, rest: s.Rest(), request: out, reply: s.Frame()},
			c.SetDeadline(time.Time{})
	case step == iwarp.Refused:
		return nil, &Refused{private}
	case s.TimedOut():
		return nil, errSilent
	case err != nil:
		return nil, errLost
	}
	return nil, badReply(s)
}
