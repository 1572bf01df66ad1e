package iwtcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// SetKeepAlive makes TCP check the peer after each time idle without a segment, in whole seconds, at least 1; 0 ends
// that. A peer that does not answer keepCount checks of keepPause is lost, and so is one that has not acknowledged data
// for as long, idle included: TCP does not check while data is outstanding.
func (q *QP) SetKeepAlive(idle time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle = idle
	q.keepAlive()
}

const (
	keepCount = 5
	keepPause = 1 // s
	// maxKeepIdle is TCP's limit, s.
	maxKeepIdle = 32767
)

// keepAlive sets the options of the socket. Errors leave the check out.
//
// +checklocks:q.mu
func (q *QP) keepAlive() {
	if q.fd < 0 {
		return
	}
	on, patience := 0, 0
	if q.idle > 0 {
		s := min(int((q.idle+time.Second-1)/time.Second), maxKeepIdle)
		on, patience = 1, (s+keepCount*keepPause)*1000
		_ = unix.SetsockoptInt(q.fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, s)
		_ = unix.SetsockoptInt(q.fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepPause)
		_ = unix.SetsockoptInt(q.fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount)
	}
	_ = unix.SetsockoptInt(q.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, patience) // ms
	_ = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, on)
}
