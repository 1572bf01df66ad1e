package host

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// choose returns the index of the socket that a request arrives at.
func (f requestFilter) choose(t *testing.T, pkt []byte) uint32 {
	t.Helper()
	return execute(t, f.program(), pkt)
}

// TestRequestFilter checks that requests for claimed service IDs arrive at the socket of QP 1, and others do not while
// the claims are few. The claims are random.
func TestRequestFilter(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ids := make([]uint64, rng.IntN(1<<rng.IntN(14)+1))
		for i := range ids {
			ids[i] = 0x1060000 | rng.Uint64N(1<<16)
			if rng.IntN(8) == 0 {
				ids[i] = rng.Uint64() >> (rng.IntN(2) * 33)
			}
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		f := newRequestFilter(ids)
		if n := len(f.program()); n > 1<<10 {
			t.Fatalf("seed %d: a program of %d instructions", seed, n)
		}
		for _, id := range ids {
			if got := f.choose(t, forService(id).Packet); got != GSI {
				t.Fatalf("seed %d: a request for claimed ID %#x arrives at socket %d", seed, id, got)
			}
		}
		for range 100 {
			id := 0x1060000 | rng.Uint64N(1<<16)
			if _, claimed := slices.BinarySearch(ids, id); claimed || len(ids) > maxRanges {
				continue
			}
			if got := f.choose(t, forService(id).Packet); got != Strays {
				t.Fatalf("seed %d: a request for ID %#x, which nobody has claimed, arrives at socket %d", seed, id, got)
			}
		}
	}
	few := newRequestFilter([]uint64{7})
	if got := few.choose(t, forService(1<<32).Packet); got != Strays {
		t.Errorf("a request for an ID beyond those that are claimed arrives at socket %d", got)
	}
	if got := allRequests.choose(t, forService(77).Packet); got != GSI {
		t.Errorf("without a choice: socket %d", got)
	}
}

// reader returns a member that leads, and keeps the sockets that it is to read.
func reader(t *testing.T, key Key) (g *Group, gsi, strays int) {
	t.Helper()
	fds := make(chan [2]int, 1)
	g, err := Join(key, Config{
		Open: opener(key), RecvBuffer: 1 << 20, Deliver: func(Mail) {}, Send: func([]Will) {},
		Lead: func(gsi, strays int) error { fds <- [2]int{gsi, strays}; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Start()
	both := <-fds
	t.Cleanup(func() {
		g.Close()
		closeFDs(both[:])
	})
	return g, both[0], both[1]
}

// TestStraysDoNotDisplaceRequests checks that packets for QP 1 that nobody has asked for leave the socket of QP 1 to
// requests for claimed service IDs, of the leader and of members, also after a claim has ended.
func TestStraysDoNotDisplaceRequests(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	g, gsi, strays := reader(t, key)
	member := testMember(t, key)
	c, err := net.Dial("udp4", netip.AddrPortFrom(key.Addr, key.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func(m Mail) {
		t.Helper()
		if _, err := c.Write(m.Packet); err != nil {
			t.Fatal(err)
		}
	}
	other := forService(7)
	other.Packet[MADOffset+MADClass] = 3
	flood := func() {
		for range 3000 {
			send(forService(0x1060001))
			send(other)
		}
	}
	arrived := func(fd int) (n int) {
		for ; ; n++ {
			if _, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_TRUNC); err != nil {
				return n
			}
		}
	}
	for _, m := range []*Group{g, member.Group} {
		const id = 0x1061d2f
		if err := m.ClaimService(id); err != nil {
			t.Fatal(err)
		}
		flood()
		send(forService(id))
		if n := arrived(gsi); n != 1 {
			t.Errorf("%d packets at the socket of QP 1, want one request", n)
		}
		if n := arrived(strays); n == 0 {
			t.Error("no packet at the socket of strays")
		}
		m.ReleaseService(id)
		send(forService(id))
		if n, s := arrived(gsi), arrived(strays); n != 0 || s != 1 {
			t.Errorf("after the claim: %d requests at the socket of QP 1 and %d at that of strays, want 0 and 1", n, s)
		}
	}
}

// TestNewLeaderLetsClaimsComeFirst checks that requests for service IDs that members have yet to claim from a new
// leader arrive at the socket of QP 1, and at that of strays after the settling time.
func TestNewLeaderLetsClaimsComeFirst(t *testing.T) {
	l := &leader{table: newTable(false), wide: true}
	if f := l.requests(); f.choose(t, forService(5).Packet) != GSI {
		t.Error("a new leader sends requests to the socket of strays")
	}
	l.wide = false
	if f := l.requests(); f.choose(t, forService(5).Packet) != Strays {
		t.Error("a leader sends requests that nobody has asked for to the socket of QP 1")
	}
}

// TestHeldRequestsExpire checks that a leader does not forward a request that has waited too long for its owner.
func TestHeldRequestsExpire(t *testing.T) {
	const id = 7471
	now := time.Unix(1000, 0)
	lk := &foreignLocks{}
	l := newLeader(Key{}, &Config{}, nil, lk.locks(t), nil)
	l.now = func() time.Time { return now }
	lk.lock(t, id)
	var got []string
	to := &session{}
	hold := func(name string) {
		t.Helper()
		m := forService(id)
		m.Packet[wire.BTHLen+wire.DETHLen+200] = name[0]
		if !l.forward(m) {
			t.Fatal("a request was not held although another process owns its service ID")
		}
	}
	hold("a")
	now = now.Add(heldTime / 2)
	hold("b")
	now = now.Add(heldTime / 2)
	l.mu.Lock()
	l.releaseHeld(id, to)
	l.mu.Unlock()
	for _, f := range to.queue {
		m, ok := parseMail(f)
		if !ok {
			t.Fatal("bad mail")
		}
		got = append(got, string(m.Packet[wire.BTHLen+wire.DETHLen+200]))
	}
	if fmt.Sprint(got) != "[b]" {
		t.Errorf("forwarded %v, want [b]", got)
	}
	if n := l.sorter.dropped.Load(); n != 1 || len(l.held) != 0 {
		t.Errorf("%d dropped, %d held: want 1 and 0", n, len(l.held))
	}
	hold("c")
	now = now.Add(heldTime)
	hold("d")
	if len(l.held) != 1 {
		t.Errorf("%d requests are held, want 1: the other is too old", len(l.held))
	}
}

// foreignLocks are the locks of a group of which another open file description, as another process, has taken some.
type foreignLocks struct{ fd int }

func (f *foreignLocks) locks(t *testing.T) *locks {
	t.Helper()
	fd, err := createWills(Slots)
	if err != nil {
		t.Fatal(err)
	}
	lk, err := openLocks(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lk.close)
	if f.fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Close(f.fd) })
	return lk
}

func (f *foreignLocks) lock(t *testing.T, id uint64) {
	t.Helper()
	lk := unix.Flock_t{Type: unix.F_WRLCK, Start: serviceLock(id), Len: 1}
	if err := unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_SETLK, &lk); err != nil {
		t.Skip(err)
	}
}
