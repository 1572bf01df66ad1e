package host

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
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
			l.startReading()
			return
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
		if !g.elect() {
			return
		}
	}
}

// elect finds the next leader: the process that binds the name, which may be this one. It returns false if the group
// was closed.
func (g *Group) elect() bool {
	for ; !g.isClosed(); sleepAbout(pause) {
		if ln, err := g.key.listen(); err == nil {
			if g.takeOver(ln) {
				return true
			}
			ln.Close()
			continue
		}
		c, cred, err := g.key.dial()
		if err != nil {
			continue
		}
		r := newRemote(g.key, c, cred, g.cfg.Deliver)
		reply, fds, err := r.do(frame{kind: kindJoin, id: version, slot: -1, resume: true})
		dropFDs(fds)
		if err == nil && reply.errno == 0 && g.resume(r) {
			g.mu.Lock()
			g.up = r
			g.changed.Broadcast()
			g.mu.Unlock()
			return true
		}
		r.close()
	}
	return false
}

// takeOver makes this process the leader of a group whose leader has ended. It reports whether that succeeded.
func (g *Group) takeOver(ln *listener) bool {
	fd, err := unix.FcntlInt(uintptr(g.vault), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	v, err := openVault(fd)
	if err != nil {
		unix.Close(fd)
		return false
	}
	l := newLeader(g.key, &g.cfg, v, g.locks, g.wills)
	if err := l.takeOver(); err != nil {
		l.stop()
		v.close()
		return false
	}
	g.lead(l, ln)
	return true
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
