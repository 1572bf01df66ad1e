package host

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// die ends the locks and the connection of a member, as the death of its process does. Its last wills stay.
func (g *testGroup) die() {
	g.mu.Lock()
	up, _ := g.up.(*remote)
	g.closed = true // it does not look for another leader
	g.mu.Unlock()
	up.c.Close()
	time.Sleep(5 * time.Millisecond) // the leader notices the end of the connection before that of the locks
	g.unlock()
}

// TestLastWillsAreSentByTheLeader checks that the leader sends the last wills of a member once: the newest datagram
// of each connection.
func TestLastWillsAreSentByTheLeader(t *testing.T) {
	key, leader := testLeader(t)
	leader.claim(t, -1)
	leader.NewPlace(peerAddr, 0, 0, 0).Set([]byte("the leader lives"))
	for range 2 {
		g := testMember(t, key)
		g.claim(t, 7)
		said := g.NewPlace(peerAddr, 3, 64, 0x8003)
		said.Set([]byte("a datagram that is much longer"))
		said.Set([]byte("the last will"))
		gone := g.NewPlace(peerAddr, 0, 0, 0)
		gone.Set([]byte("not to be sent"))
		g.NewPlace(peerAddr, 0, 0, 0) // still empty
		gone.Drop()
		long := g.NewPlace(netip.IPv6Loopback(), 0, 0, 0)
		if long.n != gone.n {
			t.Errorf("place %d, not %d, which is free", long.n, gone.n)
		}
		long.Set(bytes.Repeat([]byte{9}, 2*MaxWill))
		g.die()
		select {
		case left := <-leader.sent:
			if len(left) != 2 || left[0].To != peerAddr || left[0].TClass != 3 || left[0].HopLimit != 64 ||
				left[0].PKey != 0x8003 || left[1].PKey != 0 ||
				string(left[0].MAD) != "the last will" || left[1].To != netip.IPv6Loopback() ||
				!bytes.Equal(left[1].MAD, bytes.Repeat([]byte{9}, MaxWill)) {
				t.Errorf("sent: %v", left)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no last wills were sent")
		}
	}
	select {
	case left := <-leader.sent:
		t.Errorf("sent again: %v", left)
	default:
	}
}

// TestClosingLeavesNoWill checks that a process that closes the device leaves no last wills, and that its places
// cannot be used afterwards.
func TestClosingLeavesNoWill(t *testing.T) {
	key, leader := testLeader(t)
	g := testMember(t, key)
	g.claim(t, 7)
	p := g.NewPlace(peerAddr, 0, 0, 0)
	p.Set([]byte("never mind"))
	g.Stop()
	p.Set([]byte("too late"))
	p.Drop()
	if g.NewPlace(peerAddr, 0, 0, 0) != nil {
		t.Error("a place of a closed group")
	}
	next := testMember(t, key)
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := next.Claim(7); err == nil {
			break
		} else if time.Since(begin) > 10*time.Second {
			t.Fatal(err)
		}
	}
	if len(leader.sent) > 0 {
		t.Errorf("sent: %v", <-leader.sent)
	}
}

