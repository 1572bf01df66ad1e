package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// ownKey returns the key of an address that other processes running these tests do not use, and of a port that no
// socket holds, at this address or at all addresses.
func ownKey() Key {
	pid := os.Getpid()
	key := Key{Addr: netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x40, byte(pid), 9})}
	for range 1000 {
		key.Port = uint16(20000 + rand.IntN(10000))
		fd, err := opener(key)(false)
		unix.Close(fd)
		if err == nil {
			return key
		}
	}
	panic("no free port")
}

// opener returns a Config.Open for plain sockets.
func opener(key Key) func(bool) (int, error) {
	return func(join bool) (int, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil && join {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(key.Port), Addr: key.Addr.As4()})
		}
		return fd, err
	}
}

// A testGroup is a member and the mail and wills that it received.
type testGroup struct {
	*Group
	sent chan []Will
	mail chan Mail
	led  chan int
}

// testLeader is the process that leads at an address that no other test has.
func testLeader(t *testing.T) (Key, *testGroup) {
	t.Helper()
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	g := testMember(t, key)
	<-g.led
	return key, g
}

func testMember(t *testing.T, key Key) *testGroup {
	t.Helper()
	g := &testGroup{sent: make(chan []Will, 64), mail: make(chan Mail, 1<<14), led: make(chan int, 1)}
	var err error
	g.Group, err = Join(key, Config{
		Open: opener(key), RecvBuffer: 1 << 20,
		Deliver: func(m Mail) { g.mail <- m }, Send: func(w []Will) { g.sent <- w },
		Lead: func(gsi, strays int) error { closeFDs([]int{gsi, strays}); g.led <- 1; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Start()
	t.Cleanup(g.Close)
	return g
}

func (g *testGroup) claim(t *testing.T, n int) Slot {
	t.Helper()
	s, err := g.Claim(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.FD) })
	return s
}

// forSlot returns a packet for a QP of a slot.
func forSlot(n, len int) Mail {
	b := make([]byte, len)
	first, _ := QPNs(n)
	wire.BTH(b).Put(wire.UC|wire.SendOnly, 0, 0xFFFF, first+100, 1, 0)
	return Mail{Packet: b, Src: peerAddr, Dst: peerAddr}
}

// TestJoinWithoutLeader checks that Join, if the port is bound and no process leads, waits for the owners of several
// sockets to elect a leader or to end, on a busy machine too. A single socket belongs to another program.
func TestJoinWithoutLeader(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	taken := func(bool) (int, error) { return -1, unix.EADDRINUSE }
	stranger, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(key.Addr, key.Port)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(key, Config{Open: taken}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("beside another program: %v, want EADDRINUSE", err)
	}
	stranger.Close()
	for _, others := range []int{chunk, 2, 0} {
		l := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET,
					unix.SO_REUSEPORT, 1)
			}), err)
		}}
		for range others {
			c, err := l.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(key.Addr, key.Port).String())
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(2*foreignLooks*foreignPause, func() { c.Close() })
		}
		begin := time.Now()
		g, err := Join(key, Config{RecvBuffer: 1 << 16, Open: func(join bool) (int, error) {
			if time.Since(begin) > 3*foreignLooks*foreignPause {
				return opener(key)(join)
			}
			return -1, unix.EADDRINUSE
		}})
		if err != nil {
			t.Fatalf("beside %d sockets of a group: %v", others, err)
		}
		g.Close()
	}
}

