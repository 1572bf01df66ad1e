package host

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A full queue of connections of verbena serve does not end the attempt to join at once.
func TestJoinDuringConnections(t *testing.T) {
	key, s, _ := testServer(t)
	path := s.ln.Addr().String()
	end := make(chan struct{})
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				var fds []int
				for range 200 {
					fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
					if err != nil {
						break
					}
					_ = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
					fds = append(fds, fd)
				}
				closeFDs(fds)
			}
		})
	}
	time.Sleep(time.Second)
	for range 5 {
		begin := time.Now()
		g, err := Join(key, Config{Open: opener(key), Deliver: func(Mail) {}})
		switch {
		case err == nil:
			g.Close()
		// Others: too many of this user, or a leader that is too busy to answer.
		case errors.Is(err, unix.EAGAIN) && time.Since(begin) < timeout:
			t.Error(err)
		}
	}
	close(end)
	flood.Wait()
}

// Processes of a user who connect too often are not served, at no cost for others. Join tries again.
func TestConnectTooOften(t *testing.T) {
	key, s, _ := testServer(t)
	start := time.Now()
	var later atomic.Int64 // ns since start
	s.leader.mu.Lock()
	s.leader.now = func() time.Time { return start.Add(time.Duration(later.Load())) }
	s.leader.mu.Unlock()
	served := 0
	for range burst + 10 {
		c, _, err := key.dialServe()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write((&frame{kind: kindJoin, id: version + 1, slot: -1}).bytes())
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := c.Read(make([]byte, maxFrame)); err == nil && n > 0 {
			served++
		}
		c.Close()
	}
	if served != burst {
		t.Errorf("%d connections served, want %d", served, burst)
	}
	time.AfterFunc(100*time.Millisecond, func() { later.Store(int64(time.Second)) })
	g, err := Join(key, Config{Open: opener(key), Deliver: func(Mail) {}})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
}

// The connections of one user do not count for others.
func TestAdmitsByUser(t *testing.T) {
	l := newLeader(Key{}, &Config{}, &openStore{}, nil, nil)
	now := time.Now()
	l.now = func() time.Time { return now }
	for i := range burst + 1 {
		if got := l.admits(&unix.Ucred{Uid: 1}, -1); got != (i < burst) {
			t.Fatalf("connection %d: %v", i, got)
		}
	}
	if !l.admits(&unix.Ucred{Uid: 2}, -1) {
		t.Error("another user is not admitted")
	}
	now = now.Add(connectPace)
	if !l.admits(&unix.Ucred{Uid: 1}, -1) || l.admits(&unix.Ucred{Uid: 1}, -1) {
		t.Error("after a pace: not one connection")
	}
	own := uint32(unix.Geteuid())
	self := unix.Ucred{Uid: own, Pid: int32(unix.Getpid())}
	if !l.admits(&self, int(own)) || l.admits(&unix.Ucred{Uid: own + 1}, int(own)) {
		t.Error("a leader of one user serves others")
	}
}