// TestEveryWillIsCollected checks that last wills are collected whatever the order in which they were set, up to the
// limit, and once.
func TestEveryWillIsCollected(t *testing.T) {
	w, err := openWills(memory(t, 1)[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(w.fd)
	defer w.close()
	if w.newPlace(1, Will{To: peerAddr}) != nil {
		t.Error("a place in a region that does not exist")
	}
	var all []*Place
	for range 5 {
		all = append(all, w.newPlace(0, Will{To: peerAddr}))
	}
	set := func() {
		for _, n := range []int{3, 0, 4, 1} {
			all[n].Set([]byte{'a' + byte(n)})
		}
	}
	for most, want := range map[int]string{10: "abde", 4: "abde", 3: "abd", 1: "a"} {
		set()
		got := ""
		for _, b := range w.collect(0, most) {
			got += string(b.MAD)
		}
		if got != want || len(w.collect(0, most)) != 0 {
			t.Errorf("at most %d: %q, want %q", most, got, want)
		}
	}
	if cap := len(w.header) / 8; cap < Slots {
		t.Errorf("the header has room for %d regions", cap)
	}
}

// TestPlacesRunOut checks that a full region has no place until one is freed.
func TestPlacesRunOut(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	g := testMember(t, ownKey())
	g.claim(t, -1)
	var last *Place
	for i := range places {
		if last = g.NewPlace(peerAddr, 0, 0, 0); last == nil {
			t.Fatalf("no place %d", i)
		}
	}
	if g.NewPlace(peerAddr, 0, 0, 0) != nil {
		t.Error("more places than there are")
	}
	last.Set([]byte("x"))
	last.Drop()
	if g.NewPlace(peerAddr, 0, 0, 0) == nil {
		t.Error("no place after one was freed")
	}
}

// TestInvalidLastWills checks that only valid last wills are read from memory with arbitrary content, which any
// member can write.
func TestInvalidLastWills(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	g := testMember(t, ownKey())
	mem, err := g.wills.mapRegion(3)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(mem)
	for _, count := range []uint64{1, places, places + 1, 1<<63 | 5, 1<<64 - 1} {
		g.wills.count(3).Store(count)
		left := g.wills.collect(3, 100)
		if uint64(len(left)) > min(count, 100) {
			t.Errorf("count %#x: %d wills", count, len(left))
		}
		for _, b := range left {
			if len(b.MAD) > MaxWill || !b.To.IsValid() {
				t.Fatalf("%+v", b)
			}
		}
	}
}

// TestWillsMustBeSealed checks that memory that could shrink under its readers is refused.
func TestWillsMustBeSealed(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	if _, err := openWills(fd, Slots); err == nil {
		t.Error("unsealed memory of length 0 was accepted")
	}
	if err := unix.Ftruncate(fd, willsLen(Slots)); err != nil {
		t.Fatal(err)
	}
	if _, err := openWills(fd, Slots); err == nil {
		t.Error("memory without seals was accepted")
	}
}

// TestForeignWillsAreNotSent checks that, among several users, a last will is sent only if it ends a connection of
// the member itself.
func TestForeignWillsAreNotSent(t *testing.T) {
	mad := func(class byte, attr uint16, slot byte) []byte {
		b := make([]byte, MaxWill)
		b[0], b[MADClass], b[MADLocalID] = 1, class, slot
		binary.BigEndian.PutUint16(b[MADAttr:], attr)
		return b
	}
	older := mad(ClassCM, attrDREQ, 5)
	older[0] = 0
	for _, x := range []struct {
		mad  []byte
		want bool
	}{
		{mad(ClassCM, attrDREQ, 5), true},
		{mad(ClassCM, attrREJ, 6), true},
		{mad(ClassCM, attrDREQ, 7), false},
		{mad(ClassCM, AttrREQ, 5), false},
		{mad(4, attrDREQ, 5), false},
		{mad(ClassCM, attrDREP, 5), true},
		{mad(ClassCM, 0x100|attrDREQ, 5), false},
		{older, false},
		{mad(ClassCM, attrDREQ, 5)[:20], false},
		{nil, false},
	} {
		if got := (&Will{MAD: x.mad}).endsConnectionOf([]int{5, 6}); got != x.want {
			t.Errorf("%x: %v", x.mad, got)
		}
	}
}

// TestClosingLeavesWillsOfOthers checks that a process which has stopped, and is closed later, leaves the last wills
// of the process that has its slot by then.
func TestClosingLeavesWillsOfOthers(t *testing.T) {
	fd, err := createWills(Slots)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	open := func() *wills {
		w, err := openWills(fd, Slots)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	first, second := open(), open()
	first.newPlace(7, Will{To: peerAddr}).Set([]byte("first"))
	first.clear()
	if n := second.count(7).Load(); n != 0 {
		t.Errorf("%d last wills of a process that has stopped", n)
	}
	second.newPlace(7, Will{To: peerAddr}).Set([]byte("second"))
	first.close()
	if left := open().collect(7, 10); len(left) != 1 || string(left[0].MAD) != "second" {
		t.Errorf("left: %v", left)
	}
	second.close()
}

// TestPlacesForgetEarlierOwners checks that a reserved place that was never set holds nothing, although an earlier
// owner of the region has left its last wills there.
func TestPlacesForgetEarlierOwners(t *testing.T) {
	fd := memory(t, 1)[0]
	defer unix.Close(fd)
	var all [2]*wills
	for i := range all {
		w, err := openWills(fd, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		all[i] = w
	}
	before, after := all[0], all[1]
	for _, mad := range []string{"old 0", "old 1"} {
		before.newPlace(0, Will{To: peerAddr}).Set([]byte(mad))
	}
	if n := len(before.collect(0, places)); n != 2 {
		t.Fatalf("%d last wills of the first owner, want 2", n)
	}
	after.newPlace(0, Will{To: peerAddr}) // of a connection that has no last will yet
	after.newPlace(0, Will{To: peerAddr}).Set([]byte("new"))
	left := after.collect(0, places)
	if len(left) != 1 || string(left[0].MAD) != "new" {
		t.Errorf("last wills of the second owner: %v, want one", left)
	}
}
