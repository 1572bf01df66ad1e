package host

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// An uplink connects a member to its leader. One goroutine at a time may call its methods, except mail.
type uplink interface {
	// do makes a request. It returns errEnded if the leader has ended.
	do(f frame) (reply frame, fds []int, err error)
	// mail sends a packet for another process, unless that would block.
	mail(m Mail)
	// ended returns a channel that is closed when the leader has ended, nil if the leader is this process.
	ended() <-chan struct{}
	close()
}

var errEnded = errors.New("the leader has ended")

// remote is the uplink to another process.
type remote struct {
	key     Key
	c       *net.UnixConn
	pid     int32
	put     func([]byte) bool
	seq     uint32
	replies chan answer
	expired atomic.Uint32 // number of the last request that has timed out
	limit   time.Duration // of the reply
	over    chan struct{}
	done    sync.WaitGroup
}

type answer struct {
	f   frame
	fds []int
	cut bool // this process had no room for all descriptors
}

func newRemote(key Key, c *net.UnixConn, cred *unix.Ucred, deliver func(Mail)) *remote {
	r := &remote{key: key, c: c, pid: cred.Pid, put: sender(c), replies: make(chan answer, 1), limit: timeout,
		over: make(chan struct{})}
	r.done.Go(func() { r.read(deliver) })
	return r
}

func (r *remote) read(deliver func(Mail)) {
	defer close(r.over)
	buf, oob := make([]byte, maxFrame+1), make([]byte, unix.CmsgSpace(4*chunk))
	for {
		n, fds, cut, err := receive(r.c, buf, oob)
		if err != nil || n == 0 {
			dropFDs(fds)
			return
		}
		if m, ok := parseMail(buf[:n]); ok {
			dropFDs(fds)
			deliver(m)
			continue
		}
		f, ok := parseFrame(buf[:n])
		if !ok || f.kind != kindReply {
			dropFDs(fds)
			return
		}
		switch {
		case f.seq == unawaited:
			dropFDs(fds)
			continue
		case f.seq != 0 && f.seq <= r.expired.Load():
			r.tooLate(answer{f, fds, cut})
			continue
		}
		select {
		case old := <-r.replies: // the request has timed out
			r.tooLate(old)
		default:
		}
		r.replies <- answer{f, fds, cut}
	}
}

// receive waits for a message. The caller owns its descriptors; cut reports that some are missing.
func receive(c *net.UnixConn, buf, oob []byte) (n int, fds []int, cut bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, nil, false, err
	}
	e := raw.Read(func(fd uintptr) bool {
		fdset.Opening()
		defer fdset.Opened()
		var oobn, flags int
		for err = unix.EINTR; err == unix.EINTR; {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), buf, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		}
		cut = flags&unix.MSG_CTRUNC != 0
		if err == nil {
			fds, err = rights(oob[:oobn])
		}
		return err != unix.EAGAIN
	})
	if e != nil {
		return 0, nil, false, e
	}
	return n, fds, cut, err
}

// unawaited is the number of each request whose reply is not waited for.
const unawaited = 1<<32 - 1

// undo revokes a request that has timed out, since a stopped leader answers it when it continues. That of a claim is
// revoked once the reply tells the slot.
func (r *remote) undo(f frame) {
	r.expired.Store(f.seq)
	switch f.kind {
	case kindListen:
		f.kind = kindUnlisten
	case kindEnter:
		f.kind = kindLeave
	default:
		return
	}
	f.seq = unawaited
	r.put(f.bytes())
}

// tooLate drops the reply to a request that has timed out, or has failed for want of descriptors. The caller of a claim
// does not know that it has a slot, so the slot is released.
func (r *remote) tooLate(a answer) {
	claimed := a.f.errno == 0 && a.f.slot >= 0 && (len(a.fds) > 0 || a.cut)
	dropFDs(a.fds)
	if claimed {
		r.put((&frame{kind: kindRelease, seq: unawaited, slot: a.f.slot}).bytes())
	}
}

func (r *remote) do(f frame) (frame, []int, error) {
	r.seq++
	f.seq = r.seq
	limit := time.NewTimer(r.limit)
	defer limit.Stop()
	_ = r.c.SetWriteDeadline(time.Now().Add(r.limit))
	if err := fdset.Send(r.c, f.bytes(), nil); err != nil && !isTimeout(err) {
		select {
		case <-r.over:
		case <-limit.C:
		}
		return r.lastWord()
	}
	for {
		select {
		case a := <-r.replies:
			if a.f.seq == f.seq || a.f.seq == 0 { // 0: the leader rejected the connection
				return r.whole(a)
			}
			r.tooLate(a)
		case <-r.over:
			return r.lastWord()
		case <-limit.C:
			r.undo(f)
			return frame{}, nil, fmt.Errorf("link/udp: process %d, which leads at %v, has not answered for %v (is it "+
				"stopped?): "+
				"continue or end it: %w", r.pid, r.key.Addr, r.limit, unix.ETIMEDOUT)
		}
	}
}

// lastWord returns the reply that precedes the end of the connection, which may give the reason, or errEnded.
func (r *remote) lastWord() (frame, []int, error) {
	select {
	case a := <-r.replies:
		return r.whole(a)
	default:
		return frame{}, nil, errEnded
	}
}

// whole returns a reply, or an error if not all of its descriptors are here.
func (r *remote) whole(a answer) (frame, []int, error) {
	if !a.cut {
		return a.f, a.fds, nil
	}
	r.tooLate(a)
	return frame{}, nil, fmt.Errorf("link/udp: this process has no descriptor left for the sockets of %v: raise its "+
		"limit: ulimit -n 1024: %w", r.key.Addr, unix.EMFILE)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func (r *remote) mail(m Mail) {
	if b := m.bytes(); b != nil {
		r.put(b)
	}
}

func (r *remote) ended() <-chan struct{} { return r.over }

// depart ends the requests, and waits until the leader has ended the session: it closes its end after that.
func (r *remote) depart() {
	if r.c.CloseWrite() != nil {
		return
	}
	limit := time.NewTimer(r.limit)
	defer limit.Stop()
	select {
	case <-r.over:
	case <-limit.C:
	}
}

func (r *remote) close() {
	r.c.Close()
	r.done.Wait()
	select {
	case a := <-r.replies:
		dropFDs(a.fds)
	default:
	}
}

// local is the uplink of the leader's own process.
type local struct {
	l *leader
	s *session
}

func (o *local) do(f frame) (frame, []int, error) {
	reply, fds := o.l.handle(o.s, f)
	return reply, fds, nil
}

func (o *local) mail(m Mail)            {}
func (o *local) ended() <-chan struct{} { return nil }
func (o *local) close()                 {}
