package udp

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
)

// TestMailWakesPort0 checks that a packet that another process forwards ends a Wait of port 0, which alone receives it.
func TestMailWakesPort0(t *testing.T) {
	l := openShared(t, testPort(t), 2, lo4)
	mail := host.Mail{Packet: mad(host.AttrREQ, 0, 1, 0), Src: lo4, Dst: lo4}
	var rx link.RxBatch
	for l.ports[0].Recv(&rx) > 0 {
	}
	l.ports[0].wait.state.Store(idle) // no wake-up is left
	time.AfterFunc(time.Millisecond, func() { l.mail.put(mail) })
	within(t, "a Wait", 0, 20*time.Second, func() { l.ports[0].Wait(-1) })
	if n := l.ports[1].Recv(&rx); n != 0 {
		t.Errorf("port 1 received %d packets of other processes", n)
	}
	if n := l.ports[0].Recv(&rx); n != 1 {
		t.Errorf("port 0 received %d packets of other processes, want 1", n)
	}
}

// TestOneByOne checks that calls for single messages report as many as the kernel took, and an error only of the first.
func TestOneByOne(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFDs(fds[:]...)
	for _, b := range []string{"a", "bc"} {
		if _, err := unix.Write(fds[0], []byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	m := newBuffers(4, 64)
	for i := range m.hdrs {
		m.hdrs[i].Name, m.hdrs[i].Namelen = nil, 0
	}
	n, errno := oneByOne(unix.SYS_RECVMSG, fds[1], m.hdrs[:2], unix.MSG_DONTWAIT)
	if n != 2 || errno != 0 || m.hdrs[0].n != 1 || m.hdrs[1].n != 2 {
		t.Errorf("%d messages of %d and %d bytes, %v; want 2 of 1 and 2", n, m.hdrs[0].n, m.hdrs[1].n, errno)
	}
	if _, err := unix.Write(fds[0], []byte("def")); err != nil {
		t.Fatal(err)
	}
	if n, errno := oneByOne(unix.SYS_RECVMSG, fds[1], m.hdrs, unix.MSG_DONTWAIT); n != 1 || errno != 0 {
		t.Errorf("%d messages, %v; want 1", n, errno)
	}
	if n, errno := oneByOne(unix.SYS_RECVMSG, fds[1], m.hdrs, unix.MSG_DONTWAIT); n != 0 || errno != unix.EAGAIN {
		t.Errorf("%d messages, %v; want none, EAGAIN", n, errno)
	}
}

// TestGroupsSentToOneself checks which refused messages go to the sender's own address instead.
func TestGroupsSentToOneself(t *testing.T) {
	if len(loopbacks) < 2 {
		t.Skip("this machine has no IPv6")
	}
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4, lo6}, Port: testPort(t)})
	p := l.ports[0]
	group6, group4 := netip.MustParseAddr("ff02::77"), netip.MustParseAddr("239.255.77.7")
	for _, c := range []struct {
		src, dst netip.Addr
		errno    unix.Errno
		far      bool
		want     bool
	}{
		{lo6, group6, unix.ENETUNREACH, false, true},
		{lo6, group6, unix.EPERM, false, false},
		{lo6, group6, unix.ENETUNREACH, true, false},
		{lo6, lo6, unix.ENETUNREACH, false, false},
		{lo4, group4, unix.ENETUNREACH, false, false},
	} {
		tx := link.NewTxBatch(1, 100)
		fill(tx.Alloc(&link.Path{Src: c.src, Dst: c.dst}, 1, 32), 1, 1)
		p.sender.sent = []bool{false}
		p.fill(tx, 0)
		l.loopback = !c.far
		got := p.toSelf(tx, 0, c.errno)
		again := p.toSelf(tx, 0, c.errno)
		l.loopback = true
		if got != c.want || again {
			t.Errorf("%v to %v, %v: %v, then %v; want %v, then false", c.src, c.dst, c.errno, got, again, c.want)
		}
	}
}

// TestLeftAddressSendsNothing checks that a path whose address the link has left is refused as any other without an
// address, although it was the last one that was used: the number of its socket may stand for another file.
func TestLeftAddressSendsNothing(t *testing.T) { kinds(t, testLeftAddressSendsNothing) }

