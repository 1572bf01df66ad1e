package host

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A Slot is a QPN slot of this process and its socket. The caller owns the socket.
type Slot struct {
	N, FD int
}

// Claim claims QPN slot n, or a free one if n is negative. It returns EADDRINUSE if another process owns the slot,
// EUSERS if this process cannot have another one, and EDQUOT if its user cannot.
func (g *Group) Claim(n int) (Slot, error) {
	for begin := time.Now(); ; sleepAbout(pause) {
		reply, fds, up, err := g.request(frame{kind: kindClaim, slot: n})
		if err != nil {
			return Slot{}, err
		}
		if reply.errno != 0 || len(fds) != 1 {
			dropFDs(fds)
			if reply.errno == 0 {
				reply.errno = unix.EPROTO
			}
			return Slot{}, g.refused(reply.errno)
		}
		if g.locks == nil || g.locks.lock(int64(reply.slot)) {
			g.mu.Lock()
			g.slots = append(g.slots, reply.slot)
			moved := g.up != up
			g.mu.Unlock()
			if moved { // the leader that assigned it has ended
				_, _, _, _ = g.request(frame{kind: kindClaim, slot: reply.slot, resume: true})
			}
			return Slot{reply.slot, fds[0]}, nil
		}
		// Two successive leaders have assigned the slot to two processes.
		closeFDs(fds)
		_, _, _, _ = g.request(frame{kind: kindRelease, slot: reply.slot})
		if n >= 0 || time.Since(begin) > timeout {
			return Slot{}, g.refused(unix.EADDRINUSE)
		}
	}
}

// refused returns the error for the errno of a refused claim.
func (g *Group) refused(errno syscall.Errno) error {
	switch errno {
	case unix.EUSERS:
		return fmt.Errorf("link/udp: all %d QPN slots of %v are in use; a process has one or more: end processes that "+
			"use the address: %w",
			Slots, g.key.Addr, errno)
	case unix.EDQUOT:
		return fmt.Errorf("link/udp: the processes of this user have as many QPN slots of %v as verbena serve allows "+
			"one user, %d: %w",
			g.key.Addr, userSlots, errno)
	case unix.EADDRINUSE:
		return fmt.Errorf("link/udp: another process has the QPN slot at %v: %w", g.key.Addr, errno)
	case unix.EMFILE:
		if g.leads() {
			return fmt.Errorf("link/udp: a socket for %v: %w", g.key.Addr, errno)
		}
		return fmt.Errorf("link/udp: no more sockets at %v: the process that leads there has no descriptors left: raise its "+
			"limit: ulimit -n 1024, or LimitNOFILE= of systemd: %w", g.key.Addr, errno)
	}
	return fmt.Errorf("link/udp: a QPN slot of %v: %w", g.key.Addr, errno)
}

// leads reports whether this process leads.
func (g *Group) leads() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leader != nil
}

// Release releases a slot. The caller has closed its socket.
func (g *Group) Release(n int) {
	g.mu.Lock()
	g.slots = slices.DeleteFunc(g.slots, func(m int) bool { return m == n })
	g.mu.Unlock()
	if g.locks != nil {
		g.locks.unlock(int64(n))
	}
	_, _, _, _ = g.request(frame{kind: kindRelease, slot: n})
}

// ClaimService claims a service ID at the address of the group. It returns EADDRINUSE if another process, or another
// link of this one, has claimed it.
func (g *Group) ClaimService(id uint64) error {
	if g.locks != nil && !g.locks.lock(serviceLock(id)) {
		return unix.EADDRINUSE
	}
	g.mu.Lock()
	g.services[id] = struct{}{} // first, so that a new leader receives the claim too
	g.mu.Unlock()
	reply, _, _, err := g.request(frame{kind: kindListen, id: id, slot: -1})
	if err == nil && reply.errno != 0 {
		err = reply.errno
	}
	if err != nil {
		g.forget(id)
	}
	return err
}

