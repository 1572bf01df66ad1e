package host

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/peeruser"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// A listener is the socket that members connect to.
type listener struct {
	*untrusted.Listener
	uid int // the only user that may connect; -1: any user that the file permissions admit
}

// backlog is the length of the queue of a listener. The honest wait for all that is in it, and longer in a long one
// than by trying again.
const backlog = 256

// listenerOver returns a listener for the processes of a user; -1: of any user.
func listenerOver(l *net.UnixListener, uid int) *listener {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Listen(int(fd), backlog) }) // else it is longer
	}
	return &listener{Listener: untrusted.Over(l), uid: uid}
}

// serve accepts members until the listener is closed.
func (l *leader) serve(ln *listener) {
	l.done.Go(func() { l.sorter.run(l.end) })
	ln.Admit = func(cred *unix.Ucred) bool { return l.admits(cred, ln.uid) }
	spare := openSpare()
	defer func() { closeFDs([]int{spare}) }()
	for {
		c, err := ln.AcceptUnix()
		switch {
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			closeFDs([]int{spare})
			if c, err := ln.AcceptUnix(); err == nil {
				reject(c, unix.EMFILE, time.Unix(1, 0))
				_ = untrusted.Close(c)
			}
			if spare = openSpare(); spare < 0 {
				time.Sleep(pause) // the member still waits to be accepted
			}
			continue
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(pause)
			continue
		}
		fdset.AddConn(c)
		if spare < 0 {
			spare = openSpare()
		}
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			_ = untrusted.Close(c)
			return
		}
		l.conns[c] = struct{}{}
		l.done.Go(func() { l.serveMember(c) })
		l.mu.Unlock()
	}
}

// openSpare opens the descriptor whose place makes room to send a new member an error; -1 if there is none.
var openSpare = func() int { // a test counts the calls
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fdset.Raise(fd)
}

// reject sends an error to a new member. It reads the request first, if that arrives in time: a member whose request
// arrives later sees a reset connection, and tries again. Nobody is accepted while the accept loop waits.
func reject(c *net.UnixConn, errno syscall.Errno, limit time.Time) {
	_ = c.SetReadDeadline(limit)
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, frameLen)
	_ = raw.Control(func(fd uintptr) { _, err = untrusted.ReadNow(int(fd), b) }) // whatever the limit
	if err == unix.EAGAIN {
		_, _ = untrusted.Read(c, b)
	}
	_ = c.SetWriteDeadline(time.Now().Add(rejectTimeout))
	_ = fdset.Send(c, (&frame{kind: kindReply, slot: -1, errno: errno}).bytes(), nil)
}

const (
	// rejectTimeout limits the wait for the request of a rejected member.
	rejectTimeout = 100 * time.Millisecond
	// maxRejects limits the members that are rejected at the same time, as each one takes a descriptor. The connections
	// of further ones are closed without an error, and Join tries again.
	maxRejects = 16
)

const (
	// If several users share the address, the members of one user, all together, may make burst requests at once, and
	// then one in each pace. A request takes the leader's lock, for which the mail of all members waits.
	burst = 256
	pace  = 200 * time.Microsecond
	// They may connect as often at once, and then once in each connectPace. Join tries again after a refusal.
	connectPace = time.Millisecond
)

// paces limit what the processes of each user do, all together. The key is the user; the value is the time when the
// whole burst is free again.
type paces map[uint32]time.Time

// due returns when the whole burst of a user is free again, at the earliest now.
func (p paces) due(uid uint32, now time.Time) time.Time {
	if due := p[uid]; due.After(now) {
		return due
	}
	return now
}

// wait returns how long the next action of a user waits.
func (p paces) wait(uid uint32, now time.Time, pace time.Duration) time.Duration {
	return max(0, p.due(uid, now).Sub(now)-(burst-1)*pace)
}

// act counts an action of a user.
func (p paces) act(uid uint32, now time.Time, pace time.Duration) { p.acts(uid, now, pace, 1) }

func (p paces) acts(uid uint32, now time.Time, pace time.Duration, n int) {
	p[uid] = p.due(uid, now).Add(time.Duration(n) * pace)
}

