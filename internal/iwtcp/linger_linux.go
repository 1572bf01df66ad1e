package iwtcp

import (
	"io"
	"os"
	"sync"
	"time"
)

// lingering holds the sockets without a QP that wait until their peers close their side: at most a quarter of the
// descriptors of the process. A source has a part of these places, so that peers that never close their side take no
// more.
var lingering = sync.OnceValue(func() *waiting { return newWaiting(maxWaiting) })

// linger leaves the socket, whose end was sent, to a goroutine. If it were closed with unread data, TCP would reset the
// connection, and drop what the peer has not received. Without a place the socket is closed nevertheless.
//
// +checklocks:q.mu
func (q *QP) linger() {
	s := os.NewFile(uintptr(q.fd), "tcp")
	q.loop.remove(q.fd)
	q.countStream(&q.counters)
	q.closeNear()
	q.fd = -1
	q.report()
	all := lingering()
	w := all.enter(s, q.trace.remote.Addr())
	if w == nil {
		_ = s.Close()
		return
	}
	_ = s.SetReadDeadline(time.Now().Add(endTime))
	go func() {
		_, _ = io.Copy(io.Discard, s)
		all.leave(w)
		_ = s.Close()
	}()
}
