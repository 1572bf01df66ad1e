package untrusted

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/untrusted/lingering"
)

const (
	linger = 20 * time.Second
	soon   = linger / 4
)

// pair returns a connection and the descriptor of its peer.
func pair(t *testing.T, kind int) (*net.UnixConn, int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(p[0]), "pair")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[1]) })
	return c.(*net.UnixConn), p[1]
}

// give sends sockets whose close waits.
func give(t *testing.T, to, n int) {
	t.Helper()
	release, err := lingering.Give(to, n, linger)
	t.Cleanup(release)
	if err != nil {
		t.Fatal(err)
	}
}

func within5s(t *testing.T, what string, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took > soon {
		t.Errorf("%s took %v", what, took)
	}
}

// The close of a socket does not wait for sockets that its peer has sent.
func TestCloseOfUnreadSockets(t *testing.T) {
	for _, kind := range []int{unix.SOCK_SEQPACKET, unix.SOCK_STREAM} {
		c, peer := pair(t, kind)
		give(t, peer, 3)
		within5s(t, "close", func() {
			if err := Close(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// Reading does not wait for them either, and returns the bytes that came with them.
func TestReadDropsSockets(t *testing.T) {
	c, peer := pair(t, unix.SOCK_SEQPACKET)
	give(t, peer, 2)
	b := make([]byte, 8)
	within5s(t, "reading", func() {
		for range 2 {
			if n, err := Read(c, b); n != 1 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
	})
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if _, err := Reader(c).Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	_ = Close(c)
}

// A listener closes connections that it has not accepted, while its goroutine waits in AcceptUnix.
func TestCloseOfListener(t *testing.T) {
	lingering.OldKernel(t, &Refuse)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	u := Over(l)
	accepted, ended := make(chan net.Conn), make(chan error)
	go func() {
		for {
			c, err := u.AcceptUnix()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		give(t, int(f.Fd()), 1)
		f.Close()
	}
	first := <-accepted // the next one waits for the receiver of this channel
	go func() {
		for c := range accepted {
			_ = Close(c)
		}
	}()
	within5s(t, "close", func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		_ = Close(first)
	})
	close(accepted)
}

// The same holds in a process whose threads block the signal, as those of the C libraries do.
func TestBlockedSignal(t *testing.T) {
	runtime.LockOSThread() // and no UnlockOSThread: the thread ends with the goroutine
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, urgent(), nil); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^Test(CloseOf|ReadDrops)", "-test.count=1")
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1") // with which the runtime leaves the signal blocked
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A kernel that can, refuses descriptors for the sockets of a listener.
func TestRefuse(t *testing.T) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	u := Over(l)
	defer u.Close()
	c, err := net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := u.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer Close(s)
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, _ := s.SyscallConn()
	refuses := false
	_ = raw.Control(func(fd uintptr) {
		v, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, soPassRights)
		refuses = err == nil && v == 0
	})
	if !refuses {
		t.Skip("the kernel has no SO_PASSRIGHTS")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Sendmsg(int(f.Fd()), []byte("x"), unix.UnixRights(int(null.Fd())), nil, 0); err != unix.EPERM {
		t.Errorf("sending a descriptor: %v, want EPERM", err)
	}
}
