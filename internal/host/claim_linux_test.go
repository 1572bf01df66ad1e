package host

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestRefusedClaimsSayWhy checks that the error of a refused claim is the errno, and says what to do.
func TestRefusedClaimsSayWhy(t *testing.T) {
	for _, c := range []struct {
		errno  syscall.Errno
		leader *leader
		want   string
	}{
		{unix.EUSERS, nil, "all 256 QPN slots of 192.0.2.1 are in use"},
		{unix.EDQUOT, nil, "as verbena serve allows one user, 128"},
		{unix.EADDRINUSE, nil, "another process has the QPN slot at 192.0.2.1"},
		{unix.EMFILE, nil, "the process that leads there has no descriptors left: raise its limit: ulimit -n"},
		{unix.EMFILE, &leader{}, "a socket for 192.0.2.1"},
		{unix.EPROTO, nil, "a QPN slot of 192.0.2.1"},
	} {
		g := &Group{key: Key{Addr: netip.MustParseAddr("192.0.2.1")}, leader: c.leader}
		err := g.refused(c.errno)
		if !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if strings.Contains(err.Error(), "the process that leads") != (c.errno == unix.EMFILE && c.leader == nil) {
			t.Errorf("the wrong process is named: %v", err)
		}
	}
}

// ask asks a leader for something that the process does not own otherwise.
func (g *testGroup) ask(t *testing.T, f frame) syscall.Errno {
	t.Helper()
	reply, fds, _, err := g.request(f)
	if err != nil {
		t.Fatal(err)
	}
	closeFDs(fds)
	return reply.errno
}

func (g *testGroup) receives(t *testing.T) Mail {
	t.Helper()
	select {
	case m := <-g.mail:
		return m
	case <-time.After(20 * time.Second):
		t.Fatal("no mail")
		return Mail{}
	}
}

// toGroup returns a packet for a multicast group.
func toGroup(a netip.Addr) Mail {
	return Mail{Packet: forQPN(wire.MulticastQPN), Src: peerAddr, Dst: a}
}

// TestMulticastReachesTheMembers checks that packets of a multicast group that arrive at the leader reach the members
// of the group, the leader itself if it is one, and no other process.
func TestMulticastReachesTheMembers(t *testing.T) {
	key, leader := testLeader(t)
	in, out := testMember(t, key), testMember(t, key)
	six, four := netip.MustParseAddr("ff02::77"), netip.MustParseAddr("239.0.0.7")
	outSlot := out.claim(t, -1).N
	for _, a := range []netip.Addr{six, four} {
		if err := in.Enter(a); err != nil {
			t.Fatal(err)
		}
		if !leader.Forward(toGroup(a)) {
			t.Errorf("%v: a leader that is no member keeps the packet", a)
		}
		if m := in.receives(t); m.Dst != a {
			t.Errorf("mail for %v, want %v", m.Dst, a)
		}
		if err := leader.Enter(a); err != nil {
			t.Fatal(err)
		}
		if leader.Forward(toGroup(a)) {
			t.Errorf("%v: a leader that is a member does not keep the packet", a)
		}
		if m := in.receives(t); m.Dst != a {
			t.Errorf("mail for %v, want %v", m.Dst, a)
		}
	}
	if got := leader.Multicast(); !slices.Equal(got, []netip.Addr{six}) {
		t.Errorf("IPv6 groups %v, want %v", got, six)
	}
	if got := in.Multicast(); got != nil {
		t.Errorf("a process that does not read the socket of QP 1 lists %v", got)
	}
	if !in.Forward(toGroup(six)) {
		t.Error("a member that does not lead keeps a packet that the leader receives too")
	}
	leader.Leave(six)
	in.Leave(six)
	in.mu.Lock()
	if _, claimed := in.groups[six]; claimed || len(in.groups) != 1 {
		t.Errorf("groups %v would be entered again at the next leader", in.groups)
	}
	in.mu.Unlock()
	if got := leader.Multicast(); len(got) != 0 {
		t.Errorf("IPv6 groups %v after all have left", got)
	}
	if !leader.Forward(toGroup(six)) {
		t.Error("a leader that has left keeps the packet")
	}
	leader.Forward(forSlot(outSlot, 64)) // the first mail of out
	if m := out.receives(t); wire.BTH(m.Packet).DestQPN() == wire.MulticastQPN || len(out.mail)+len(in.mail) > 0 {
		t.Error("mail of a multicast group at a process that is no member")
	}
	if n := leader.MailDropped(); n != 0 {
		t.Errorf("%d packets were dropped", n)
	}
	leader.Forward(Mail{Packet: append(forSlot(outSlot, 64).Packet, make([]byte, maxFrame)...), Src: peerAddr,
		Dst: peerAddr})
	if n := leader.MailDropped(); n != 1 {
		t.Errorf("%d packets were dropped, want one that is too long", n)
	}
	if n := out.MailDropped(); n != 0 {
		t.Errorf("a process that does not lead has dropped %d packets", n)
	}
}

