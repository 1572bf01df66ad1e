package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Join makes the process a member of the group of an address. If the group does not exist, Join opens its sockets and
// the process leads. It returns EACCES if the group belongs to another user. The caller starts and closes the group.
//
// If verbena serve shares the address among users, it leads. Otherwise processes of the same user elect the leader.
func Join(key Key, cfg Config) (*Group, error) {
	g := &Group{key: key, cfg: cfg, vault: -1, services: map[uint64]struct{}{}, groups: map[netip.Addr]struct{}{}}
	g.changed = sync.NewCond(&g.mu)
	for w := (waiting{key: key, begin: time.Now()}); ; sleepAbout(pause) {
		c, cred, err := key.dialServe()
		if errors.Is(err, unix.EAGAIN) && time.Since(w.begin) <= timeout {
			continue // others fill the queue of its socket
		}
		if err != nil {
			return nil, err
		}
		if c != nil {
			g.served = true
			err = g.join(c, cred)
			if errors.Is(err, errEnded) && time.Since(w.begin) <= timeout {
				g.served = false
				continue // it is just ending, or the processes of this user connect too often
			}
			return g, err
		}
		if !w.bound() {
			ln, err := key.listen()
			if err == nil {
				if w.refused = g.create(ln); w.refused == nil {
					return g, nil
				}
				ln.Close()
				if !errors.Is(w.refused, unix.EADDRINUSE) {
					return nil, w.refused
				}
			} else if !errors.Is(err, unix.EADDRINUSE) {
				return nil, fmt.Errorf("link/udp: sharing %v: %w", key.Addr, err)
			}
		}
		if c, cred, err = key.dial(); err == nil {
			err = g.join(c, cred)
		}
		if err == nil {
			return g, nil
		}
		if !again(err) {
			return nil, err
		}
		if err := w.over(); err != nil {
			return nil, err
		}
	}
}

// waiting is the state of a process that waits for a leader or for the port.
type waiting struct {
	key     Key
	begin   time.Time
	refused error     // of the last attempt to lead, if others had the port
	looked  time.Time // when bound last looked, and what it found
	holders int
	counted time.Time // when over last looked
	foreign int       // looks in a row at which another program had the port
}

// bound reports whether others still have the port, after an attempt to lead has failed for that. The process does not
// try to lead then: an attempt would keep the name from the members of the group, of whom one must lead.
func (w *waiting) bound() bool {
	if w.refused == nil {
		return false
	}
	if time.Since(w.looked) >= boundPause {
		found, _ := BoundTo(netip.AddrPortFrom(w.key.Addr, w.key.Port))
		w.looked, w.holders = time.Now(), len(found)
	}
	return w.holders > 0
}

// over returns the error that ends the wait, if it must end.
func (w *waiting) over() error {
	if w.refused != nil && time.Since(w.counted) > foreignPause {
		if !w.counted.IsZero() {
			if w.foreign++; w.key.maybeGroup() {
				w.foreign = 0
			}
		}
		w.counted = time.Now()
	}
	switch {
	case w.foreign < foreignLooks && time.Since(w.begin) <= timeout:
		return nil
	case w.refused != nil:
		return w.refused
	}
	return fmt.Errorf("link/udp: the processes that lead at %v end before they answer: %w", w.key.Addr, unix.ETIMEDOUT)
}

// again reports whether the leader was just ending, or is just starting.
func again(err error) bool {
	return errors.Is(err, errEnded) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN)
}

// sleepAbout sleeps for d/2 to 3d/2, so that processes do not retry in step.
func sleepAbout(d time.Duration) { time.Sleep(d/2 + rand.N(d)) }

// create creates the group, with this process as its leader.
func (g *Group) create(ln *listener) (err error) {
	v, err := newVault()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			v.close()
			g.drop()
		}
	}()
	fd, err := createWills(Slots)
	if err != nil {
		return err
	}
	if err = g.open(v.fd, fd); err != nil {
		return err
	}
	l := newLeader(g.key, &g.cfg, v, g.locks, g.wills)
	if err = l.grow(); err != nil {
		return err
	}
	g.lead(l, ln)
	return nil
}

// open takes over the descriptor of the memory of last wills and, if it succeeds, that of the vault.
func (g *Group) open(vault, wills int) (err error) {
	if g.locks, err = openLocks(wills); err != nil {
		return err
	}
	if g.wills, err = openWills(wills, Slots); err != nil {
		return err
	}
	g.vault = vault
	return nil
}

// drop releases the objects of open except the vault.
func (g *Group) drop() {
	if g.wills != nil {
		g.wills.close()
	}
	if g.locks != nil {
		g.locks.close()
	}
	g.wills, g.locks, g.vault = nil, nil, -1
}

// join makes this process a member of a group that has a leader.
//
// +checklocksignore: g is not shared yet.
func (g *Group) join(c *net.UnixConn, cred *unix.Ucred) (err error) {
	r := newRemote(g.key, c, cred, g.cfg.Deliver)
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	reply, fds, err := r.do(frame{kind: kindJoin, id: version, slot: -1})
	if err != nil {
		return err
	}
	want := 2
	if g.served {
		want = 1
	}
	switch {
	case reply.errno == unix.EMFILE:
		err = fmt.Errorf("link/udp: process %d, which leads at %v, has no descriptor left for one more process: raise "+
			"its ulimit -n: %w",
			cred.Pid, g.key.Addr, unix.EMFILE)
	case reply.errno == unix.EUSERS:
		err = fmt.Errorf("link/udp: the processes of user %d at %v are as many as verbena serve allows one user, %d: %w",
			unix.Geteuid(), g.key.Addr, userSessions, unix.EUSERS)
	case reply.errno != 0:
		err = fmt.Errorf("link/udp: process %d, which leads at %v, refuses: %w", cred.Pid, g.key.Addr, reply.errno)
	case len(fds) != want:
		err = fmt.Errorf("link/udp: process %d, which leads at %v, sent %d descriptors: must be %d: %w",
			cred.Pid, g.key.Addr, len(fds), want, unix.EPROTO)
	}
	if err != nil {
		dropFDs(fds)
		return err
	}
	if g.served {
		if g.wills, err = openWills(fds[0], 1); err != nil {
			closeFDs(fds)
			return err
		}
	} else if err = g.open(fds[0], fds[1]); err != nil {
		unix.Close(fds[0])
		g.drop()
		return err
	}
	g.up = r
	return nil
}