func testLeftAddressSendsNothing(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t)})
	path := &link.Path{Src: lo4b, Dst: lo4, Private: true}
	tx := link.NewTxBatch(1, 100)
	send := func() {
		fill(tx.Alloc(path, 1, 32), 0, 1)
		l.Ports()[0].Send(tx)
	}
	send()
	if err := l.SetAddrs([]netip.Addr{lo4}); err != nil {
		t.Fatal(err)
	}
	if send(); path.Refused.Errno() != unix.EADDRNOTAVAIL {
		t.Errorf("after SetAddrs the packet is refused with %v, want EADDRNOTAVAIL", path.Refused.Errno())
	}
	path = &link.Path{Src: lo4, Dst: lo4, Private: true}
	send()
	l.Close()
	if send(); path.Refused.Errno() != unix.EADDRNOTAVAIL {
		t.Errorf("after Close the packet is refused with %v, want EADDRNOTAVAIL", path.Refused.Errno())
	}
}

// TestGroups6AreEnteredAtIPv6Addresses checks that the leader at an IPv4 address does not get IPv6 groups to forward.
func TestGroups6AreEnteredAtIPv6Addresses(t *testing.T) {
	if len(loopbacks) < 2 {
		t.Skip("this machine has no IPv6")
	}
	l := openShared(t, testPort(t), 1, lo6)
	join(t, l, "ff02::77:8")
	setAddrs(t, l, lo6, lo4)
	if all := l.members[lo4].group.Multicast(); len(all) != 0 {
		t.Errorf("groups %v at %v, want none", all, lo4)
	}
	if all := l.members[lo6].group.Multicast(); len(all) != 1 {
		t.Errorf("groups %v at %v, want one", all, lo6)
	}
}

// TestBytesAreCounted checks that both ports of a connection count the bytes of each packet, BTH to ICRC.
func TestBytesAreCounted(t *testing.T) { kinds(t, testBytesAreCounted) }

func testBytesAreCounted(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	tx := link.NewTxBatch(3, 1000)
	for i, n := range []int{32, 100, 60} {
		fill(tx.Alloc(&link.Path{Src: lo4, Dst: lo4}, 1, n), 0, uint32(i))
	}
	l.Ports()[0].Send(tx)
	receive(t, l.Ports()[0], 3)
	const want = 32 + 100 + 60 + 3*4
	if c := l.Ports()[0].Counters(); c.TxBytes != want || c.RxBytes != want {
		t.Errorf("%d bytes sent, %d received, want %d", c.TxBytes, c.RxBytes, want)
	}
}

// TestFailedWatchLeavesTheFirstSocket checks that a waiter that cannot watch a second socket has no descriptor more,
// and watches the first one.
func TestFailedWatchLeavesTheFirstSocket(t *testing.T) {
	w, err := newWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFDs(fds[:]...)
	if err := w.watch(fds[0]); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	if err := w.watch(-1); err == nil {
		t.Error("a descriptor that is not open is watched")
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, want %d", after, before)
	}
	if _, err := unix.Write(fds[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	within(t, "a wait", 0, 20*time.Second, func() { w.wait(-1) })
}

// TestDescriptorsAboveTheFloor checks that the descriptors of a port leave low numbers to the program.
func TestDescriptorsAboveTheFloor(t *testing.T) {
	const floor = 600
	was := fdset.Floor()
	fdset.SetFloor(floor)
	defer fdset.SetFloor(was)
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t)})
	p := l.ports[0]
	within(t, "a Wait", 0, 20*time.Second, func() { p.Wait(time.Millisecond) }) // opens the timer
	all := map[string]int{"epoll of sockets": p.wait.sockets, "epoll": p.wait.park}
	if p.wait.timer != noTimer {
		all["timer"] = p.wait.timer
	}
	if kernelAtLeast(6, 5) && p.Lend(os.Getpagesize()) != nil {
		all["pipe for reading"], all["pipe for writing"] = p.lender.pipe[0], p.lender.pipe[1]
	}
	for i := range p.rx {
		all["receive socket "+p.rx[i].addr.String()] = p.rx[i].fd
	}
	for _, s := range p.tx {
		all["transmit socket "+s.addr.String()] = s.fd
	}
	for what, fd := range all {
		if fd < floor {
			t.Errorf("%s: descriptor %d, want %d or more", what, fd, floor)
		}
	}
}

// TestNothingToReceive checks that a socket without a packet takes no slot of a batch.
func TestNothingToReceive(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.ports[0]
	var rx link.RxBatch
	for _, slot := range []int{0, 3} {
		if got := p.recvFrom(&p.rx[0], &rx, p.buffersOf(&rx), slot, 1); got != slot || len(rx.Packets) != 0 {
			t.Errorf("after slot %d the next is slot %d, and there are %d packets", slot, got, len(rx.Packets))
		}
	}
}