// TestBoundTo checks that the sockets of IPv6 that hold an IPv4 address are found, and that those of IPv4 at all
// addresses, which hold no IPv6 address, are not.
func TestBoundTo(t *testing.T) {
	key := ownKey()
	for _, c := range []struct {
		network, at string
		addr        netip.Addr
		want        int
	}{
		{"udp4", key.Addr.String(), key.Addr, 1},
		{"udp6", "::ffff:" + key.Addr.String(), key.Addr, 1},
		{"udp4", "0.0.0.0", key.Addr, 1},
		{"udp4", "0.0.0.0", netip.IPv6Loopback(), 0},
		{"udp6", "::1", netip.IPv6Loopback(), 1},
		{"udp6", "::1", key.Addr, 0},
	} {
		fd, err := bindAny(c.network, netip.MustParseAddr(c.at), key.Port)
		if err != nil {
			t.Skipf("%s at %s, port %d: %v", c.network, c.at, key.Port, err)
		}
		found, ok := BoundTo(netip.AddrPortFrom(c.addr, key.Port))
		for _, b := range found {
			if b.Inode != fmt.Sprint(inode(t, fd)) || b.Wild != (c.at == "0.0.0.0") || !b.Owned() {
				t.Errorf("%s at %s: %+v", c.network, c.at, b)
			}
		}
		unix.Close(fd)
		if !ok || len(found) != c.want {
			t.Errorf("%s at %s: %d sockets at %v, want %d", c.network, c.at, len(found), c.addr, c.want)
		}
	}
}

// TestBoundToAmongOthers checks that a socket is listed once while other sockets are opened and closed.
func TestBoundToAmongOthers(t *testing.T) {
	key := ownKey()
	fd, err := bindAny("udp4", key.Addr, key.Port)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	end := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		open := []int{}
		for {
			select {
			case <-end:
				closeFDs(open)
				return
			default:
			}
			if i := rand.IntN(200); i < len(open) {
				unix.Close(open[i])
				open = slices.Delete(open, i, i+1)
			} else if fd, err := bindAny("udp4", key.Addr, 0); err == nil {
				open = append(open, fd)
			}
		}
	})
	defer others.Wait()
	defer close(end)
	const looks = 200
	missing := 0
	for range looks {
		switch found, _ := BoundTo(netip.AddrPortFrom(key.Addr, key.Port)); len(found) {
		case 0:
			missing++ // twice left out
		case 1:
		default:
			t.Fatalf("%+v: want one socket", found)
		}
	}
	if missing > looks/10 {
		t.Errorf("missing in %d of %d lists", missing, looks)
	}
}

// bindAny returns a socket of udp4 or udp6.
func bindAny(network string, a netip.Addr, port uint16) (fd int, err error) {
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(port), Addr: a.As16()})
	if network == "udp4" {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(port), Addr: a.As4()}
	}
	if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, to); err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// TestStopWaitsForRequests checks that Stop does not end while a request is in progress, which may use the leader or
// become one.
func TestStopWaitsForRequests(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	g := testMember(t, ownKey())
	g.requests.Lock()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.Stop()
	}()
	select {
	case <-stopped:
		t.Error("Stop has ended")
	case <-time.After(50 * time.Millisecond):
	}
	g.requests.Unlock()
	<-stopped
}

// TestDepartReleasesAll checks that the slots and services of a process that departs are free when Depart returns.
func TestDepartReleasesAll(t *testing.T) {
	key, _ := testLeader(t)
	for range 100 {
		g := testMember(t, key)
		g.claim(t, 7)
		if err := g.ClaimService(77); err != nil {
			t.Fatal(err)
		}
		g.Depart()
	}
}

// TestDepartFromAStoppedLeader checks that Depart does not wait without a limit.
func TestDepartFromAStoppedLeader(t *testing.T) {
	member, _ := connPair(t)
	r := newRemote(Key{}, member, &unix.Ucred{}, func(Mail) {})
	r.limit = time.Millisecond
	r.depart()
	r.close()
	r.depart() // closed already
}

// TestOtherUserIsEACCES checks that the error is also an errno: verbs turns an error without one into EIO.
func TestOtherUserIsEACCES(t *testing.T) {
	err := Key{}.otherUser(&unix.Ucred{})
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno != syscall.EACCES || !errors.Is(err, syscall.EACCES) || !errors.Is(err,
		errOtherUser) {
		t.Errorf("%v (%v)", err, errno)
	}
}

