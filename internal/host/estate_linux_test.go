package host

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var peerAddr = netip.MustParseAddr("198.18.0.9")

// testGroup is a member of a group without sockets, and what it has been given to send.
func testGroup(t *testing.T, key Key) (*Group, chan []Bequest) {
	t.Helper()
	g, err := Join(key, func() (fds []int, err error) {
		for range Lanes + 1 {
			fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			fds = append(fds, fd)
		}
		return fds, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if g.estate == nil {
		t.Fatal("there is no estate")
	}
	sent := make(chan []Bequest, 64)
	g.Send = func(left []Bequest) { sent <- left }
	g.Start(func() {})
	t.Cleanup(g.Close)
	return g, sent
}

// claim claims a lane, which somebody who sends what was left there may still have.
func claim(t *testing.T, g *Group, lane int) *Mailbox {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		box, err := g.ClaimLane(lane, func(Mail) {})
		if err == nil {
			return box
		}
		if !errors.Is(err, unix.EADDRINUSE) || time.Since(begin) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

// die ends what others see of a member.
func (g *Group) die(box *Mailbox) {
	g.mu.Lock()
	c := g.watched
	g.mu.Unlock()
	c.Close()
	time.Sleep(5 * time.Millisecond) // the leader knows before the name goes
	box.Close()
}

// What a member has left is sent by the leader, once: each connection's last word only.
func TestLastWordsAreSentByTheLeader(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	leader, sent := testGroup(t, key)
	box := claim(t, leader, 6)
	defer box.Close()
	leader.Bequeath(6, peerAddr, 0, 0).Set([]byte("the leader lives"))
	for range 2 {
		g, _ := testGroup(t, key)
		box := claim(t, g, 7)
		if left := g.Left(7); len(left) != 0 {
			t.Fatalf("a lane that was cleared has %v", left)
		}
		said := g.Bequeath(7, peerAddr, 3, 64)
		said.Set([]byte("a word that is much longer"))
		said.Set([]byte("the last word"))
		gone := g.Bequeath(7, peerAddr, 0, 0)
		gone.Set([]byte("not to be sent"))
		g.Bequeath(7, peerAddr, 0, 0) // still empty
		gone.Drop()
		long := g.Bequeath(7, netip.IPv6Loopback(), 0, 0)
		if long.n != gone.n {
			t.Errorf("slot %d, not %d, which is free", long.n, gone.n)
		}
		long.Set(bytes.Repeat([]byte{9}, 2*MaxBequest))
		g.die(box)
		select {
		case left := <-sent:
			if len(left) != 2 || left[0].To != peerAddr || left[0].TClass != 3 || left[0].HopLimit != 64 || string(left[0].MAD) != "the last word" ||
				left[1].To != netip.IPv6Loopback() || !bytes.Equal(left[1].MAD, bytes.Repeat([]byte{9}, MaxBequest)) {
				t.Errorf("sent: %v", left)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is sent")
		}
		g.Stop()
	}
	select {
	case left := <-sent:
		t.Errorf("sent once more: %v", left)
	default:
	}
}

// Who closes the device in peace leaves nothing, whatever was in the slots, which are of no use afterwards.
func TestClosingLeavesNoWords(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	heir, sent := testGroup(t, key)
	g, _ := testGroup(t, key)
	box := claim(t, g, 7)
	s := g.Bequeath(7, peerAddr, 0, 0)
	s.Set([]byte("never mind"))
	g.Stop()
	s.Set([]byte("too late"))
	box.Close()
	next := claim(t, heir, 7)
	defer next.Close()
	if left := heir.Left(7); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	mine := heir.Bequeath(7, peerAddr, 0, 0)
	mine.Set([]byte("of the next owner"))
	g.Close()
	s.Drop()
	if left := heir.estate.left(7); len(left) != 1 || string(left[0].MAD) != "of the next owner" {
		t.Errorf("the next owner's: %v", left)
	}
	if g.Bequeath(7, peerAddr, 0, 0) != nil {
		t.Error("a slot of a closed group")
	}
	if len(sent) > 0 {
		t.Errorf("sent: %v", <-sent)
	}
}

// Who claims a lane gets what its last owner has left, if it is quicker than the leader.
func TestTheNextOwnerGetsTheLastWords(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	leader, _ := testGroup(t, key)
	leader.mu.Lock()
	leader.Send = nil
	leader.mu.Unlock()
	g, _ := testGroup(t, key)
	box := claim(t, g, 7)
	g.Bequeath(7, peerAddr, 0, 0).Set([]byte("the last word"))
	g.die(box)
	next := claim(t, leader, 7)
	defer next.Close()
	if left := leader.Left(7); len(left) != 1 || string(left[0].MAD) != "the last word" {
		t.Errorf("left: %v", left)
	}
	if left := leader.Left(7); len(left) != 0 {
		t.Errorf("left once more: %v", left)
	}
}

// A lane has so many slots; what does not fit has none, until one is given back.
func TestSlotsRunOut(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	g, _ := testGroup(t, ownKey())
	var last *Slot
	for i := range estateSlots {
		if last = g.Bequeath(9, peerAddr, 0, 0); last == nil {
			t.Fatalf("no slot %d", i)
		}
	}
	if g.Bequeath(9, peerAddr, 0, 0) != nil {
		t.Error("more slots than there are")
	}
	last.Set([]byte("x"))
	last.Drop()
	if g.Bequeath(9, peerAddr, 0, 0) == nil {
		t.Error("none after one was given back")
	}
}

// Any member can write anything into the memory: nothing worse than nonsense is read.
func TestNonsenseInTheEstate(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	g, _ := testGroup(t, ownKey())
	mem, err := g.estate.mapLane(3)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(mem)
	for _, count := range []uint64{1, estateSlots, estateSlots + 1, 1<<63 | 5, 1<<64 - 1} {
		g.estate.count(3).Store(count)
		left := g.Left(3)
		if uint64(len(left)) > min(count, estateSlots) {
			t.Errorf("count %#x: %d words", count, len(left))
		}
		for _, b := range left {
			if len(b.MAD) > MaxBequest || !b.To.IsValid() {
				t.Fatalf("%+v", b)
			}
		}
	}
}

// Memory that could shrink under those who read it is not used.
func TestEstateMustBeSealed(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	if openEstate(fd) != nil {
		t.Error("an empty one is taken")
	}
	if err := unix.Ftruncate(fd, estateLen); err != nil {
		t.Fatal(err)
	}
	if openEstate(fd) != nil {
		t.Error("one without seals is taken")
	}
}
