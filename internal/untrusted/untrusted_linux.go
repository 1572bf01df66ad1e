package untrusted

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// soPassRights is SO_PASSRIGHTS, Linux 6.16.
const soPassRights = 83

// patience is the time after which a wait in the kernel is interrupted, and interrupted again.
const patience = 20 * time.Millisecond

// Refuse makes a socket refuse descriptors, where the kernel has that; so do the sockets that a listener accepts. A
// test replaces it.
var Refuse = func(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, soPassRights, 0) }

// Control is for net.Dialer and net.ListenConfig: their sockets refuse descriptors.
func Control(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { Refuse(int(fd)) })
}

// within calls f, which makes system calls, and interrupts those that wait.
func within(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	var over atomic.Bool
	t := time.AfterFunc(patience, func() {
		for !over.Load() { // a signal before the wait begins is lost
			_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // the signal by which Go interrupts its own threads
			time.Sleep(patience)
		}
	})
	f()
	over.Store(true)
	t.Stop()
}

// Close closes a socket that no other goroutine reads or writes.
func Close(c io.Closer) (err error) {
	within(func() { err = c.Close() })
	return err
}

// Read reads from a socket. Descriptors that the peer has sent are closed.
func Read(c *net.UnixConn, b []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	e := raw.Read(func(fd uintptr) bool {
		n, err = ReadNow(int(fd), b)
		return err != unix.EAGAIN
	})
	switch {
	case e != nil:
		return 0, e
	case err != nil:
		return 0, os.NewSyscallError("recvfrom", err)
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// ReadNow is Read for a descriptor. It returns EAGAIN if there is nothing to read.
func ReadNow(fd int, b []byte) (n int, err error) {
	within(func() {
		for err = unix.EINTR; err == unix.EINTR; {
			n, _, err = unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		}
	})
	return n, err
}

// Reader reads from a socket as Read does.
func Reader(c *net.UnixConn) io.Reader { return reader{c} }

type reader struct{ c *net.UnixConn }

func (r reader) Read(b []byte) (int, error) { return Read(r.c, b) }

// A Listener is a listener that any user can connect to. One goroutine at a time calls AcceptUnix.
type Listener struct {
	*net.UnixListener

	closing   atomic.Bool
	accepting sync.Mutex // held by AcceptUnix
}

// Over makes a listener one of this package. Its connections refuse descriptors.
func Over(l *net.UnixListener) *Listener {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { Refuse(int(fd)) })
	}
	return Keep(l)
}

// Keep is Over for connections that receive descriptors once the peer is known.
func Keep(l *net.UnixListener) *Listener { return &Listener{UnixListener: l} }

// AcceptUnix waits for a connection. It returns net.ErrClosed after Close.
func (l *Listener) AcceptUnix() (*net.UnixConn, error) {
	l.accepting.Lock()
	defer l.accepting.Unlock()
	if l.closing.Load() {
		return nil, net.ErrClosed
	}
	c, err := l.UnixListener.AcceptUnix()
	if !l.closing.Load() {
		return c, err
	}
	if err == nil {
		_ = Close(c)
	}
	return nil, net.ErrClosed
}

// Accept waits for a connection.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close closes the listener, with the connections that were not accepted. It first ends AcceptUnix: the last user of a
// descriptor closes it.
func (l *Listener) Close() error {
	if l.closing.Swap(true) {
		return net.ErrClosed
	}
	_ = l.SetDeadline(time.Unix(1, 0))
	l.accepting.Lock()
	defer l.accepting.Unlock()
	return Close(l.UnixListener)
}
