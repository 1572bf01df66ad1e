package host

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"testing"
)

// TestClaimLimits checks the limits of slots, service IDs and multicast groups of a member and of a user. Other
// members still get some.
func TestClaimLimits(t *testing.T) {
	tab := newTable(true)
	claim := func(s *session) syscall.Errno {
		if errno := tab.allowed(s); errno != 0 {
			return errno
		}
		n := tab.candidate(s, Slots, func(int) bool { return false })
		if n < 0 {
			return syscall.ENOSPC
		}
		tab.assign(s, n)
		return 0
	}
	greedy, memberships := map[syscall.Errno]int{}, map[syscall.Errno]int{}
	for range userSessions + 10 {
		s := &session{uid: 1}
		if errno := tab.add(s); errno != 0 {
			greedy[errno]++
			continue
		}
		for range memberSlots + 1 {
			if errno := claim(s); errno != 0 {
				break
			}
		}
		for id := range uint64(memberServices + 1) {
			if errno := tab.listen(s, uint64(len(tab.sessions))<<32|id); errno != 0 && id < memberServices &&
				errno != syscall.EDQUOT {
				t.Fatalf("service %d: %v", id, errno)
			}
		}
		for i := range memberMulticast + 1 {
			var a [16]byte
			a[0] = 0xff
			binary.BigEndian.PutUint32(a[12:], uint32(i))
			errno := tab.enter(s, netip.AddrFrom16(a))
			if errno != syscall.EDQUOT && (errno != 0) != (i == memberMulticast) {
				t.Fatalf("group %d: %v", i, errno)
			}
			memberships[errno]++
		}
	}
	if greedy[syscall.EUSERS] != 10 {
		t.Errorf("refused: %v", greedy)
	}
	if n := tab.owned(); n != userSlots {
		t.Errorf("one user has %d slots", n)
	}
	if n := len(tab.services); n != userServices {
		t.Errorf("one user has %d services", n)
	}
	if n := memberships[0]; n != userMulticast {
		t.Errorf("the members of one user are in %d multicast groups together", n)
	}
	other := &session{uid: 2}
	if errno := tab.add(other); errno != 0 {
		t.Fatal(errno)
	}
	if errno := claim(other); errno != 0 {
		t.Errorf("another user: %v", errno)
	}
	if errno := tab.listen(other, 7); errno != 0 {
		t.Errorf("another user: %v", errno)
	}
}

// TestSlotsStayWithTheirUser checks that a slot of one user is never assigned to another user: the first one may have
// kept the socket.
func TestSlotsStayWithTheirUser(t *testing.T) {
	tab := newTable(true)
	a, b := &session{uid: 1}, &session{uid: 2}
	tab.add(a)
	none := func(int) bool { return false }
	n := tab.candidate(a, 4, none)
	tab.assign(a, n)
	tab.remove(a)
	tab.free(n)
	tab.add(b)
	if tab.mayHave(b, n) {
		t.Error("another user may have it")
	}
	for range 3 {
		m := tab.candidate(b, 4, none)
		if m < 0 || m == n {
			t.Fatalf("slot %d", m)
		}
		tab.assign(b, m)
	}
	if m := tab.candidate(b, 4, none); m >= 0 {
		t.Errorf("slot %d", m)
	}
	a = &session{uid: 1}
	tab.add(a)
	if m := tab.candidate(a, 4, none); m != n {
		t.Errorf("slot %d instead of %d, which the user had before", m, n)
	}
}

// TestSlotsOfRoot checks that the slots that a user has had come first for user 0 too, and that those which another
// process owns are passed over.
func TestSlotsOfRoot(t *testing.T) {
	tab := newTable(true)
	root := &session{uid: 0}
	tab.add(root)
	none := func(int) bool { return false }
	tab.assign(root, 2)
	tab.assign(root, 3)
	for _, n := range []int{3, 2} {
		tab.unassign(root, n)
		tab.free(n)
	}
	if len(root.slots) != 0 {
		t.Errorf("slots %v after all were released", root.slots)
	}
	if n := tab.candidate(root, 8, none); n != 3 {
		t.Errorf("slot %d instead of 3, which was free for longest of those that root has had", n)
	}
	if n := tab.candidate(root, 8, func(n int) bool { return n < 4 }); n < 4 {
		t.Errorf("slot %d, which another process owns", n)
	}
	if n := tab.candidate(root, 8, func(int) bool { return true }); n != -1 {
		t.Errorf("slot %d, though all have owners", n)
	}
}

