package host

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/board"
)

// Limits of claims. extraSlots limits the slots of all members beyond their first ones, so that at least
// Slots - extraSlots members get one each.
const (
	extraSlots      = 48
	memberSlots     = 16
	memberServices  = 4096
	memberMulticast = 256
	// Limits for the members of one user, if several users share the address.
	userSlots     = Slots / 2
	userServices  = 4 * memberServices
	userMulticast = 4 * memberMulticast
	userSessions  = Slots / 2
)

// A session is the state of a member at its leader.
type session struct {
	uid  uint32
	of   uint32 // the user whose limits count, from table.add on
	pid  int32
	send func(frame []byte) bool // delivers mail without blocking, and reports whether there was room
	will *wills                  // of this member, if several users share the address

	screen atomic.Pointer[board.Screen] // of its requests; nil: all are passed on

	slots    []int
	services map[uint64]struct{}
	groups   map[netip.Addr]struct{}

	queue   [][]byte // mail; guarded by sorter.mu
	inTurns bool     // the session is in sorter.turns; guarded by sorter.mu
}

// slotState is the state of one slot at the leader.
type slotState struct {
	owner *session
	held  bool   // the owner is unknown to this leader, or has just ended
	freed uint64 // value of table.clock when it became free
	user  int64  // the only user that can have it, if several share the address; -1: any

	confined bool // the socket passes only packets of the slot, if several users share the address
}

// A table records the owners of slots and service IDs, and the members of multicast groups. It does no I/O. The
// caller serializes calls of its methods.
type table struct {
	shared  bool                // among several users
	account func(uint32) uint32 // the user whose limits count for a user

	slots    [Slots]slotState
	had      map[uint32]int // slots that were assigned, by session.of
	sessions map[*session]struct{}
	services map[uint64]*session
	claimed  []uint64 // the keys of services, in order
	groups   map[netip.Addr]map[*session]struct{}

	clock uint64 // of slotState.freed
}

func newTable(shared bool) *table {
	t := &table{
		shared: shared, account: func(uid uint32) uint32 { return uid },
		had: map[uint32]int{}, sessions: map[*session]struct{}{}, services: map[uint64]*session{},
		groups: map[netip.Addr]map[*session]struct{}{},
	}
	for i := range t.slots {
		t.slots[i].user = -1
	}
	return t
}

// add admits a session. It returns EUSERS if the user of the session has too many.
func (t *table) add(s *session) syscall.Errno {
	s.of = t.account(s.uid)
	if t.shared && t.count(s.of, func(*session) int { return 1 }) >= userSessions {
		return syscall.EUSERS
	}
	s.services, s.groups = map[uint64]struct{}{}, map[netip.Addr]struct{}{}
	t.sessions[s] = struct{}{}
	return 0
}

// count returns the sum of f over the sessions that count for a user.
func (t *table) count(of uint32, f func(*session) int) (n int) {
	for s := range t.sessions {
		if s.of == of {
			n += f(s)
		}
	}
	return n
}

// remove ends a session, and returns the slots that it owned, which are held now.
func (t *table) remove(s *session) (slots []int) {
	slots = s.slots
	for _, n := range slots {
		t.slots[n].owner, t.slots[n].held = nil, true
	}
	for id := range s.services {
		delete(t.services, id)
	}
	if len(s.services) > 0 {
		t.claimed = slices.DeleteFunc(t.claimed, func(id uint64) bool { return t.services[id] == nil })
	}
	for a := range s.groups {
		t.leave(s, a)
	}
	s.slots = nil
	delete(t.sessions, s)
	return slots
}

// free marks a slot as free.
func (t *table) free(n int) {
	t.clock++
	t.slots[n].owner, t.slots[n].held, t.slots[n].freed = nil, false, t.clock
}

// owned returns the number of slots that are owned or held.
func (t *table) owned() (n int) {
	for i := range t.slots {
		if t.slots[i].owner != nil || t.slots[i].held {
			n++
		}
	}
	return n
}

// ownedSlots returns the slots that are owned or held.
func (t *table) ownedSlots() (all []idRange) {
	for i := range t.slots {
		n := uint32(i)
		switch {
		case t.slots[i].owner == nil && !t.slots[i].held:
		case len(all) > 0 && all[len(all)-1].last+1 == n:
			all[len(all)-1].last = n
		default:
			all = append(all, idRange{n, n})
		}
	}
	return all
}

// extra returns the number of slots of sessions beyond their first ones.
func (t *table) extra() (n int) {
	for s := range t.sessions {
		n += max(0, len(s.slots)-1)
	}
	return n
}

