package udp

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

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