// TestLongestFreeSlotComesFirst checks the order in which slots are assigned to processes of one user: the packets of
// the last owner of a slot may still be under way.
func TestLongestFreeSlotComesFirst(t *testing.T) {
	none := func(int) bool { return false }
	for _, shared := range []bool{false, true} {
		tab := newTable(shared)
		s := &session{uid: 1}
		tab.add(s)
		for n := range 4 {
			if got := tab.candidate(s, 6, none); got != n {
				t.Errorf("shared %v: slot %d, want %d, the first one without an owner", shared, got, n)
			}
			tab.assign(s, n)
		}
		for _, n := range []int{2, 0, 3, 1} {
			tab.unassign(s, n)
			tab.free(n)
		}
		want := []int{4, 5, 2, 0, 3, 1} // those that nobody has had were free for longest
		if shared {
			want = []int{2, 0, 3, 1, 4, 5}
		}
		for _, n := range want {
			got := tab.candidate(s, 6, none)
			if got != n {
				t.Errorf("shared %v: slot %d, want %d", shared, got, n)
			}
			tab.assign(s, got)
		}
		if got := tab.candidate(s, 6, none); got != -1 {
			t.Errorf("shared %v: slot %d though all have an owner", shared, got)
		}
		// A slot of another user is not for this one, if several share the address.
		other := &session{uid: 2}
		tab.add(other)
		tab.unassign(s, 3)
		tab.free(3)
		want[0] = 3
		if shared {
			want[0] = -1
		}
		if got := tab.candidate(other, 6, none); got != want[0] || tab.mayHave(other, 3) == shared {
			t.Errorf("shared %v: another user gets slot %d", shared, got)
		}
	}
}

// TestLimitsOfOneUser checks the limits of members that all belong to one user, without verbena serve.
func TestLimitsOfOneUser(t *testing.T) {
	tab := newTable(false)
	for range 3 * userSessions {
		if errno := tab.add(&session{}); errno != 0 {
			t.Fatal(errno)
		}
	}
	n := 0
	claim := func(s *session) syscall.Errno {
		errno := tab.allowed(s)
		if errno == 0 {
			tab.assign(s, n)
			n++
		}
		return errno
	}
	for range extraSlots / (memberSlots - 1) { // members with as many slots as possible
		s := &session{}
		tab.add(s)
		for i := range memberSlots + 1 {
			if errno := claim(s); (errno != 0) != (i == memberSlots) || errno != 0 && errno != syscall.EUSERS {
				t.Fatalf("slot %d of a member: %v", i, errno)
			}
		}
	}
	s := &session{}
	tab.add(s)
	const left = extraSlots % (memberSlots - 1)
	for i := range left + 2 {
		if errno := claim(s); (errno != 0) != (i > left) || errno != 0 && errno != syscall.EUSERS {
			t.Errorf("slot %d of the last member: %v with %d beyond the first ones", i, errno, tab.extra())
		}
	}
	for range 4 {
		s := &session{}
		tab.add(s)
		if errno := claim(s); errno != 0 {
			t.Errorf("a first slot: %v", errno)
		}
		if errno := claim(s); errno != syscall.EUSERS {
			t.Errorf("a second slot: %v", errno)
		}
	}
	for id := range uint64(memberServices + 1) {
		errno := tab.listen(s, id)
		if (errno != 0) != (id == memberServices) || errno != 0 && errno != syscall.EUSERS {
			t.Fatalf("service %d: %v", id, errno)
		}
	}
	if errno := tab.listen(s, 5); errno != 0 {
		t.Errorf("a service ID that the member has: %v", errno)
	}
	if errno := tab.listen(&session{}, 5); errno != syscall.EADDRINUSE {
		t.Errorf("a service ID of another member: %v", errno)
	}
	if !slices.IsSorted(tab.claimed) || len(tab.claimed) != memberServices {
		t.Errorf("%d service IDs in the filter", len(tab.claimed))
	}
	tab.unlisten(&session{}, 5)
	if tab.services[5] != s {
		t.Error("another member released the service ID")
	}
	tab.unlisten(s, 5)
	if _, listed := slices.BinarySearch(tab.claimed, 5); listed || len(tab.claimed) != memberServices-1 ||
		len(s.services) != memberServices-1 {
		t.Error("a released service ID is in the filter")
	}
	tab.remove(s)
	if len(tab.claimed) != 0 || len(tab.services) != 0 {
		t.Errorf("%d service IDs after the end of the member", len(tab.claimed))
	}
}

// TestReleasedSlotLeavesTheOthers checks that a session keeps its other slots.
func TestReleasedSlotLeavesTheOthers(t *testing.T) {
	tab := newTable(false)
	s := &session{}
	tab.add(s)
	for n := range 3 {
		tab.assign(s, n)
	}
	tab.unassign(s, 1)
	if !slices.Equal(s.slots, []int{0, 2}) || tab.has(s, 1) || !tab.has(s, 2) || tab.has(s, -1) {
		t.Errorf("slots %v", s.slots)
	}
	if tab.mayHave(s, 1) {
		t.Error("a slot that is held is free")
	}
}

// TestUserKeepsFewSlots checks that a user does not get all slots for ever by claiming and releasing one after another:
// a slot stays with the user that has had it.
func TestUserKeepsFewSlots(t *testing.T) {
	tab := newTable(true)
	greedy, other := &session{uid: 1}, &session{uid: 2}
	tab.add(greedy)
	tab.add(other)
	for n := range Slots {
		if tab.exceeds(greedy, n) {
			continue
		}
		tab.assign(greedy, n)
		tab.unassign(greedy, n)
		tab.free(n)
	}
	none := func(int) bool { return false }
	if n := tab.candidate(greedy, Slots, none); n < 0 || n >= userSlots {
		t.Errorf("the user gets slot %d", n)
	}
	if n := tab.candidate(other, Slots, none); n < userSlots {
		t.Errorf("another user gets slot %d", n)
	}
}

