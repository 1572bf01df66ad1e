package host

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// lead makes this process the leader, which serves the members at once, before Start too: two processes that have not
// started may each lead at an address at which the other one waits. mu is not held.
func (g *Group) lead(l *leader, ln *listener) {
	s := &session{uid: uint32(ln.uid)}
	l.mu.Lock()
	l.table.add(s)
	l.local = s
	l.mu.Unlock()
	up := &local{l, s}
	g.resume(up)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.up, g.leader, g.listener = up, l, ln
	g.screens.Store(l)
	g.changed.Broadcast()
	if !g.closed { // otherwise Stop closes ln
		g.done.Go(func() { l.serve(ln) })
	}
}

// run follows leaders one after another, and leads if this process is elected.
func (g *Group) run() {
	for {
		g.mu.Lock()
		up, l, closed := g.up, g.leader, g.closed
		g.mu.Unlock()
		switch {
		case closed:
			return
		case l != nil:
			if l.startReading() == nil {
				return
			}
			sleepAbout(longPause) // the process may close a descriptor, and nobody else leads
			continue
		}
		<-up.ended()
		g.mu.Lock()
		g.up = nil
		closed = g.closed
		g.mu.Unlock()
		up.close()
		if closed {
			return
		}
		if g.served {
			if g.cfg.Lost != nil {
				g.cfg.Lost(fmt.Errorf("link/udp: verbena serve, which shared %v, has ended: %w", g.key.Addr, unix.ENETDOWN))
			}
			return
		}
		if g.elect(time.Time{}) != nil {
			return
		}
	}
}

// elect finds the next leader: the process that binds the name, which may be this one. It fails if the group is closed
// or, unless limit is zero, at that time: with the reason why this process cannot lead, if there is one.
func (g *Group) elect(limit time.Time) error {
	var reason error = unix.ENETDOWN
	wait := pause
	for ; !g.isClosed(); sleepAbout(wait) {
		if !limit.IsZero() && time.Now().After(limit) {
			return reason
		}
		ln, err := g.key.listen()
		switch {
		case err == nil:
			if err = g.takeOver(ln); err == nil {
				return nil
			}
			ln.Close()
			reason, wait = err, min(2*wait, longPause) // meanwhile another process may lead
		case !errors.Is(err, unix.EADDRINUSE):
			reason = err
		}
		if g.follow() {
			return nil
		}
	}
	return unix.ENETDOWN
}

// follow joins the group of the next leader. It reports whether there is one.
func (g *Group) follow() bool {
	c, cred, err := g.key.dial()
	if err != nil {
		return false
	}
	r := newRemote(g.key, c, cred, g.cfg.Deliver)
	reply, fds, err := r.do(frame{kind: kindJoin, id: version, slot: -1, resume: true})
	dropFDs(fds)
	if err != nil || reply.errno != 0 || !g.resume(r) {
		r.close()
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.up = r
	g.changed.Broadcast()
	return true
}

// takeOver makes this process the leader of a group whose leader has ended.
func (g *Group) takeOver(ln *listener) error {
	fd, err := fdset.Dup(g.vault)
	if err != nil {
		return fmt.Errorf("link/udp: the sockets of %v: %w", g.key.Addr, err)
	}
	v, err := openVault(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	l := newLeader(g.key, &g.cfg, v, g.locks, g.wills)
	if err := l.takeOver(); err != nil {
		l.stop()
		v.close()
		return err
	}
	g.lead(l, ln)
	return nil
}

// resume repeats the claims of this process to a new leader. It reports whether the leader received all of them.
func (g *Group) resume(up uplink) bool {
	g.mu.Lock()
	slots := slices.Clone(g.slots)
	var frames []frame
	for id := range g.services {
		frames = append(frames, frame{kind: kindListen, id: id, slot: -1, resume: true})
	}
	for a := range g.groups {
		frames = append(frames, frame{kind: kindEnter, addr: a, slot: -1, resume: true})
	}
	g.mu.Unlock()
	for _, n := range slots {
		frames = append(frames, frame{kind: kindClaim, slot: n, resume: true})
	}
	for _, f := range frames {
		if _, fds, err := up.do(f); err != nil {
			dropFDs(fds)
			return false
		}
	}
	return true
}
