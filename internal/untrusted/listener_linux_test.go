package untrusted

import (
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/untrusted/lingering"
)

// admitting returns a listener that serves only connections at which admit is set, and its address.
func admitting(t *testing.T, admit *atomic.Bool) (*Listener, *net.UnixAddr) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	u := Over(l)
	u.Admit = func(cred *unix.Ucred) bool { return int(cred.Pid) == unix.Getpid() && admit.Load() }
	t.Cleanup(func() { u.Close() })
	return u, l.Addr().(*net.UnixAddr)
}

func dial(t *testing.T, at *net.UnixAddr) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A listener ends connections that it does not serve, and returns the next one that it does, whose bytes are intact.
func TestAdmit(t *testing.T) {
	var admit atomic.Bool
	u, at := admitting(t, &admit)
	refused, turn := 0, u.Admit
	u.Admit = func(cred *unix.Ucred) bool {
		ok := turn(cred)
		if !ok {
			if refused++; refused == 10 {
				admit.Store(true)
			}
		}
		return ok
	}
	var strangers []*net.UnixConn
	for i := range 10 {
		c := dial(t, at)
		if i%2 == 0 {
			_, _ = c.Write([]byte("x"))
		}
		strangers = append(strangers, c)
	}
	last := dial(t, at)
	if _, err := last.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	c, err := u.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := Read(c, b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if _, err := c.Write([]byte("bye")); err != nil {
		t.Error(err)
	}
	if n, err := last.Read(b); err != nil || string(b[:n]) != "bye" {
		t.Errorf("%q, %v", b[:n], err)
	}
	_ = Close(c)
	for _, s := range strangers {
		_ = s.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := s.Read(b); err == nil || errors.Is(err, unix.ETIMEDOUT) {
			t.Errorf("a connection that is not served: %v", err)
		}
	}
}

// Connections that are not served do not hold up others, whatever descriptors their peers have sent: also behind
// messages without descriptors or without bytes.
func TestDropIsNotHeldUp(t *testing.T) {
	lingering.OldKernel(t, &Refuse)
	var admit atomic.Bool
	u, at := admitting(t, &admit)
	for i := range 6 {
		c := dial(t, at)
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []string{"", "x"}[:i%3] {
			if err := unix.Send(int(f.Fd()), []byte(b), 0); err != nil {
				t.Fatal(err)
			}
		}
		give(t, int(f.Fd()), 1)
		f.Close()
	}
	go func() {
		time.Sleep(100 * time.Millisecond)
		admit.Store(true)
		c, err := net.DialUnix("unixpacket", nil, at)
		if err == nil {
			time.Sleep(linger)
			c.Close()
		}
	}()
	within5s(t, "accept", func() {
		c, err := u.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		_ = Close(c)
	})
	within5s(t, "close", func() { _ = u.Close() })
}

// end reports messages with descriptors, and no others.
func TestEnd(t *testing.T) {
	for _, test := range []struct {
		messages []string // "fd": one with a descriptor
		want     bool
	}{
		{nil, true},
		{[]string{""}, true},
		{[]string{"x", "", "yz"}, true},
		{[]string{"fd"}, false},
		{[]string{"", "fd"}, false},
		{[]string{"x", "", "fd"}, false},
	} {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range test.messages {
			var rights []byte
			if m == "fd" {
				m, rights = "", unix.UnixRights(p[0])
			}
			if err := unix.Sendmsg(p[1], []byte(m), rights, nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := end(p[0]); got != test.want {
			t.Errorf("%q: %v", test.messages, got)
		}
		if err := unix.Send(p[1], []byte("x"), unix.MSG_NOSIGNAL); err != unix.EPIPE {
			t.Errorf("sending afterwards: %v, want EPIPE", err)
		}
		unix.Close(p[0])
		unix.Close(p[1])
	}
}