func (g *Group) forget(id uint64) {
	g.mu.Lock()
	delete(g.services, id)
	g.mu.Unlock()
	if g.locks != nil {
		g.locks.unlock(serviceLock(id))
	}
}

// ReleaseService releases a service ID.
func (g *Group) ReleaseService(id uint64) {
	g.forget(id)
	_, _, _, _ = g.request(frame{kind: kindUnlisten, id: id, slot: -1})
}

// Enter subscribes to packets that arrive at the address for a multicast group; see Config.Loopback6. Entering again
// has no effect. The caller makes one call of Enter or Leave for a group at a time.
func (g *Group) Enter(a netip.Addr) error {
	g.mu.Lock()
	_, entered := g.groups[a]
	g.groups[a] = struct{}{}
	g.mu.Unlock()
	if entered {
		return nil
	}
	reply, _, _, err := g.request(frame{kind: kindEnter, addr: a, slot: -1})
	if err == nil && reply.errno != 0 {
		err = reply.errno
	}
	if err != nil {
		g.mu.Lock()
		delete(g.groups, a)
		g.mu.Unlock()
	}
	return err
}

// Leave ends the subscription of Enter. Without one it has no effect.
func (g *Group) Leave(a netip.Addr) {
	g.mu.Lock()
	_, entered := g.groups[a]
	delete(g.groups, a)
	g.mu.Unlock()
	if !entered {
		return
	}
	_, _, _, _ = g.request(frame{kind: kindLeave, addr: a, slot: -1})
}

// Multicast returns the IPv6 groups that processes have joined, or nil if this process does not read the socket of QP
// 1.
func (g *Group) Multicast() []netip.Addr {
	g.mu.Lock()
	l := g.leader
	g.mu.Unlock()
	if l == nil {
		return nil
	}
	return *l.multicast.Load()
}

// MailDropped returns how many packets for other processes were dropped because these did not take them.
func (g *Group) MailDropped() uint64 {
	g.mu.Lock()
	l := g.leader
	g.mu.Unlock()
	if l == nil {
		return 0
	}
	return l.sorter.dropped.Load()
}

// Forward forwards a packet, BTH to pad, that arrived at a socket shared with other processes. It returns false if
// the caller keeps the packet.
func (g *Group) Forward(m Mail) bool {
	g.mu.Lock()
	up, l := g.up, g.leader
	mine := false
	if a, ok := addressOf(m.Packet); !ok {
		mine = true
	} else if a.Slot >= 0 {
		mine = slices.Contains(g.slots, a.Slot)
	} else {
		_, mine = g.services[a.Service]
	}
	g.mu.Unlock()
	multicast := wire.BTH(m.Packet).DestQPN() == wire.MulticastQPN
	switch {
	case mine && !multicast:
		return false
	case l != nil:
		return l.forward(m)
	case up != nil && !multicast:
		up.mail(m)
	}
	return true
}

// Screen reports whether a datagram for QP 1 is a request for another process, and whether it is dropped because that
// process gets too many.
func (g *Group) Screen(mad []byte) (foreign, drop bool) {
	if l := g.screens.Load(); l != nil {
		return l.screen(mad)
	}
	return false, false
}

// Board returns the board of this process, by which the leader drops requests for it; nil without one.
func (g *Group) Board() *board.Board {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.region(); n >= 0 {
		return g.wills.board(n)
	}
	return nil
}

// region returns the number of the region of last wills that this process has; -1: none.
//
// +checklocks:g.mu
func (g *Group) region() int {
	switch {
	case g.wills == nil || len(g.slots) == 0:
		return -1
	case g.served:
		return 0
	}
	return g.slots[0]
}

// NewPlace reserves an empty place for the last will of a connection to a peer. It returns nil if none is free.
func (g *Group) NewPlace(to netip.Addr, tclass, hopLimit uint8, pkey uint16) *Place {
	g.mu.Lock()
	region := g.region()
	g.mu.Unlock()
	if region < 0 {
		return nil
	}
	return g.wills.newPlace(region, Will{To: to.WithZone(""), TClass: tclass, HopLimit: hopLimit, PKey: pkey})
}