// allowed returns 0 if a session may have one more slot, otherwise the errno.
func (t *table) allowed(s *session) syscall.Errno {
	switch {
	case len(s.slots) >= memberSlots, len(s.slots) > 0 && t.extra() >= extraSlots:
		return syscall.EUSERS
	case t.shared && t.count(s.of, func(s *session) int { return len(s.slots) }) >= userSlots:
		return syscall.EDQUOT
	}
	return 0
}

// mayHave reports whether a session may have a slot that is free.
func (t *table) mayHave(s *session, n int) bool {
	st := &t.slots[n]
	return st.owner == nil && !st.held && (!t.shared || st.user < 0 || st.user == int64(s.uid))
}

// exceeds reports whether a slot would be one too many of those that the user of a session has had. No other user gets
// these, so a user who claims and releases one after another would get all.
func (t *table) exceeds(s *session, n int) bool {
	return t.shared && t.slots[n].user < 0 && t.had[s.of] >= userSlots
}

// candidate returns the free slot among the first count ones to assign to a session, -1 if there is none: slots that
// the user has had before come first, then those that have been free for longest. busy reports whether a slot has an
// owner that the table does not know.
func (t *table) candidate(s *session, count int, busy func(int) bool) int {
	best := -1
	for n := range count {
		if !t.mayHave(s, n) || t.exceeds(s, n) || busy(n) {
			continue
		}
		if best < 0 || t.slots[n].user >= 0 && t.slots[best].user < 0 ||
			(t.slots[n].user >= 0) == (t.slots[best].user >= 0) && t.slots[n].freed < t.slots[best].freed {
			best = n
		}
	}
	return best
}

// assign makes a session the owner of a slot.
func (t *table) assign(s *session, n int) {
	st := &t.slots[n]
	st.owner, st.held = s, false
	if t.shared && st.user < 0 {
		st.user = int64(s.uid)
		t.had[s.of]++
	}
	s.slots = append(s.slots, n)
}

// has reports whether a session owns a slot.
func (t *table) has(s *session, n int) bool { return n >= 0 && t.slots[n].owner == s }

// unassign ends the ownership of a slot, which is held now.
func (t *table) unassign(s *session, n int) {
	for i, have := range s.slots {
		if have == n {
			s.slots = append(s.slots[:i:i], s.slots[i+1:]...)
		}
	}
	t.slots[n].owner, t.slots[n].held = nil, true
}

// listen makes a session the owner of a service ID.
func (t *table) listen(s *session, id uint64) syscall.Errno {
	switch owner := t.services[id]; {
	case owner == s:
		return 0
	case owner != nil:
		return syscall.EADDRINUSE
	case len(s.services) >= memberServices:
		return syscall.EUSERS
	case t.shared && t.count(s.of, func(s *session) int { return len(s.services) }) >= userServices:
		return syscall.EDQUOT
	}
	t.services[id], s.services[id] = s, struct{}{}
	i, _ := slices.BinarySearch(t.claimed, id)
	t.claimed = slices.Insert(t.claimed, i, id)
	return 0
}

// unlisten reports whether the session has owned the service ID.
func (t *table) unlisten(s *session, id uint64) bool {
	if t.services[id] != s {
		return false
	}
	delete(t.services, id)
	delete(s.services, id)
	i, _ := slices.BinarySearch(t.claimed, id)
	t.claimed = slices.Delete(t.claimed, i, i+1)
	return true
}

// enter makes a session a member of a multicast group.
func (t *table) enter(s *session, a netip.Addr) syscall.Errno {
	if _, in := s.groups[a]; in {
		return 0
	}
	switch {
	case len(s.groups) >= memberMulticast:
		return syscall.EUSERS
	case t.shared && t.count(s.of, func(s *session) int { return len(s.groups) }) >= userMulticast:
		return syscall.EDQUOT
	}
	if t.groups[a] == nil {
		t.groups[a] = map[*session]struct{}{}
	}
	t.groups[a][s], s.groups[a] = struct{}{}, struct{}{}
	return 0
}

func (t *table) leave(s *session, a netip.Addr) {
	delete(s.groups, a)
	delete(t.groups[a], s)
	if len(t.groups[a]) == 0 {
		delete(t.groups, a)
	}
}

// route returns the session that a packet is for, nil if its address is not claimed.
func (t *table) route(pkt []byte) *session {
	a, ok := addressOf(pkt)
	switch {
	case !ok:
		return nil
	case a.Slot < 0:
		return t.services[a.Service]
	}
	return t.slots[a.Slot].owner
}
