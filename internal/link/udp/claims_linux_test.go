package udp

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// setAddrs replaces the addresses of a link.
func setAddrs(t *testing.T, l *Link, addrs ...netip.Addr) {
	t.Helper()
	if err := l.SetAddrs(addrs); err != nil {
		t.Fatal(err)
	}
}

// TestSharedClaimsFollowTheAddresses checks which service IDs a link has claimed at an address that it gets later, and
// that its releases end all claims.
func TestSharedClaimsFollowTheAddresses(t *testing.T) {
	const everywhere, there = 0x1234, 0x1235
	port := testPort(t)
	other := openShared(t, port, 1, lo4, lo4b)
	l := openShared(t, port, 1, lo4)
	taken := func(id uint64) bool {
		t.Helper()
		release, err := other.ClaimService(id, lo4b)
		switch {
		case err == nil:
			release()
		case !errors.Is(err, syscall.EADDRINUSE):
			t.Fatal(err)
		}
		return err != nil
	}
	var releases []func()
	for _, at := range []netip.Addr{{}, {}, lo4b, lo4} {
		id := uint64(everywhere)
		if at.IsValid() {
			id = there
		}
		release, err := l.ClaimService(id, at)
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	for i := range 100 {
		addrs := []netip.Addr{lo4, lo4b}[:1+i%2] // it comes back at once, while another process leads there
		setAddrs(t, l, addrs...)
		has := len(addrs) > 1
		for _, id := range []uint64{everywhere, there} {
			if taken(id) != has {
				t.Errorf("with the addresses %v: the claim of 0x%x there is %v, want %v", addrs, id, !has, has)
			}
		}
	}
	for i, want := range []struct{ everywhere, there bool }{{true, true}, {false, true}, {false, false}, {false, false}} {
		releases[i]()
		if a, b := taken(everywhere), taken(there); a != want.everywhere || b != want.there {
			t.Errorf("after %d releases the services are taken: %v and %v, want %+v", i+1, a, b, want)
		}
	}
	setAddrs(t, l, lo4)
	setAddrs(t, l, lo4, lo4b)
	if taken(everywhere) || taken(there) {
		t.Error("a released service is claimed again with the address")
	}
}

// TestSharedClaimOfANewAddressWaitsForNobody checks that a link gets an address where another process has claimed its
// service ID, and that the claim of that process remains.
func TestSharedClaimOfANewAddressWaitsForNobody(t *testing.T) {
	const id = 0x1234
	port := testPort(t)
	other := openShared(t, port, 1, lo4, lo4b)
	releaseOther, err := other.ClaimService(id, lo4b)
	if err != nil {
		t.Fatal(err)
	}
	l := openShared(t, port, 1, lo4)
	release, err := l.ClaimService(id, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	setAddrs(t, l, lo4, lo4b)
	release()
	sendMAD(l, lo4b, mad(host.AttrREQ, id, 5, 0))
	receive(t, other.Ports()[0], 1)
	releaseOther()
}

// TestSharedCountersOfForwardedPackets checks that only the process that receives a packet for QP 1 counts it, with its
// bytes, whichever process has read it from a socket.
func TestSharedCountersOfForwardedPackets(t *testing.T) {
	const claimed, unknown = 0x1234, 0x9999
	port := testPort(t)
	leader, member := openShared(t, port, 1, lo4), openShared(t, port, 1, lo4)
	if _, err := member.ClaimService(claimed, lo4); err != nil {
		t.Fatal(err)
	}
	length := uint64(len(mad(host.AttrREQ, 0, 0, 0)) + wire.ICRCLen)
	check := func(what string, l *Link, packets uint64) {
		t.Helper()
		if c := l.Ports()[0].Counters(); c.RxPackets != packets || c.RxBytes != packets*length {
			t.Errorf("%s: %d packets with %d bytes, want %d with %d", what, c.RxPackets, c.RxBytes, packets,
				packets*length)
		}
	}
	sendMAD(member, lo4, mad(host.AttrREQ, claimed, 5, 0))
	nothing(t, leader.Ports()[0]) // Recv forwards the packet
	receive(t, member.Ports()[0], 1)
	check("the process that forwards", leader, 0)
	check("the process that has claimed the service", member, 1)
	sendMAD(member, lo4, mad(host.AttrREQ, unknown, 5, 0))
	receive(t, leader.Ports()[0], 1)
	check("a request for a service that nobody has claimed", leader, 1)
	check("the other process", member, 1)
}

// TestMailOverflowIsCounted checks that packets of other processes that the link has no room for are counted, and that
// the others arrive in order.
func TestMailOverflowIsCounted(t *testing.T) {
	l := openShared(t, testPort(t), 1, lo4)
	for i := range maxMail + 3 {
		l.mail.put(host.Mail{Packet: mad(host.AttrREQ, 0, uint32(i), 0), Src: lo4, Dst: lo4})
	}
	for i, got := range receive(t, l.Ports()[0], maxMail) {
		if m := wire.Packet(got.Data).Payload(); m[27] != byte(i) || m[26] != byte(i>>8) {
			t.Fatalf("packet %d has number %d", i, int(m[26])<<8|int(m[27]))
		}
	}
	if c := l.Ports()[0].Counters(); c.RxDropped != 3 || c.RxPackets != maxMail {
		t.Errorf("%d packets dropped, %d received, want 3 and %d", c.RxDropped, c.RxPackets, maxMail)
	}
}

// TestSharedSlotsAreEqualEverywhere checks that a link has the same slots at all of its addresses, and keeps none of
// those that are taken at one of them.
func TestSharedSlotsAreEqualEverywhere(t *testing.T) {
	port := testPort(t)
	claim := func(l *Link, a netip.Addr, n int) host.Slot {
		t.Helper()
		s, err := l.members[a].group.Claim(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(s.FD) })
		return s
	}
	other := openShared(t, port, 1, lo4c)
	taken := other.slots[0]
	for n := range 8 { // those that a new member gets first at the other addresses
		if n != taken {
			claim(other, lo4c, n)
		}
	}
	l := openShared(t, port, 2, lo4, lo4b, lo4c)
	if len(l.slots) != 2 || l.slots[0] == l.slots[1] {
		t.Fatalf("the slots %v, want two", l.slots)
	}
	for a, m := range l.members {
		for i, s := range m.slots {
			if s.N != l.slots[i] || s.N < 8 {
				t.Errorf("slot %d of %v is %d, want %d", i, a, s.N, l.slots[i])
			}
		}
	}
	for _, a := range []netip.Addr{lo4, lo4b} { // Claim fails if the link has kept the slot
		next := openShared(t, port, 1, a)
		for n := range 8 {
			if n != next.slots[0] {
				claim(next, a, n)
			}
		}
	}
}

// TestLeadingAfterLeaving checks that a link that learns that it leads at an address after it has left it keeps no
// socket of it.
func TestLeadingAfterLeaving(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t), Shared: true})
	old := l.members[lo4b]
	setAddrs(t, l, lo4)
	var late [2]int
	for i := range late {
		fd, err := l.openRecv(lo4b, true)
		if err != nil {
			t.Fatal(err)
		}
		late[i] = fd
	}
	l.leadAs(old, lo4b, late[0], late[1])
	setAddrs(t, l, lo4, lo4b)
	sendTo(l, lo4b, l.qpn(0))
	receive(t, l.Ports()[0], 1)
}

