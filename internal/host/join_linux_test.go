package host

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// memory returns n descriptors of memory for last wills with one region.
func memory(t *testing.T, n int) (fds []int) {
	t.Helper()
	for range n {
		fd, err := createWills(1)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// newMember returns a group as Join makes it, before it has joined.
func newMember(served bool) *Group {
	g := &Group{key: Key{Addr: netip.MustParseAddr("192.0.2.1")}, cfg: Config{Deliver: func(Mail) {}}, vault: -1,
		served: served, services: map[uint64]struct{}{}, groups: map[netip.Addr]struct{}{}}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// answerOne answers one request with a reply and descriptors, which it closes. A reply without a number gets that of
// the request.
func answerOne(t *testing.T, c *net.UnixConn, reply frame, fds []int) frame {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, maxFrame)
	n, err := c.Read(b)
	f, ok := parseFrame(b[:max(n, 0)])
	if err != nil || !ok {
		t.Errorf("%x, %v", b[:max(n, 0)], err)
	}
	reply.kind, reply.seq = kindReply, f.seq
	if _, _, err := c.WriteMsgUnix(reply.bytes(), rightsOf(fds), nil); err != nil {
		t.Error(err)
	}
	closeFDs(fds)
	return f
}

// TestRefusedJoinsSayWhy checks the error of a process that the leader refuses, or whose leader sends other descriptors
// than it should, and that the process keeps none of these.
func TestRefusedJoinsSayWhy(t *testing.T) {
	for _, c := range []struct {
		served bool
		errno  unix.Errno
		fds    int
		want   error
		text   string
	}{
		{false, unix.EMFILE, 0, unix.EMFILE, "process 77, which leads at 192.0.2.1, has no descriptor left for one more"},
		{true, unix.EUSERS, 0, unix.EUSERS, "are as many as verbena serve allows one user, 128"},
		{false, unix.EPROTO, 0, unix.EPROTO, "process 77, which leads at 192.0.2.1, refuses"},
		{false, unix.EPROTO, 2, unix.EPROTO, "refuses"},
		{true, 0, 2, unix.EPROTO, "sent 2 descriptors: must be 1"},
		{true, 0, 0, unix.EPROTO, "sent 0 descriptors: must be 1"},
		{false, 0, 1, unix.EPROTO, "sent 1 descriptors: must be 2"},
		{false, 0, 2, unix.EPROTO, "memory for last wills"}, // of another size
	} {
		member, leader := connPair(t)
		before := descriptors(t)
		done := make(chan frame, 1)
		fds := memory(t, c.fds)
		go func() { done <- answerOne(t, leader, frame{errno: c.errno, slot: -1}, fds) }()
		g := newMember(c.served)
		err := g.join(member, &unix.Ucred{Pid: 77})
		if f := <-done; f.kind != kindJoin || f.id != version || f.resume {
			t.Errorf("request %+v", f)
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c, err)
		}
		if g.up != nil || g.wills != nil || g.locks != nil || g.vault != -1 {
			t.Errorf("%+v: the group has parts of the refused one", c)
		}
		if n := descriptors(t); n > before-1 { // without the connection
			t.Errorf("%+v: %d descriptors, %d before", c, n, before)
		}
		leader.Close()
	}
}

// TestJoinOfAnEndingLeader checks that a leader that ends before it answers is one to look for again.
func TestJoinOfAnEndingLeader(t *testing.T) {
	member, leader := connPair(t)
	leader.Close()
	if err := newMember(false).join(member, &unix.Ucred{}); !again(err) {
		t.Errorf("%v", err)
	}
	for _, err := range []error{unix.ECONNREFUSED, unix.EAGAIN} {
		if !again(err) {
			t.Errorf("%v ends the search", err)
		}
	}
	for _, err := range []error{unix.EPROTO, unix.EACCES, os.ErrClosed} {
		if again(err) {
			t.Errorf("%v does not end the search", err)
		}
	}
}

// TestJoinOfServe checks that the memory that verbena serve sends becomes that of the member.
func TestJoinOfServe(t *testing.T) {
	member, leader := connPair(t)
	before := descriptors(t)
	done := make(chan frame, 1)
	fds := memory(t, 1)
	go func() { done <- answerOne(t, leader, frame{slot: -1}, fds) }()
	g := newMember(true)
	if err := g.join(member, &unix.Ucred{}); err != nil {
		t.Fatal(err)
	}
	<-done
	if g.up == nil || g.wills == nil || g.wills.num != 1 || g.locks != nil || g.vault != -1 {
		t.Errorf("%+v", g)
	}
	g.slots = []int{9}
	if p := g.NewPlace(peerAddr, 0, 0, 0); p == nil {
		t.Error("no place in the region of the member")
	}
	g.Close()
	if n := descriptors(t); n > before-1 {
		t.Errorf("%d descriptors, %d before: want one less", n, before)
	}
}

// TestEndOfTheWait checks how long a process waits for a leader, or for the port, and what it says then.
func TestEndOfTheWait(t *testing.T) {
	key := ownKey()
	w := waiting{key: key, begin: time.Now()}
	if err := w.over(); err != nil || w.bound() {
		t.Errorf("at first: %v", err)
	}
	w.begin = time.Now().Add(-timeout - time.Millisecond)
	if err := w.over(); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("after the time: %v, want ETIMEDOUT", err)
	}
	w.refused = unix.EADDRINUSE
	if err := w.over(); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("after the time, with another program at the port: %v, want EADDRINUSE", err)
	}
	// A socket of another program ends the wait after a number of looks.
	other, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(key.Addr, key.Port)))
	if err != nil {
		t.Fatal(err)
	}
	w = waiting{key: key, begin: time.Now().Add(time.Hour), refused: unix.EADDRINUSE}
	if !w.bound() || w.holders != 1 {
		t.Errorf("%d sockets at the port, want 1", w.holders)
	}
	look := func() error {
		if !w.counted.IsZero() {
			w.counted = w.counted.Add(-2 * foreignPause)
		}
		return w.over()
	}
	for i := range foreignLooks {
		if err := look(); err != nil {
			t.Errorf("after %d looks: %v", i, err)
		}
		w.counted = time.Now().Add(time.Hour)
		if err := w.over(); err != nil || w.foreign != i {
			t.Errorf("%d looks count after %d, %v: one before the pause counts", w.foreign, i+1, err)
		}
		w.counted = time.Now()
	}
	if err := look(); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("after %d looks: %v, want EADDRINUSE", foreignLooks, err)
	}
	other.Close()
	if err := look(); err != nil || w.foreign != 0 {
		t.Errorf("after the end of the other program: %v, %d looks count", err, w.foreign)
	}
	if w.looked = time.Now().Add(time.Hour); !w.bound() {
		t.Error("it looks at the port again before the pause")
	}
	if w.looked = time.Now().Add(-boundPause); w.bound() {
		t.Error("it does not look at the port after the pause")
	}
}
