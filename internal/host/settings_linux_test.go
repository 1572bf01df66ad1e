package host

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestNumbersOfASlot checks that QP numbers and communication IDs lead to their slot.
func TestNumbersOfASlot(t *testing.T) {
	for slot := range Slots {
		first, last := QPNs(slot)
		next, _ := QPNs(slot + 1)
		if SlotOf(first) != slot || SlotOf(last) != slot || next != last+1 || slot > 0 && SlotOf(first-1) != slot-1 {
			t.Fatalf("slot %d: QPNs %#x to %#x", slot, first, last)
		}
		prefix, bits := CommIDs(slot)
		if bits != SlotBits || int(prefix>>(32-bits)) != slot || prefix<<bits != 0 {
			t.Fatalf("slot %d: communication IDs %#x/%d", slot, prefix, bits)
		}
		if got := SocketOf(last - 1); got != FirstSlot+slot {
			t.Fatalf("slot %d: socket %d", slot, got)
		}
	}
	for _, qpn := range []uint32{wire.GSIQPN, wire.MulticastQPN} {
		if got := SocketOf(qpn); got != GSI {
			t.Errorf("QP %#x: socket %d", qpn, got)
		}
	}
}

// TestReleasedSlotIsFree checks that a released slot is neither locked nor owned: another process gets it.
func TestReleasedSlotIsFree(t *testing.T) {
	key, first := testLeader(t)
	second := testMember(t, key)
	for _, g := range []*testGroup{first, second, first} {
		g.claim(t, 7)
		if _, err := first.Claim(7); err == nil {
			t.Error("a slot with an owner was assigned")
		}
		g.Release(7)
		if g.locks.taken(7) {
			t.Error("the slot is locked after Release")
		}
	}
}

// TestShareOfTheBuffers checks that the sockets of all slots with an owner get buffers of the same size.
func TestShareOfTheBuffers(t *testing.T) {
	_, g := testLeader(t)
	g.leader.mu.Lock()
	g.leader.cfg.RecvBuffer = slotBuffers // the share of one slot is as large as the bound
	g.leader.mu.Unlock()
	size := func(s Slot) int {
		n, err := unix.GetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	shared := func() (sizes [2]int) {
		g.leader.mu.Lock()
		defer g.leader.mu.Unlock()
		for i, n := range []int{GSI, Strays} {
			if err := g.leader.use(n, func(fd int) { sizes[i] = size(Slot{FD: fd}) }); err != nil {
				t.Error(err)
			}
		}
		return sizes
	}
	before := shared()
	slots := []Slot{g.claim(t, 0)}
	alone := size(slots[0])
	for n := 1; n < 5; n++ {
		slots = append(slots, g.claim(t, n))
	}
	if alone < slotBuffers {
		t.Skipf("the system allows %d bytes", alone)
	}
	if got := size(slots[4]); got != slotBuffers/8 {
		t.Errorf("one of 5 slots has %d bytes, want %d", got, slotBuffers/8)
	}
	for i, s := range slots {
		if size(s) != size(slots[4]) {
			t.Errorf("slot %d has %d bytes, slot 4 %d", i, size(s), size(slots[4]))
		}
	}
	if after := shared(); after != before {
		t.Errorf("the sockets of QP 1 have %d bytes, and had %d", after, before)
	}
}

// The buffers of verbena serve become smaller at once, and larger after a while: a member that claims and releases a
// slot again and again does not have those of all others set each time.
func TestBuffersGrowLater(t *testing.T) {
	key, s, _ := testServer(t)
	h, _ := newHostile(t, key)
	var first int
	for n := range 8 {
		if _, fds := h.ask(frame{kind: kindClaim, slot: -1}); n == 0 {
			first = fds[0]
		}
	}
	size := func() int {
		n, err := unix.GetsockoptInt(first, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	large := size()
	if large != slotBuffers/8 {
		t.Skipf("the system allows %d bytes", large)
	}
	var released time.Time // the first slot: the buffers do not grow for growTime from then on
	for i := range 3 {
		r, _ := h.ask(frame{kind: kindClaim, slot: -1})
		if got := size(); got != large/2 {
			t.Errorf("one of 9 slots has %d bytes, want %d", got, large/2)
		}
		if i == 0 {
			released = time.Now()
		}
		h.ask(frame{kind: kindRelease, slot: r.slot})
		if got := size(); got != large/2 && time.Since(released) < growTime {
			t.Errorf("after the release of the ninth slot there are %d bytes at once, want %d", got, large/2)
		}
	}
	for end := time.Now().Add(20 * time.Second); size() != large; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("they do not grow: %d bytes, want %d", size(), large)
		}
	}
	s.leader.mu.Lock()
	defer s.leader.mu.Unlock()
	if s.leader.growing {
		t.Error("growing is still set")
	}
}

// TestShareIsAPowerOfTwo checks the size of the buffer of one slot, in bytes, for numbers of slots with an owner.
func TestShareIsAPowerOfTwo(t *testing.T) {
	const enough = slotBuffers
	for owned, want := range map[int]int{
		0: slotBuffers, 1: slotBuffers, 2: slotBuffers / 2, 3: slotBuffers / 4, 4: slotBuffers / 4, 5: slotBuffers / 8,
		8: slotBuffers / 8, 9: slotBuffers / 16, Slots: slotBuffers / Slots,
	} {
		if got := shareOf(owned, enough); got != want {
			t.Errorf("%d slots: %d, want %d", owned, got, want)
		}
	}
	if got := shareOf(2, 1000); got != 2000 { // the kernel doubles what it is asked for
		t.Errorf("less was requested: %d", got)
	}
}

// TestSizeOfWillsMustFit checks that sealed memory with room for fewer last wills is refused.
func TestSizeOfWillsMustFit(t *testing.T) {
	fd, err := createWills(1)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := openWills(fd, Slots); err == nil {
		t.Error("memory of another size was accepted")
	}
	w, err := openWills(fd, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.close()
}

// TestRightsOfTheSocket checks that verbena serve opens its socket to the group, or to all, if the mode says so.
func TestRightsOfTheSocket(t *testing.T) {
	for _, mode := range []os.FileMode{0o600, 0o640, 0o604, 0o610, 0o601, 0o620, 0o602, 0o660, 0o606, 0o666} {
		dir := t.TempDir()
		fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{dir: fd}
		if err := s.listen(Sharing{Mode: mode, UID: os.Geteuid(), GID: os.Getegid()}); err != nil {
			t.Fatal(err)
		}
		wantDir, wantSocket := uint32(0o700), uint32(0o600)
		if mode&0o070 != 0 {
			wantDir, wantSocket = wantDir|0o010, wantSocket|0o060
		}
		if mode&0o007 != 0 {
			wantDir, wantSocket = wantDir|0o001, wantSocket|0o006
		}
		for name, want := range map[string]uint32{dir: wantDir, dir + "/" + socketName: wantSocket} {
			var st unix.Stat_t
			if err := unix.Stat(name, &st); err != nil || st.Mode&0o777 != want {
				t.Errorf("mode %#o: %s has %#o, want %#o; %v", mode, name, st.Mode&0o777, want, err)
			}
		}
		_ = s.ln.Close()
		unix.Close(fd)
	}
}