// room returns how many actions of a user, of whom burst may be at once, need not wait.
func (p paces) room(uid uint32, now time.Time, pace time.Duration, burst int) int {
	return burst - int((p.due(uid, now).Sub(now)+pace-1)/pace)
}

// wait returns how long the next request of a member waits for those of the same user.
func (l *leader) wait(s *session) time.Duration {
	if !l.shared() {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	wait := l.paces.wait(s.of, now, pace)
	l.paces.act(s.of, now, pace)
	return wait
}

// admits reports whether a process that connects is served: one of user uid or, if uid is -1, of a user who does not
// connect too often.
func (l *leader) admits(cred *unix.Ucred, uid int) bool {
	if uid >= 0 {
		return peeruser.Own(cred)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	of := l.table.account(cred.Uid)
	if l.connects.wait(of, now, connectPace) > 0 {
		return false
	}
	l.connects.act(of, now, connectPace)
	return true
}

// serveMember serves one member until its connection ends.
func (l *leader) serveMember(c *net.UnixConn) {
	defer func() {
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
		_ = untrusted.Close(c)
	}()
	cred, err := peeruser.Of(c)
	if err != nil {
		return
	}
	_ = c.SetWriteBuffer(memberBuffer / 2) // the kernel doubles it
	s := &session{uid: cred.Uid, pid: cred.Pid, send: sender(c)}
	l.mu.Lock()
	errno := l.table.add(s)
	l.mu.Unlock()
	if errno != 0 {
		select {
		case l.rejects <- struct{}{}:
			reject(c, errno, time.Now().Add(rejectTimeout))
			<-l.rejects
		default:
		}
		return
	}
	defer l.leave(s)
	buf := make([]byte, maxFrame+1)
	unread := false // the member may not have read the descriptors of an earlier reply
	for joined := false; ; {
		n, err := untrusted.Read(c, buf)
		if err != nil || n == 0 {
			return
		}
		time.Sleep(l.wait(s)) // mail, which is dropped then, counts as requests do
		if kind(buf[0]) == kindMail {
			l.takeMail(buf[:n], joined)
			continue
		}
		f, ok := parseFrame(buf[:n])
		if !ok || !joined && f.kind != kindJoin || f.kind == kindReply {
			return
		}
		joined = true
		reply, fds := l.handle(s, f)
		if len(fds) > 0 {
			if unread && l.shared() {
				l.awaitRead(c)
			}
			unread = true
		}
		err = fdset.Send(c, reply.bytes(), rightsOf(fds))
		if f.kind == kindClaim {
			closeFDs(fds)
		}
		if err != nil {
			return
		}
	}
}

// awaitRead waits until a member has read all that it was sent, or has left. The kernel limits the descriptors of a
// user that nobody has read (ulimit -n of the sender), here for all members: one that reads nothing may not have many.
// It looks less and less often, since a user may have many members that read nothing.
func (l *leader) awaitRead(c syscall.Conn) {
	raw, err := c.SyscallConn()
	for left, wait := 1, pause; err == nil && left > 0; wait = min(2*wait, longPause) {
		err = raw.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if left > 0 {
			select {
			case <-time.After(wait):
			case <-l.end:
				return
			}
		}
	}
}

// rightsOf returns a control message with descriptors, nil if there are none.
func rightsOf(fds []int) []byte {
	if len(fds) == 0 {
		return nil
	}
	return unix.UnixRights(fds...)
}

// sender returns a function that sends a frame on a connection unless that would block, and reports whether it was
// sent.
func sender(c *net.UnixConn) func([]byte) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return func([]byte) bool { return false }
	}
	return func(b []byte) bool {
		sent := false
		_ = raw.Control(func(fd uintptr) {
			sent = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) == nil
		})
		return sent
	}
}

// stop ends all sessions and the goroutines.
func (l *leader) stop() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.end)
	}
	for c := range l.conns { // serveMember closes them
		_, _ = c.CloseRead(), c.CloseWrite()
	}
	l.mu.Unlock()
	l.done.Wait()
}
