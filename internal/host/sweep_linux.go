package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// release frees a slot after its member has left or released it: at once if no process can own it any more, otherwise
// in a sweep.
func (l *leader) release(n int) {
	if l.shared() || !l.busy(n) {
		l.sendWills(n)
		l.free(n)
		return
	}
	l.sweep()
}

// free makes the socket of a slot drop everything, and discards its packets.
func (l *leader) free(n int) {
	l.table.free(n)
	l.resteer()
	_ = l.use(FirstSlot+n, func(fd int) {
		if !l.shared() {
			_ = refuse(fd)
		}
		setBuffer(fd, leastBuffer)
		drain(fd)
	})
	l.divide()
}

// sendWills sends the last wills of the process that had a slot.
func (l *leader) sendWills(n int) {
	if l.wills == nil {
		return
	}
	l.send(l.wills.collect(n, places))
}

// send sends last wills in a goroutine, because it takes some time. It waits for Start: the process sends nothing
// before.
func (l *leader) send(left []Will) {
	if len(left) == 0 || l.closed || l.cfg.Send == nil {
		return
	}
	l.done.Go(func() {
		select {
		case <-l.reading:
		case <-l.end:
		}
		select { // a leader that ends has both, and select chooses at random
		case <-l.reading:
			l.cfg.Send(left)
		default:
		}
	})
}

// leave ends a session.
func (l *leader) leave(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	services, groups := len(s.services), len(s.groups)
	for id := range s.services {
		l.foreign.CompareAndDelete(id, s)
	}
	l.forgetFormer(s)
	slots := l.table.remove(s)
	if s.will != nil {
		l.send(l.collectOf(s, slots))
		s.will.close()
		unix.Close(s.will.fd)
	}
	if l.closed { // the next leader uses the sockets already, and finds the slots and last wills of dead processes
		return
	}
	if services > 0 {
		l.resteer()
	}
	if groups > 0 {
		l.listMulticast()
	}
	for _, n := range slots {
		l.release(n)
	}
}

const (
	// memberWills limits the last wills of one member, if several users share the address. The members of one user, all
	// together, may leave userWills at once, and then one in each willPace: they need memory until they are sent.
	memberWills = 4096
	userWills   = 16 * memberWills
	willPace    = time.Second / (2 * memberWills)
)

// collectOf returns the last wills of a member of verbena serve who had these slots.
//
// +checklocks:l.mu
func (l *leader) collectOf(s *session, slots []int) (left []Will) {
	now := l.now()
	room := l.lastWills.room(s.of, now, willPace, userWills)
	if room <= 0 {
		return nil
	}
	all := s.will.collect(0, min(memberWills, room))
	l.lastWills.acts(s.of, now, willPace, len(all))
	for _, w := range all {
		if w.endsConnectionOf(slots) {
			left = append(left, w)
		}
	}
	return left
}

// takeOver reads the state of earlier leaders: each slot has an owner that is about to repeat its claim, or none.
func (l *leader) takeOver() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store.count() <= Strays {
		return unix.EPROTO
	}
	l.wide = true
	l.done.Go(l.settle)
	for n := range l.slotSockets() {
		l.table.slots[n].held = true
	}
	l.sweepOnce()
	l.sweep()
	return l.steer()
}

// settleTime is the time that the members have to repeat their claims to a new leader. Meanwhile requests for service
// IDs that it does not know arrive at the socket of QP 1.
const settleTime = time.Second

// settle ends that time.
func (l *leader) settle() {
	select {
	case <-time.After(settleTime):
	case <-l.end:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wide = false
	if !l.closed {
		l.resteer()
	}
}

// Times of a sweep, the search for slots whose owners have died. The kernel may release the lock of a killed process
// some time after it closes the connection to the leader, so there are several rounds, with pauses that grow to
// sweepLast while an owner is unknown.
const (
	sweepRounds = 16
	sweepFirst  = time.Millisecond
	sweepLast   = time.Second
)

// sweep starts to look for slots without an owner. mu is held.
func (l *leader) sweep() {
	l.sweepAgain = true
	if l.closed || l.sweeping {
		return
	}
	l.sweeping = true
	l.done.Go(l.sweepAll)
}

func (l *leader) sweepAll() {
	for round := 0; ; round++ {
		l.mu.Lock()
		if l.sweepAgain {
			l.sweepAgain, round = false, 0
		}
		if l.closed || l.sweepOnce() == 0 {
			l.sweeping = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		wait := sweepLast
		if round < sweepRounds {
			wait = min(wait, sweepFirst<<(round/2))
		}
		select {
		case <-time.After(wait):
		case <-l.end:
		}
	}
}

// sweepOnce frees the slots whose owners have ended, and returns the number of slots with unknown owners. If several
// users share the address there are none: release frees a slot at once.
func (l *leader) sweepOnce() (held int) {
	for n := range l.table.slots {
		switch {
		case !l.table.slots[n].held:
		case l.busy(n):
			held++
		default:
			l.sendWills(n)
			l.free(n)
		}
	}
	return held
}