// TestLostOfAnEarlierMember checks that the end of verbena serve does not end receiving at an address that the link has
// left and got again since.
func TestLostOfAnEarlierMember(t *testing.T) {
	lost := make(chan error, 8)
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t), Shared: true,
		Lost: func(err error) { lost <- err }})
	old := l.members[lo4b]
	setAddrs(t, l, lo4)
	l.lost(old, lo4b, unix.ENETDOWN)
	setAddrs(t, l, lo4, lo4b)
	l.lost(old, lo4b, unix.ENETDOWN)
	sendTo(l, lo4b, l.qpn(0))
	receive(t, l.Ports()[0], 1)
	if len(lost) != 0 {
		t.Error("the program is told of an end that does not concern it")
	}
	l.lost(l.members[lo4b], lo4b, unix.ENETDOWN)
	if len(lost) != 1 {
		t.Error("the program is not told of the end of verbena serve")
	}
	now := l.members[lo4]
	l.Close()
	if l.lost(now, lo4, unix.ENETDOWN); len(lost) != 1 {
		t.Error("the program is told of an end after Close")
	}
}

// TestCloseWaitsForLost checks that Lost is not called after Close: the caller may have opened another link by then.
func TestCloseWaitsForLost(t *testing.T) {
	begun, end, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), Shared: true, Lost: func(error) {
		close(begun)
		<-end
		ended.Store(true)
	}})
	m := l.members[lo4]
	go l.lost(m, lo4, unix.ENETDOWN)
	<-begun
	go func() {
		defer close(closed)
		l.Close()
		if !ended.Load() {
			t.Error("Close has returned before Lost")
		}
	}()
	select {
	case <-closed:
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	<-closed
}

// TestLostDuringOpen checks that Open fails if verbena serve ends meanwhile, and that Lost is not called before the
// caller has the link.
func TestLostDuringOpen(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), Shared: true,
		Lost: func(error) { t.Error("Lost is called before Open has returned") }})
	l.opened = false
	l.lost(l.members[lo4], lo4, unix.ENETDOWN)
	if err := l.open(); err != unix.ENETDOWN {
		t.Errorf("Open returns %v", err)
	}
}

// TestLeadingWithoutDescriptors checks that a link that has no descriptor left to watch the socket of QP 1 says so, and
// reads both sockets when it has.
func TestLeadingWithoutDescriptors(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.ports[0]
	lead := func(lead func(gsi, strays int) error) error {
		t.Helper()
		var fds [2]int
		for i := range fds {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			fds[i] = fd
		}
		return lead(fds[0], fds[1])
	}
	err := lead(func(gsi, strays int) (err error) {
		withoutDescriptors(t, func() { err = l.lead(nil, lo4b, gsi, strays) })
		return err
	})
	if !errors.Is(err, unix.EMFILE) || len(p.rx) != 1 || len(p.strays) != 0 {
		t.Errorf("without descriptors: %v, with %d sockets and %d readers", err, len(p.rx), len(p.strays))
	}
	err = lead(func(gsi, strays int) error { return l.lead(nil, lo4b, gsi, strays) })
	if err != nil || len(p.rx) != 2 || len(p.strays) != 1 {
		t.Errorf("with descriptors: %v, with %d sockets and %d readers", err, len(p.rx), len(p.strays))
	}
}
