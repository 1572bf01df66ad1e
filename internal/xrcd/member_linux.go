package xrcd

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/peeruser"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// A Member is the place of this process in a domain.
type Member struct {
	domain Domain
	number int
	l      *untrusted.Listener

	mu sync.Mutex // guards the following fields
	// +checklocks:mu
	conns map[*Conn]struct{}
	// +checklocks:mu
	closed bool
}

// Join makes this process a member of a domain.
func Join(d Domain, how How) (*Member, error) {
	lock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	var own *Member
	exists := false
	all := how.Exclusive || !how.Create // whether it matters that another process has the domain
	for n := 0; n < Members && (own == nil || all && !exists); n++ {
		l, err := listen(d.name(n))
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			if !exists && d.foreign(n) {
				own.Close()
				return nil, ErrForeign
			}
			exists = true
		case err != nil:
			own.Close()
			return nil, ErrUnsupported
		case own == nil:
			own = &Member{domain: d, number: n, l: untrusted.Over(l), conns: make(map[*Conn]struct{})}
			own.l.Admit = peeruser.Own
		default:
			_ = l.Close()
		}
	}
	switch {
	case exists && how.Exclusive:
		err = ErrExists
	case !exists && !how.Create:
		err = ErrNone
	case own == nil:
		err = ErrFull
	default:
		return own, nil
	}
	own.Close()
	return nil, err
}

// name returns the address of member n.
func (d Domain) name(n int) string {
	device := sha256.Sum256([]byte(d.Device)) // a name has room for 107 bytes
	return fmt.Sprintf("@verbena-xrcd-%x-%x-%x-%d", device[:8], d.Dev, d.Ino, n)
}

// lock excludes other processes that join the domain.
func (d Domain) lock() (*net.UnixListener, error) {
	const tries, pause = 2000, 5 * time.Millisecond
	for range tries {
		l, err := listen(d.name(-1))
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, ErrUnsupported
		}
		time.Sleep(pause)
	}
	return nil, ErrBusy
}

func listen(name string) (*net.UnixListener, error) {
	fdset.Opening()
	defer fdset.Opened()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err == nil {
		fdset.AddConn(l)
	}
	return l, err
}

// foreign reports whether the process with a number, which exists, belongs to another user.
func (d Domain) foreign(n int) bool {
	c, err := d.dial(n)
	if err != nil {
		return errors.Is(err, ErrForeign)
	}
	_ = untrusted.Close(c)
	return false
}

// dial connects to a member, which must be a process of this user.
func (d Domain) dial(n int) (*net.UnixConn, error) {
	fdset.Opening()
	defer fdset.Opened()
	dialer := net.Dialer{Control: untrusted.Control}
	conn, err := dialer.Dial("unix", d.name(n))
	if err != nil {
		return nil, ErrGone
	}
	c := conn.(*net.UnixConn)
	fdset.AddConn(c)
	cred, err := peeruser.Of(c)
	if err == nil && peeruser.Own(cred) {
		return c, nil
	}
	_ = untrusted.Close(c)
	if err != nil {
		return nil, ErrGone
	}
	return nil, ErrForeign
}

// Number returns the member's number, 0 to Members - 1.
func (m *Member) Number() int { return m.number }

// Dial connects to the member with another number. It does not block.
func (m *Member) Dial(n int) (*Conn, error) {
	if n < 0 || n >= Members || n == m.number {
		return nil, ErrGone
	}
	c, err := m.domain.dial(n)
	if err != nil {
		return nil, err
	}
	return m.add(c)
}

// Accept returns the next connection of another member, and net.ErrClosed after Close.
func (m *Member) Accept() (*Conn, error) {
	for {
		c, err := m.l.AcceptUnix()
		switch {
		case err == nil:
			fdset.AddConn(c)
			return m.add(c)
		case errors.Is(err, net.ErrClosed):
			return nil, err
		}
		time.Sleep(acceptPause)
	}
}

// acceptPause is the time after which Accept tries again if there is no descriptor left.
const acceptPause = 20 * time.Millisecond

func (m *Member) add(u *net.UnixConn) (*Conn, error) {
	c := newConn(u, m.remove)
	m.mu.Lock()
	closed := m.closed
	if !closed {
		m.conns[c] = struct{}{}
	}
	m.mu.Unlock()
	if closed {
		c.Close() // calls remove
		return nil, net.ErrClosed
	}
	return c, nil
}

func (m *Member) remove(c *Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.conns, c)
}

// Close gives the number back and closes all connections. A nil Member has none.
func (m *Member) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.closed = true
	conns := m.conns
	m.conns = nil
	m.mu.Unlock()
	_ = m.l.Close()
	for c := range conns {
		c.Close()
	}
}