// TestRefusedMembershipsAreForgotten checks that a group or a service ID that the leader refused is not claimed from
// the next leader.
func TestRefusedMembershipsAreForgotten(t *testing.T) {
	key, leader := testLeader(t)
	member := testMember(t, key)
	for i := range memberMulticast {
		a := netip.AddrFrom4([4]byte{239, 0, 1, byte(i)})
		if errno := member.ask(t, frame{kind: kindEnter, addr: a, slot: -1}); errno != 0 {
			t.Fatal(errno)
		}
	}
	a := netip.MustParseAddr("239.0.0.7")
	if err := member.Enter(a); !errors.Is(err, unix.EUSERS) {
		t.Errorf("more groups than a member may have: %v, want EUSERS", err)
	}
	if errno := leader.ask(t, frame{kind: kindListen, id: 77, slot: -1}); errno != 0 {
		t.Fatal(errno)
	}
	if err := member.ClaimService(77); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a service ID of the leader: %v, want EADDRINUSE", err)
	}
	member.mu.Lock()
	groups, services := len(member.groups), len(member.services)
	member.mu.Unlock()
	if groups+services > 0 {
		t.Errorf("%d groups and %d service IDs would be claimed again", groups, services)
	}
	if member.locks.taken(serviceLock(77)) {
		t.Error("the service ID is locked")
	}
	if err := member.Enter(netip.AddrFrom4([4]byte{239, 0, 1, 5})); err != nil {
		t.Errorf("a group that it is in: %v", err)
	}
}

// TestOwnPacketsAreKept checks that a process keeps the packets for its slots and service IDs, and those for QP 1 that
// are no connection management.
func TestOwnPacketsAreKept(t *testing.T) {
	key, leader := testLeader(t)
	member, third := testMember(t, key), testMember(t, key)
	for i, g := range []*testGroup{leader, member} {
		slot, id := g.claim(t, -1).N, uint64(700+i)
		if err := g.ClaimService(id); err != nil {
			t.Fatal(err)
		}
		other := forService(id)
		other.Packet[MADOffset+MADClass] = 3
		for name, m := range map[string]Mail{
			"slot": forSlot(slot, 64), "service": forService(id), "class": other,
			"short": {Packet: forQPN(wire.GSIQPN)[:MADOffset+madMinimum-1], Src: peerAddr, Dst: peerAddr},
		} {
			if g.Forward(m) {
				t.Errorf("process %d does not keep its packet: %s", i, name)
			}
		}
	}
	slot := third.claim(t, -1).N
	for i, g := range []*testGroup{leader, member} { // a member sends it by way of the leader
		m := forSlot(slot, 64)
		m.TClass = byte(i + 1)
		if !g.Forward(m) {
			t.Errorf("process %d keeps a packet for another one", i)
		}
		if got := third.receives(t); int(got.TClass) != i+1 {
			t.Errorf("another packet: %+v", got)
		}
	}
	if !member.Forward(forSlot(leader.slots[0], 64)) {
		t.Error("a member keeps a packet for the leader")
	}
	leader.receives(t)
	if len(member.mail)+len(third.mail) > 0 {
		t.Error("mail for another process")
	}
}

// TestWillsNeedASlot checks that a process has no place for a last will before it has a slot: it owns no region.
func TestWillsNeedASlot(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	g := testMember(t, ownKey())
	if g.NewPlace(peerAddr, 0, 0, 0) != nil {
		t.Error("a place without a slot")
	}
	g.claim(t, 0)
	p := g.NewPlace(netip.MustParseAddr("fe80::1%1"), 0, 0, 0)
	if p == nil || p.to.To.Zone() != "" {
		t.Errorf("place %+v", p)
	}
	g.Close()
	if g.NewPlace(peerAddr, 0, 0, 0) != nil {
		t.Error("a place of a closed group")
	}
}

// TestClosedGroupClaimsNothing checks that requests after Close fail at once, and not with EINVAL or the like.
func TestClosedGroupClaimsNothing(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	leader := testMember(t, key)
	member := testMember(t, key)
	for _, g := range []*testGroup{member, leader} {
		g.Close()
		g.Close() // once more has no effect
		if _, err := g.Claim(-1); !errors.Is(err, unix.ENETDOWN) {
			t.Errorf("a slot: %v, want ENETDOWN", err)
		}
		if err := g.ClaimService(7); !errors.Is(err, unix.ENETDOWN) {
			t.Errorf("a service ID: %v, want ENETDOWN", err)
		}
		if err := g.Enter(netip.MustParseAddr("ff02::7")); !errors.Is(err, unix.ENETDOWN) {
			t.Errorf("a multicast group: %v, want ENETDOWN", err)
		}
	}
}

// TestRequestsWaitForALeader checks that a request waits until there is a leader, and that it fails after timeout, or
// when the group is closed.
func TestRequestsWaitForALeader(t *testing.T) {
	newGroup := func() *Group {
		g := &Group{started: true, vault: -1}
		g.changed = sync.NewCond(&g.mu)
		return g
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if up := newGroup().uplink(); up != nil {
			t.Errorf("a leader: %v", up)
		}
		if took := time.Since(begin); took != timeout {
			t.Errorf("it waited for %v, want %v", took, timeout)
		}
		for name, f := range map[string]func(g *Group) uplink{
			"leader": func(g *Group) uplink { g.up = &local{}; return g.up },
			"closed": func(g *Group) uplink { g.closed = true; return nil },
		} {
			begin, g, got := time.Now(), newGroup(), make(chan uplink)
			go func() { got <- g.uplink() }()
			time.Sleep(timeout / 2)
			g.mu.Lock()
			want := f(g)
			g.changed.Broadcast()
			g.mu.Unlock()
			if up := <-got; up != want || time.Since(begin) != timeout/2 {
				t.Errorf("%s: %v after %v", name, up, time.Since(begin))
			}
		}
		g := newGroup()
		g.served = true
		if begin := time.Now(); g.uplink() != nil || time.Since(begin) != 0 {
			t.Errorf("it waited for %v although verbena serve has ended", time.Since(begin))
		}
	})
}
