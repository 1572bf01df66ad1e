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

const (
	// patience is the time after which a wait in the kernel is interrupted.
	patience = 20 * time.Millisecond
	// again is the time after which the next one is: a message may have 253 descriptors.
	again = time.Millisecond
	// mostWaiting limits the threads that wait in the close of sockets.
	mostWaiting = 64
)

// waiting has an element for each thread that may wait in Close.
var waiting = make(chan struct{}, mostWaiting)

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
	defer unblock()()
	var over atomic.Bool
	t := time.AfterFunc(patience, func() {
		for !over.Load() { // a signal before the wait begins is lost
			_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // Go has a handler: it interrupts its own threads by it
			time.Sleep(again)
		}
	})
	f()
	over.Store(true)
	t.Stop()
}

// unblock lets the thread receive the signal, and returns a function that restores its mask. Threads of the C libraries
// block the signal.
func unblock() func() {
	var before unix.Sigset_t
	if unix.PthreadSigmask(unix.SIG_UNBLOCK, urgent(), &before) != nil {
		return func() {}
	}
	return func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }
}

// urgent returns the set of the signal.
func urgent() *unix.Sigset_t {
	s := new(unix.Sigset_t)
	s.Val[0] = 1 << (unix.SIGURG - 1)
	return s
}

// Close closes a socket that no other goroutine reads or writes. It does so in a thread of its own: the one that has
// called Go may belong to a program in C, which waits for the signal.
func Close(c io.Closer) error {
	waiting <- struct{}{}
	result := make(chan error, 1)
	go func() {
		defer func() { <-waiting }()
		within(func() { result <- c.Close() })
	}()
	return <-result
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

	// Admit reports whether a process is served; nil: all are. AcceptUnix ends the connections of others, in a tenth of
	// the time that Accept, a goroutine and Close take: a flood of them leaves time for processes that are served.
	Admit func(*unix.Ucred) bool

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
	for !l.closing.Load() {
		c, err := l.UnixListener.AcceptUnix()
		switch {
		case l.closing.Load():
			if err == nil {
				_ = Close(c)
			}
			continue
		case err != nil || l.admits(c):
			return c, err
		}
		if c = l.next(); c != nil {
			return c, nil
		}
	}
	return nil, net.ErrClosed
}

// admits reports whether a connection is served. It ends the connection if not.
func (l *Listener) admits(c *net.UnixConn) (ok bool) {
	if l.Admit == nil {
		return true
	}
	raw, err := c.SyscallConn()
	if err == nil {
		bare := false
		err = raw.Control(func(fd uintptr) {
			if ok = l.admitsPeer(int(fd)); !ok {
				bare = end(int(fd))
			}
		})
		if bare {
			_ = c.Close()
			return false
		}
	}
	if ok && err == nil {
		return true
	}
	go Close(c) //nolint:errcheck // nobody is told
	return false
}

func (l *Listener) admitsPeer(fd int) bool {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && l.Admit(cred)
}

// next returns the first connection in the queue that is served, nil if there is none. It ends those before.
func (l *Listener) next() (c *net.UnixConn) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		for c == nil && !l.closing.Load() {
			s, _, err := unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			switch {
			case err == unix.EINTR || err == unix.ECONNABORTED:
			case err != nil: // that AcceptUnix returns, or waits for
				return
			case l.admitsPeer(s):
				c = connOf(s)
			default:
				drop(s)
			}
		}
	})
	return c
}

// connOf makes a connection of a descriptor, nil if there is no other one free.
func connOf(fd int) *net.UnixConn {
	f := os.NewFile(uintptr(fd), "")
	c, err := net.FileConn(f)
	if err != nil {
		go Close(f) //nolint:errcheck // nobody is told
		return nil
	}
	_ = f.Close() // not the last one
	return c.(*net.UnixConn)
}

// drop closes a connection that is not served.
func drop(fd int) {
	if end(fd) {
		_ = unix.Close(fd)
		return
	}
	go Close(os.NewFile(uintptr(fd), "")) //nolint:errcheck // nobody is told
}

// mostDropped limits the messages that end reads.
const mostDropped = 16

// end shuts a connection down, so that its peer cannot send more, and reads what it has sent up to the first message
// with descriptors. It reports whether nothing is left, so that close does not wait.
func end(fd int) bool {
	// A message has credentials then. Without them one of no bytes would look like the end.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) != nil || unix.Shutdown(fd, unix.SHUT_RDWR) != nil {
		return false
	}
	var b [1]byte
	credentials := make([]byte, unix.CmsgSpace(unix.SizeofUcred)) // no room for descriptors
	for range mostDropped {
		_, oobn, flags, _, err := unix.Recvmsg(fd, b[:], credentials,
			unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EAGAIN || err == nil && oobn == 0:
			return true
		case err != nil || flags&unix.MSG_CTRUNC != 0:
			return false
		}
		if _, _, err := unix.Recvfrom(fd, make([]byte, 1<<12), unix.MSG_DONTWAIT); err != nil {
			return false
		}
	}
	return false
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
