package iwtcp

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mr"
)

// sockets is the number of sockets of the process.
func sockets(t *testing.T) (n int) {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	for _, e := range dir {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// Peers that do not close their side after the end of a connection keep a bounded number of descriptors, those of one
// host a part of it.
func TestPeersThatDoNotCloseTheirSide(t *testing.T) {
	const connections, places, share = 20, 8, 2
	defer func(f func() *waiting) { lingering = f }(lingering)
	w := newWaiting(places)
	lingering = func() *waiting { return w }
	for _, patience := range []time.Duration{time.Hour, 0} {
		w.limit(places, share, patience)
		before := sockets(t)
		for range connections {
			q, _, _ := responder(t, func(bool) {})
			q.Disconnect()
			q.Destroy()
		}
		most := before + connections + share // the peers' are of this process, too
		until(t, fmt.Sprintf("at most %d sockets", most), func() bool { return sockets(t) <= most })
		w.reach(t, "127.0.0.1", share)
	}
}

// The timer of a connection that has ended does not end the next one of the QP, whose socket may have the same number.
func TestLateTimerOfAnEndedConnection(t *testing.T) {
	q, _, _ := responder(t, func(bool) {})
	q.mu.Lock()
	old := q.m
	q.mu.Unlock()
	q.Reset()
	if err := q.Init(mr.RemoteRead); err != nil {
		t.Fatal(err)
	}
	startResponder(t, q, func(bool) {})
	q.Disconnect() // its own timer runs
	q.cut(old)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fd < 0 || q.timer == nil {
		t.Errorf("socket %d, timer %v", q.fd, q.timer)
	}
}
