package host

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/untrusted"
	"github.com/verbena-rdma/verbena/internal/untrusted/lingering"
)

// giveSockets sends a leader sockets whose close waits for a minute, on many connections. It returns when the leader
// has them, or their connections wait to be accepted.
func giveSockets(t *testing.T, key Key, dial func() (int, error)) {
	t.Helper()
	join := (&frame{kind: kindJoin, id: version, slot: -1}).bytes()
	for i := range 12 {
		fd, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_ = unix.Send(fd, join, unix.MSG_NOSIGNAL)
		}
		release, err := lingering.Give(fd, 2, time.Minute)
		t.Cleanup(release)
		if err != nil && err != unix.EPIPE && err != unix.ECONNRESET { // the leader has closed it because of the first
			t.Fatal(err)
		}
		if i%3 == 0 {
			unix.Close(fd)
			continue
		}
		t.Cleanup(func() { unix.Close(fd) })
	}
}

// A member of verbena serve that sends sockets delays neither other members nor the end of the leader.
func TestServeIsSentSockets(t *testing.T) {
	lingering.OldKernel(t, &untrusted.Refuse)
	key, s, _ := testServer(t)
	first, _ := newHostile(t, key)
	giveSockets(t, key, func() (int, error) {
		c, _, err := key.dialServe()
		if err != nil {
			return -1, err
		}
		f, err := c.File()
		if err != nil {
			return -1, err
		}
		defer c.Close()
		defer f.Close()
		return unix.Dup(int(f.Fd()))
	})
	lingering.Limited(t, "a member", func() {
		first.ask(frame{kind: kindClaim, slot: -1})
		testMember(t, key).claim(t, -1)
	})
	lingering.Limited(t, "the end of serve", s.Close)
}

// Neither does another process that connects to the leader of a user.
func TestLeaderIsSentSockets(t *testing.T) {
	lingering.OldKernel(t, &untrusted.Refuse)
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	leads := testMember(t, key)
	<-leads.led
	giveSockets(t, key, func() (int, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: key.name()})
		}
		return fd, err
	})
	lingering.Limited(t, "a member", func() { testMember(t, key).claim(t, -1) })
	lingering.Limited(t, "the end of the leader", leads.Close)
}