// TestLeftAddressHasNoStrayReader checks that a link that leaves an address at which it leads does not read the strays
// there any more.
func TestLeftAddressHasNoStrayReader(t *testing.T) {
	l := openShared(t, testPort(t), 1, lo4, lo4b)
	p := l.ports[0]
	readers := func() (all []netip.Addr) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.strays {
			all = append(all, r.rx.addr)
		}
		return all
	}
	for begin := time.Now(); len(readers()) < 2; {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("strays are read at %v, want both addresses", readers())
		}
		p.Wait(1e6)
	}
	setAddrs(t, l, lo4)
	if all := readers(); !slices.Equal(all, []netip.Addr{lo4}) {
		t.Errorf("strays are read at %v, want %v", all, lo4)
	}
}

// TestKeysOfGroups checks that processes that use an address of the host form one group, whichever interface they found
// it by, and that the same link-local address of two interfaces is two addresses.
func TestKeysOfGroups(t *testing.T) {
	for a, zoned := range map[string]bool{"127.0.0.1": false, "::1": false, "2001:db8::1": false, "fe80::1": true} {
		addr := netip.MustParseAddr(a)
		if same := KeyOf(4791, addr, 1) == KeyOf(4791, addr, 2); same == zoned {
			t.Errorf("%v: the same key for two interfaces: %v, want %v", a, same, !zoned)
		}
		if KeyOf(4791, addr, 1) == KeyOf(4792, addr, 1) {
			t.Errorf("%v: the same key for two ports", a)
		}
	}
}

// TestLendAtAFailedSocket checks that a run that the socket refuses does not count as lent, and that the lender goes
// on.
func TestLendAtAFailedSocket(t *testing.T) {
	s := newLending(t, lo4)
	if !s.send(0, 15, 4108) {
		t.Fatal("a train was copied")
	}
	s.expect(15, 4108)
	used := s.p.sender.socket
	s.p.sender.socket = &txSocket{fd: -1}
	if s.p.lend(0) {
		t.Error("a run counts as lent although the socket is not open")
	}
	s.p.sender.socket = used
	if !s.send(1, 15, 4108) {
		t.Error("the next train was copied")
	}
	s.expect(15, 4108)
}

// TestAddressThatComesBack checks that packets of a path that was used before arrive after the link has left its
// address and got it again, with another source port.
func TestAddressThatComesBack(t *testing.T) { kinds(t, testAddressThatComesBack) }

func testAddressThatComesBack(t *testing.T) {
	needSeparate(t)
	l := open(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t)})
	path := &link.Path{Src: lo4b, Dst: lo4}
	tx := link.NewTxBatch(1, 100)
	for range 3 {
		fill(tx.Alloc(path, 1, 32), 0, 1)
		l.Ports()[0].Send(tx)
		receive(t, l.Ports()[0], 1)
		for _, addrs := range [][]netip.Addr{{lo4}, {lo4, lo4b}} {
			if err := l.SetAddrs(addrs); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c := l.Ports()[0].Counters(); c.RxICRCErrors != 0 {
		t.Errorf("%d packets have a wrong ICRC", c.RxICRCErrors)
	}
}

// TestLoopbackInterface checks that a link knows whether its interface is that of the host itself: only there pages are
// lent, and IPv6 groups are searched by the ICRC.
func TestLoopbackInterface(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, ifi := range all {
		addrs, _ := ifi.Addrs()
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || ifi.Flags&net.FlagUp == 0 || !p.Addr().Is4() {
				continue
			}
			l := batchedLink(t, Config{Interface: ifi.Name, Addrs: []netip.Addr{p.Addr()}, Port: testPort(t)})
			if want := ifi.Flags&net.FlagLoopback != 0; l.loopback != want {
				t.Errorf("%s: loopback %v, want %v", ifi.Name, l.loopback, want)
			}
			break
		}
	}
}

// TestPathsOfOneAddress checks that packets from one address to several arrive, each with the ICRC of its path.
func TestPathsOfOneAddress(t *testing.T) { kinds(t, testPathsOfOneAddress) }

func testPathsOfOneAddress(t *testing.T) {
	needSeparate(t)
	l := open(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t)})
	tx := link.NewTxBatch(4, 1000)
	for i := range 4 {
		fill(tx.Alloc(&link.Path{Src: lo4, Dst: []netip.Addr{lo4, lo4b}[i%2]}, 1, 32), 0, uint32(i))
	}
	l.Ports()[0].Send(tx)
	receive(t, l.Ports()[0], 4)
	if c := l.Ports()[0].Counters(); c.RxICRCErrors != 0 {
		t.Errorf("%d packets have a wrong ICRC", c.RxICRCErrors)
	}
}
