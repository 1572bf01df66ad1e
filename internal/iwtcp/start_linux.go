package iwtcp

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// Start implements Starter.
func (q *QP) Start(c *Conn, ended func(silent bool)) error {
	fd, err := takeSocket(c)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.State() != transport.Init || q.dead || q.SendCQ.Broken() || q.RecvCQ.Broken() {
		_ = unix.Close(fd)
		return transport.ErrState
	}
	q.machine(c.Params)
	q.fd, q.ended, q.params, q.near = fd, ended, c.Params, near{}
	q.keepAlive()
	q.traceBegin(c)
	q.state.Store(uint32(transport.RTS))
	q.Up.StateChanged(transport.RTS)
	if err := q.loop.add(q, fd); err != nil {
		q.ended = nil
		q.m.OnEOF()
		q.m.OnPosted()
		q.close()
		return err
	}
	q.Memory.RLock()
	q.traceData(false, c.rest)
	q.m.Feed(c.rest)
	q.Memory.RUnlock()
	q.drive()
	if c.Params.Initiator {
		q.nudge(0)
	} else if c.Params.RTR == 0 {
		q.release()
	}
	return nil
}

// nudges are the pauses before an initiator looks whether it has sent anything since: the first look is after 10 ms,
// the others may send a nudge, after 50 ms, 250 ms and 1.25 s. Tests change them.
var nudges = [...]time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond, time.Second}

// nudge makes the machine send a nudge after a pause without messages of this side.
//
// +checklocks:q.mu
func (q *QP) nudge(n int) {
	m := q.m
	time.AfterFunc(nudges[n], func() { q.onNudge(m, n) })
}

// onNudge ends pause n of a connection, unless the QP has another one.
func (q *QP) onNudge(m *iwarp.QP, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.m != m || q.fd < 0 {
		return
	}
	if m.Nudge() {
		q.drive()
	}
	if n+1 < len(nudges) {
		q.nudge(n + 1)
	}
}

// releaseTime is how long a responder waits for the initiator's first message, in a connection without peer-to-peer
// mode, before it sends its own. Tests change it.
var releaseTime = time.Second

// release lets a responder send first if the initiator has the reply and sends nothing.
//
// +checklocks:q.mu
func (q *QP) release() {
	m := q.m
	time.AfterFunc(releaseTime, func() { q.onRelease(m) })
}

// onRelease ends the wait of a connection, unless the QP has another one.
func (q *QP) onRelease(m *iwarp.QP) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.m != m || q.fd < 0 {
		return
	}
	if n, err := unix.IoctlGetInt(q.fd, unix.SIOCOUTQ); err == nil && n > 0 {
		q.release() // the reply is not acknowledged
	} else if m.Release() {
		q.drive()
	}
}

// takeSocket takes the socket out of Go's poller.
func takeSocket(c *Conn) (fd int, err error) {
	defer c.tcp.Close()
	_ = c.tcp.SetNoDelay(true)
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(s uintptr) { fd, err = fdset.Dup(int(s)) }); e != nil {
		return -1, e
	}
	return fd, err
}