// Subordinate users count for their owner, but get no slots of each other.
func TestLimitsOfSubordinateUsers(t *testing.T) {
	tab := newTable(true)
	tab.account = func(uid uint32) uint32 { return uid / 100 }
	var all []*session
	for i := range uint32(userSessions + 1) {
		s := &session{uid: 100 + i%100}
		if errno := tab.add(s); (errno != 0) != (i == userSessions) {
			t.Fatalf("member %d: %v", i, errno)
		}
		all = append(all, s)
	}
	if errno := tab.add(&session{uid: 200}); errno != 0 {
		t.Errorf("a member of another user: %v", errno)
	}
	n := 0
	for ; n < userSlots; n++ {
		s := all[n%userSessions]
		if errno := tab.allowed(s); errno != 0 {
			break
		}
		tab.assign(s, n)
	}
	if n != userSlots || tab.allowed(all[0]) == 0 || !tab.exceeds(all[1], n) {
		t.Errorf("%d slots of subordinate users of one", n)
	}
	tab.unassign(all[0], 0)
	tab.free(0)
	if tab.mayHave(all[1], 0) || !tab.mayHave(all[0], 0) {
		t.Error("a subordinate user gets the slot of another one")
	}
}

// FuzzTable makes arbitrary requests in arbitrary order.
func FuzzTable(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x10\x11\x12\x20\x21\x30\x41\x52\x63"), true)
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz"), false)
	f.Fuzz(func(t *testing.T, ops []byte, shared bool) {
		tab := newTable(shared)
		var all [8]*session
		for i, op := range ops {
			k := int(op) % len(all)
			s := all[k]
			if s == nil {
				s = &session{uid: uint32(k / 3)}
				if tab.add(s) == 0 {
					all[k] = s
				}
				continue
			}
			arg := 0
			if i > 0 {
				arg = int(ops[i-1])
			}
			switch op / 8 % 8 {
			case 0, 1:
				if n := tab.candidate(s, 40, func(int) bool { return false }); n >= 0 && tab.allowed(s) == 0 {
					tab.assign(s, n)
				}
			case 2:
				if tab.has(s, arg) {
					tab.unassign(s, arg)
					tab.free(arg)
				}
			case 3:
				tab.listen(s, uint64(arg%9))
			case 4:
				tab.unlisten(s, uint64(arg%9))
			case 5:
				tab.enter(s, netip.AddrFrom4([4]byte{239, 0, 0, byte(arg % 5)}))
			case 6:
				tab.leave(s, netip.AddrFrom4([4]byte{239, 0, 0, byte(arg % 5)}))
			case 7:
				for _, n := range tab.remove(s) {
					tab.free(n)
				}
				all[k] = nil
			}
			check(t, tab)
		}
	})
}

// check checks that the parts of a table are consistent.
func check(t *testing.T, tab *table) {
	t.Helper()
	owned := 0
	for s := range tab.sessions {
		owned += len(s.slots)
		for _, n := range s.slots {
			if tab.slots[n].owner != s || tab.shared && tab.slots[n].user != int64(s.uid) {
				t.Fatalf("slot %d: %+v", n, tab.slots[n])
			}
		}
		for id := range s.services {
			if tab.services[id] != s {
				t.Fatalf("service %d", id)
			}
		}
		for a := range s.groups {
			if _, in := tab.groups[a][s]; !in {
				t.Fatalf("group %v", a)
			}
		}
		if len(s.slots) > memberSlots {
			t.Fatalf("%d slots", len(s.slots))
		}
	}
	if n := tab.owned(); n != owned || tab.extra() > extraSlots {
		t.Fatalf("%d slots are owned, of sessions %d; %d extra", n, owned, tab.extra())
	}
	for id, s := range tab.services {
		if _, in := s.services[id]; !in {
			t.Fatalf("service %d", id)
		}
	}
	for a, in := range tab.groups {
		for s := range in {
			if _, ok := tab.sessions[s]; !ok || len(in) == 0 {
				t.Fatalf("group %v", a)
			}
		}
	}
}

// TestOwnedSlots checks the ranges of slots that have an owner, or may have one.
func TestOwnedSlots(t *testing.T) {
	tab, s := newTable(false), &session{}
	want := func(what string, all ...idRange) {
		t.Helper()
		if got := tab.ownedSlots(); !slices.Equal(got, all) {
			t.Errorf("%s: %v, want %v", what, got, all)
		}
	}
	want("no owner")
	for _, n := range []int{0, 1, 2, 7, Slots - 1} {
		tab.assign(s, n)
	}
	want("five", idRange{0, 2}, idRange{7, 7}, idRange{Slots - 1, Slots - 1})
	tab.unassign(s, 1)
	want("one is held", idRange{0, 2}, idRange{7, 7}, idRange{Slots - 1, Slots - 1})
	tab.free(1)
	want("it is free", idRange{0, 0}, idRange{2, 2}, idRange{7, 7}, idRange{Slots - 1, Slots - 1})
}
