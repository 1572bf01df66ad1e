// Package lingering makes sockets for tests whose close waits, as another user can send them to a program. It imports
// the standard library and golang.org/x/sys.
package lingering

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// OldKernel replaces untrusted.Refuse, which refuse points to, for a test by what a kernel before 6.16 does: nothing.
func OldKernel(tb testing.TB, refuse *func(int)) {
	tb.Helper()
	was := *refuse
	*refuse = func(int) {}
	tb.Cleanup(func() { *refuse = was })
}

// Limited fails the test if f takes as long as only the close of such a socket does.
func Limited(tb testing.TB, what string, f func()) {
	tb.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took > 20*time.Second {
		tb.Errorf("%s took %v", what, took)
	}
}

// Socket returns the descriptor of a TCP socket with data that its peer does not read: the close of its last
// descriptor waits for wait, or until release is called.
func Socket(wait time.Duration) (fd int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return -1, nil, err
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr)
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, nil, err
	}
	if err = unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	peer, err := l.Accept()
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	for b := make([]byte, 1<<16); err == nil; {
		_, err = unix.Write(fd, b)
	}
	if errors.Is(err, unix.EAGAIN) {
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1,
			Linger: int32(wait / time.Second)})
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, func() { peer.Close() }, nil
}

// Give sends n such sockets on a Unix socket, each in a message of one byte. It stops where the peer refuses them.
func Give(to int, n int, wait time.Duration) (release func(), err error) {
	var all []func()
	release = func() {
		for _, f := range all {
			f()
		}
	}
	for range n {
		fd, rel, err := Socket(wait)
		if err != nil {
			return release, err
		}
		all = append(all, rel)
		err = unix.Sendmsg(to, []byte("x"), unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
		if err != nil {
			rel()
		}
		go unix.Close(fd) // which waits if the peer has closed it already
		if err != nil {
			return release, err
		}
	}
	return release, nil
}