// TestStoppedMemberCostsOthersNothing checks that a member that does not read loses its own mail and no other
// member's.
func TestStoppedMemberCostsOthersNothing(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	leader, b := testMember(t, key), testMember(t, key)
	slot := b.claim(t, -1)
	c, _, err := key.dial() // a member that is stopped
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, f := range []frame{{kind: kindJoin, id: version, slot: -1}, {kind: kindClaim, slot: 9}, {kind: kindListen,
		id: 77, slot: -1}} {
		if _, err := c.Write(f.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	<-leader.led
	for leader.listening(77) == nil {
		time.Sleep(time.Millisecond)
	}
	const good = 200
	begin := time.Now()
	for i := range good {
		for range 100 {
			leader.Forward(forSlot(9, 4000))
		}
		m := forSlot(slot.N, 64)
		binary.BigEndian.PutUint32(m.Packet[wire.BTHLen:], uint32(i))
		if !leader.Forward(m) {
			t.Fatal("the leader keeps a packet for another member")
		}
		select {
		case got := <-b.mail:
			if binary.BigEndian.Uint32(got.Packet[wire.BTHLen:]) != uint32(i) {
				t.Fatalf("packet %d has other content", i)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("packet %d did not arrive", i)
		}
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("the leader took %v", took)
	}
	if leader.leader.sorter.dropped.Load() < good {
		t.Error("nothing was dropped: the test is void")
	}
}

func (g *testGroup) listening(id uint64) *session {
	g.leader.mu.Lock()
	defer g.leader.mu.Unlock()
	return g.leader.table.services[id]
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(all)
}

// TestHostileFrames checks that the leader continues, and keeps no descriptors, whatever a member sends.
func TestHostileFrames(t *testing.T) {
	key, _ := testLeader(t)
	good := testMember(t, key)
	before := descriptors(t)
	pipe, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	var flood []int
	for range 200 {
		flood = append(flood, int(pipe.Fd()))
	}
	rng := rand.NewChaCha8([32]byte{2})
	join := (&frame{kind: kindJoin, id: version, slot: -1}).bytes()
	for name, frames := range map[string][][]byte{
		"no join":       {(&frame{kind: kindClaim, slot: -1}).bytes()},
		"other version": {(&frame{kind: kindJoin, id: 99, slot: -1}).bytes()},
		"reply":         {join, (&frame{kind: kindReply, slot: -1}).bytes()},
		"short":         {join, {byte(kindClaim)}},
		"long":          {join, make([]byte, 60<<10)},
		"mail":          {join, make([]byte, mailHeader), append([]byte{byte(kindMail)}, make([]byte, maxFrame)...)},
		"not mine": {join, (&frame{kind: kindRelease, slot: 0}).bytes(), (&frame{kind: kindUnlisten, id: 5,
			slot: -1}).bytes()},
		"random": nil,
	} {
		for range 20 {
			c, _, err := key.dial()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if frames == nil {
				b := make([]byte, rng.Uint64()%frameLen+1)
				_, _ = rng.Read(b)
				frames = [][]byte{join, b}
			}
			for _, f := range frames {
				_, _, _ = c.WriteMsgUnix(f, unix.UnixRights(flood...), nil)
			}
			c.Close()
		}
	}
	if err := good.ClaimService(5); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if s := good.claim(t, -1); s.N < 0 {
		t.Error("no slot")
	}
	for begin := time.Now(); descriptors(t) > before+3; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("%d descriptors, %d before", descriptors(t), before)
		}
	}
}

// unstarted joins a group and claims a slot, without Start.
func unstarted(t *testing.T, key Key) *testGroup {
	t.Helper()
	g := &testGroup{}
	var err error
	g.Group, err = Join(key, Config{Open: opener(key), RecvBuffer: 1 << 20, Deliver: func(Mail) {},
		Send: func([]Will) {}, Lead: func(gsi, strays int) error { closeFDs([]int{gsi, strays}); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	g.claim(t, -1)
	return g
}

// Two processes join at two addresses while the leader of both ends. Each leads at one address then, and needs an
// answer at the other before it starts.
func TestLeadersThatHaveNotStartedServe(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	one := ownKey()
	two := one
	two.Port++
	ending := []*testGroup{testMember(t, one), testMember(t, two)}
	first := []*testGroup{unstarted(t, one), unstarted(t, two)}
	second := []*testGroup{unstarted(t, one), unstarted(t, two)}
	for _, g := range ending {
		g.Close()
	}
	first[0].claim(t, -1)  // leads at one
	second[1].claim(t, -1) // leads at two
	first[1].claim(t, -1)
	second[0].claim(t, -1)
}

// TestNextLeaderKnowsClaims checks that any member may lead next and knows the claims of the others.
// A leader that ends after a process has joined, and before that has started, costs it nothing: it leads itself, or
// follows the next leader.
func TestLeaderEndsBeforeStart(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	for _, others := range []bool{false, true} {
		key := ownKey()
		leader := testMember(t, key)
		joined := &testGroup{led: make(chan int, 1)}
		var err error
		joined.Group, err = Join(key, Config{Open: opener(key), RecvBuffer: 1 << 20, Deliver: func(Mail) {},
			Send: func([]Will) {}, Lead: func(gsi, strays int) error { closeFDs([]int{gsi, strays}); return nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(joined.Close)
		joined.claim(t, -1)
		if others {
			testMember(t, key)
		}
		leader.Close()
		begin := time.Now()
		joined.claim(t, -1)
		if took := time.Since(begin); took > timeout {
			t.Errorf("a claim took %v", took)
		}
		joined.Start()
		other := testMember(t, key)
		if _, err := other.Claim(joined.slots[0]); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a slot of another member: %v", err)
		}
	}
}

func TestNextLeaderKnowsClaims(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	members := []*testGroup{testMember(t, key), testMember(t, key), testMember(t, key)}
	slots := map[int]bool{}
	for i, g := range members {
		slots[g.claim(t, -1).N] = true
		if err := g.ClaimService(uint64(100 + i)); err != nil {
			t.Fatal(err)
		}
	}
	for len(members) > 1 {
		members[0].Close()
		members = members[1:]
		next := testMember(t, key)
		for _, g := range members {
			if err := next.ClaimService(g.oneService()); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("a service of another member: %v", err)
			}
			if _, err := next.Claim(g.slots[0]); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("a slot of another member: %v", err)
			}
		}
		next.Close()
	}
}

func (g *testGroup) oneService() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.services {
		return id
	}
	return 0
}

// emfileStore is a store of a process that has no descriptors left for some time.
type emfileStore struct {
	store
	left atomic.Int32 // calls that fail
}

func (s *emfileStore) use(first int, f func(fds []int)) error {
	if s.left.Add(-1) >= 0 {
		return unix.EMFILE
	}
	return s.store.use(first, f)
}

// A leader without descriptors reads the sockets of QP 1 once it has some again, also if the link needs more of them.
func TestLeaderReadsOnceItHasDescriptors(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key, led, refusals := ownKey(), make(chan int, 1), 2
	g, err := Join(key, Config{
		Open: opener(key), RecvBuffer: 1 << 20, Deliver: func(Mail) {}, Send: func([]Will) {},
		Lead: func(gsi, strays int) error {
			closeFDs([]int{gsi, strays})
			if refusals--; refusals >= 0 {
				return unix.EMFILE
			}
			led <- 1
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &emfileStore{store: g.leader.store}
	s.left.Store(3)
	g.leader.store = s
	t.Cleanup(func() {
		g.leader.mu.Lock()
		g.leader.store = s.store // Close takes the vault
		g.leader.mu.Unlock()
		g.Close()
	})
	g.Start()
	select {
	case <-led:
	case <-time.After(20 * time.Second):
		t.Fatal("the leader does not read the sockets")
	}
	if n := s.left.Load(); n >= 0 {
		t.Errorf("%d calls less have failed", n+1)
	}
}
