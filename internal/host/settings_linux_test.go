package host

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNumbersOfASlot checks that QP numbers and communication IDs lead to their slot.
func TestNumbersOfASlot(t *testing.T) {
	for slot := range Slots {
		first, last := QPNs(slot)
		if SlotOf(first) != slot || SlotOf(last) != slot || slot > 0 && SlotOf(first-1) != slot-1 {
			t.Fatalf("slot %d: QPNs %#x to %#x", slot, first, last)
		}
		prefix, bits := CommIDs(slot)
		if bits != SlotBits || int(prefix>>(32-bits)) != slot || prefix<<bits != 0 {
			t.Fatalf("slot %d: communication IDs %#x/%d", slot, prefix, bits)
		}
	}
}

// TestReleasedSlotIsFree checks that a released slot is neither locked nor owned: another process gets it.
func TestReleasedSlotIsFree(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	first := testMember(t, key)
	<-first.led
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
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	g := testMember(t, key)
	<-g.led
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
	slots := []Slot{g.claim(t, 0)}
	alone := size(slots[0])
	for n := 1; n < 5; n++ {
		slots = append(slots, g.claim(t, n))
	}
	if least := size(slots[4]); least >= alone {
		t.Skipf("the system allows %d bytes", alone)
	}
	for i, s := range slots {
		if size(s) != size(slots[4]) {
			t.Errorf("slot %d has %d bytes, slot 4 %d", i, size(s), size(slots[4]))
		}
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
