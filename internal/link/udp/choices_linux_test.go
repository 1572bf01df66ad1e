package udp

import (
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/errqueue"
	"github.com/verbena-rdma/verbena/internal/link"
)

// TestAddressesOfAnInterface checks that an interface has its own addresses only, and the loopback interface all of
// their networks.
func TestAddressesOfAnInterface(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	plain := *lo
	plain.Flags &^= net.FlagLoopback // as another interface with the same addresses
	for _, c := range []struct {
		a            netip.Addr
		lo, ordinary bool
	}{
		{lo4, true, true}, {lo4b, true, false}, {netip.MustParseAddr("10.99.99.99"), false, false},
		{netip.MustParseAddr("2001:db8::99"), false, false},
	} {
		if got := hasAddr(lo, c.a); got != c.lo {
			t.Errorf("the loopback interface has %v: %v", c.a, got)
		}
		if got := hasAddr(&plain, c.a); got != c.ordinary {
			t.Errorf("an interface with the same addresses has %v: %v", c.a, got)
		}
	}
}

// TestNumbersOfPorts checks the least and the largest number of ports.
func TestNumbersOfPorts(t *testing.T) {
	for n, want := range map[int]int{-1: 0, 0: 1, 1: 1, 64: 64, 65: 0} {
		c, _, err := Config{Addrs: []netip.Addr{lo4}, Ports: n}.withDefaults()
		if (err == nil) != (want > 0) || err == nil && c.Ports != want {
			t.Errorf("%d ports: %d, %v", n, c.Ports, err)
		}
	}
}

// TestKernelsOfFeatures checks from which kernels on packets are merged and lent.
func TestKernelsOfFeatures(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	l.gso.Store(true)
	real := kernelRelease
	defer func() { kernelRelease = real }()
	for _, c := range []struct {
		release       string
		merges, lends bool
	}{{"", false, false}, {"5.11.22", false, false}, {"5.12.0-1-amd64", true, false}, {"6.4.16", true, false},
		{"6.5.0", true, true}, {"7.0.0", true, true}} {
		kernelRelease = func() string { return c.release }
		if trustGRO() != c.merges || l.lends() != c.lends {
			t.Errorf("kernel %q: merges %v, lends %v", c.release, trustGRO(), l.lends())
		}
	}
}

// TestWithoutSegmentation checks that a link sends no GSO runs if the kernel does not know the option.
func TestWithoutSegmentation(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	if !l.gso.Load() {
		t.Skip("the kernel has no UDP_SEGMENT")
	}
	if l.tryGSO(l.ports[0].tx[0].fd); !l.gso.Load() {
		t.Error("the kernel knows the option, and no GSO runs are sent")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if l.tryGSO(fd); l.gso.Load() {
		t.Error("the kernel refuses the option, and GSO runs are sent")
	}
}

// TestRunThatTheKernelRefuses checks that the packets of a GSO run that the kernel refuses are sent one by one, as all
// later ones.
func TestRunThatTheKernelRefuses(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	if !l.gso.Load() {
		t.Skip("the kernel has no UDP_SEGMENT")
	}
	const n = 300 // more than any kernel's UDP_MAX_SEGMENTS
	tx := link.NewTxBatch(n, 1<<14)
	for i := range n {
		fill(tx.Alloc(&link.Path{Src: lo4, Dst: lo4}, 1, 20), 1, uint32(i))
	}
	p := l.ports[0]
	p.mu.Lock()
	s := &p.sender
	p.usePath(tx.Packets[0].Path)
	s.socket, s.n, s.timeLeft = s.from, 1, sendTimeout
	s.put(0, tx, run{0, n}, l)
	p.transmit(tx)
	p.mu.Unlock()
	for i, pkt := range receive(t, p, n) {
		if want := make([]byte, 20); len(pkt.Data) != len(want) {
			t.Fatalf("packet %d has %d bytes", i, len(pkt.Data))
		} else if fill(want, 1, uint32(i)); string(want) != string(pkt.Data) {
			t.Fatalf("packet %d came as % x", i, pkt.Data)
		}
	}
	if c := p.Counters(); c.TxPackets != n || c.TxDropped != 0 || l.gso.Load() {
		t.Errorf("counters %+v, GSO %v", c, l.gso.Load())
	}
}

// TestMessagesThatCount checks which ICMP messages say that packets to an address do not arrive.
func TestMessagesThatCount(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		from  netip.Addr
		want  bool
	}{
		{unix.EHOSTUNREACH, lo4c, true}, {unix.EHOSTUNREACH, lo4b, true},
		{unix.ECONNREFUSED, lo4b, true}, {unix.ECONNREFUSED, lo4c, false}, // a router does not know the ports of a host
		{unix.ENETUNREACH, lo4b, false}, {unix.EMSGSIZE, lo4b, false}, {unix.EACCES, lo4b, false},
	} {
		if got := counts(&errqueue.Entry{Errno: c.errno, ICMP: true, To: lo4b, From: c.from}); got != c.want {
			t.Errorf("%v of %v about %v: %v", c.errno, c.from, lo4b, got)
		}
	}
}

// TestPathsThatShareAMessage checks that packets of different paths share a message if nothing on the wire tells the
// paths apart: on a loopback interface, unless a program has set a flow label.
func TestPathsThatShareAMessage(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	base := link.Path{Src: lo4, Dst: lo4b, TClass: 1, HopLimit: 2, Source: 0xC001}
	with := func(f func(*link.Path)) *link.Path { p := base; f(&p); return &p }
	for name, c := range map[string]struct {
		other            *link.Path
		loopback, farOff bool
	}{
		"the same":           {&base, true, true},
		"equal":              {with(func(*link.Path) {}), true, true},
		"other source port":  {with(func(p *link.Path) { p.Source++ }), true, false},
		"labelled":           {with(func(p *link.Path) { p.FlowLabel = 5 }), false, false},
		"other destination":  {with(func(p *link.Path) { p.Dst = lo4c }), false, false},
		"other source":       {with(func(p *link.Path) { p.Src = lo4c }), false, false},
		"other class":        {with(func(p *link.Path) { p.TClass++ }), false, false},
		"other hop limit":    {with(func(p *link.Path) { p.HopLimit++ }), false, false},
		"a label like ports": {with(func(p *link.Path) { p.FlowLabel, p.Source = 5, 0xC002 }), false, false},
	} {
		for _, on := range []bool{true, false} {
			l.loopback = on
			want := c.farOff
			if on {
				want = c.loopback
			}
			if a, b := l.ports[0].alike(&base, c.other), l.ports[0].alike(c.other, &base); a != want || b != want {
				t.Errorf("%s, loopback %v: %v, %v", name, on, a, b)
			}
		}
	}
}

// TestEmptyControlMessages checks that a control message without data does not hide those behind it, and that one with
// an impossible length ends the search.
func TestEmptyControlMessages(t *testing.T) {
	var c controlBuffer
	c.next(unix.SOL_SOCKET, 99, 0)
	c.n -= cmsgInt - unix.CmsgSpace(0)
	c.putHopLimit(true, 7)
	if r := c.parse(c.n); r.hopLimit != 7 {
		t.Errorf("behind an empty message: hop limit %d, want 7", r.hopLimit)
	}
	c.buf[0] = byte(cmsgHeader - 1) // the length, of any byte order that the tests run in but big-endian
	if r := c.parse(c.n); r.hopLimit != 0 {
		t.Errorf("behind a message of an impossible length: hop limit %d", r.hopLimit)
	}
}

// TestNoSocketJoinsUnasked checks that a program that asks for SO_REUSEPORT does not get packets of a link of one
// port.
func TestNoSocketJoinsUnasked(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	fd, err := l.openRecv(lo4, true)
	if err == nil {
		unix.Close(fd)
	}
	if !inUse(err) {
		t.Errorf("%v, want EADDRINUSE", err)
	}
}

// TestOwnerOfAFreePort checks what is said of a port that no visible process has.
func TestOwnerOfAFreePort(t *testing.T) {
	if text := portOwner(netip.AddrPortFrom(lo4, testPort(t)), false); !strings.Contains(text, "may not see") {
		t.Errorf("%q", text)
	}
}

// TestInterfaceThatIsGone checks the error for an interface that has been removed.
func TestInterfaceThatIsGone(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	before := descriptors(t)
	was := l.ifi.Load()
	l.ifi.Store(&net.Interface{Name: "gone0", Index: 1 << 20, MTU: 1500})
	_, err := l.openSend(lo4, 0)
	l.ifi.Store(was)
	if err == nil || !strings.Contains(err.Error(), "gone0") {
		t.Errorf("%v: must name the interface", err)
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

// TestWholeBatch checks that a Recv returns as many packets as there are slots, if the one before it got what it asked
// for.
func TestWholeBatch(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), NoGSO: true, NoGRO: true})
	p := l.ports[0]
	const packets = 1 + packetSlots
	tx := link.NewTxBatch(packets, 1<<14)
	for i := range packets {
		fill(tx.Alloc(&link.Path{Src: lo4, Dst: lo4}, 1, 32), 1, uint32(i))
	}
	p.Send(tx)
	if raw := func() int { n, _ := unix.IoctlGetInt(p.rx[0].fd, unix.SIOCINQ); return n }(); raw == 0 {
		hasArrived(t, p)
	}
	var rx link.RxBatch
	if n := p.Recv(&rx); n != 1 {
		t.Errorf("the first Recv returned %d packets, want 1", n)
	}
	if n := p.Recv(&rx); n != packetSlots {
		if more := p.Recv(&rx); n+more == packetSlots {
			t.Errorf("the second Recv returned %d packets, want %d", n, packetSlots)
		}
	}
}

// readsGSI reports whether a port reads the socket of QP 1, which another goroutine adds.
func readsGSI(p *port) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.rx, func(s rxSocket) bool { return s.gsi() })
}

// TestManyPacketsOfTheOwnSocket checks that only many messages for QP 1 make the next Recv look at all sockets.
func TestManyPacketsOfTheOwnSocket(t *testing.T) {
	l := openShared(t, testPort(t), 1, lo4)
	p := l.ports[0]
	for !readsGSI(p) {
		p.Wait(1e6)
	}
	l.gso.Store(false)
	for range 2 { // the first Recv may find which socket to read
		qpns := make([]uint32, 2*gsiMany)
		for i := range qpns {
			qpns[i] = l.qpn(0)
		}
		sendTo(l, lo4, qpns...)
		hasArrived(t, p)
		for left := len(qpns); left > 0; {
			var rx link.RxBatch
			left -= p.Recv(&rx)
			if p.gsiMore {
				t.Fatal("packets for a QP of this process count as those of QP 1")
			}
		}
	}
}

// TestClosedLenderHasNothing checks that a closed port neither has lent memory nor its descriptors, and that memory
// that cannot be had leaves none.
func TestClosedLenderHasNothing(t *testing.T) {
	if !kernelAtLeast(6, 5) {
		t.Skip("before Linux 6.5 nothing is lent")
	}
	const tooMuch = math.MaxInt >> 13 // 2^50
	if strconv.IntSize < 64 {
		t.Skip("no memory is too long for this address space")
	}
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p, before := l.ports[0], descriptors(t)
	for range 2 {
		if mem := p.Lend(tooMuch); mem != nil {
			t.Fatalf("%d bytes of memory", len(mem))
		}
		if n := descriptors(t); n != before {
			t.Errorf("%d descriptors without memory, %d before", n, before)
		}
		for range 2 {
			if mem := p.Lend(1 << 16); len(mem) != 1<<16 {
				t.Fatalf("%d bytes of memory", len(mem))
			}
			if mem := p.Lend(tooMuch); mem != nil || !p.lender.on {
				t.Fatalf("%d bytes; what was lent before is of no use any more: %v", len(mem), !p.lender.on)
			}
		}
		for range 2 {
			if p.lender.close(); p.lender.on || p.lender.maps != nil || p.lender.room != 0 {
				t.Errorf("after close: %+v", p.lender)
			}
		}
		if n := descriptors(t); n != before {
			t.Errorf("%d descriptors after close, %d before", n, before)
		}
	}
}

// TestRetriesOfASend checks which errors are worth another try, that the tries are bounded in time, and that a kernel
// short of memory gets a pause.
func TestRetriesOfASend(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	s := &sender{socket: l.ports[0].tx[0]}
	for _, c := range []struct {
		errno unix.Errno
		left  time.Duration
		want  bool
	}{
		{unix.EINTR, 0, true}, {unix.EAGAIN, 0, false}, {unix.ENOBUFS, 0, false}, {unix.EAGAIN, sendTimeout, true},
		{unix.ENOBUFS, sendTimeout, true}, {unix.EPERM, sendTimeout, false},
	} {
		s.timeLeft = c.left
		begin := time.Now()
		got := s.retry(c.errno)
		took := time.Since(begin)
		if got != c.want {
			t.Errorf("%v with %v left: %v", c.errno, c.left, got)
		}
		if spent := c.left - s.timeLeft; got && c.errno != unix.EINTR && (spent <= 0 || spent > took+time.Microsecond) {
			t.Errorf("%v: %v of %v are spent in %v", c.errno, spent, c.left, took)
		}
		if got && c.errno == unix.ENOBUFS && took < 100*time.Microsecond {
			t.Errorf("a pause of %v", took)
		}
	}
}

// TestLastWillsOfOwnAddresses checks that a link has room for last wills at its own addresses only.
func TestLastWillsOfOwnAddresses(t *testing.T) {
	l := openShared(t, testPort(t), 1, lo4)
	if w := l.NewLastWill(&link.Path{Src: lo4, Dst: lo4b}); w == nil {
		t.Error("no room at the own address")
	} else {
		w.Drop()
	}
	if w := l.NewLastWill(&link.Path{Src: lo4b, Dst: lo4}); w != nil {
		t.Error("room at an address that the link does not have")
	}
}

// TestRefusedPacketsAreCounted checks that every refused packet counts as dropped, and as too long only if it is.
func TestRefusedPacketsAreCounted(t *testing.T) {
	tx := link.NewTxBatch(2, 256)
	path := &link.Path{Src: lo4, Dst: lo4b, Private: true}
	fill(tx.Alloc(path, 1, 32), 1, 1)
	var c counters
	for _, e := range []struct {
		errno         unix.Errno
		dropped, long uint64
	}{{unix.EPERM, 1, 0}, {unix.EMSGSIZE, 2, 1}, {unix.ENETUNREACH, 3, 1}} {
		c.refuse(tx, 0, e.errno)
		if n := c.read(); n.TxDropped != e.dropped || n.TxTooLong != e.long || path.Refused.Errno() != e.errno {
			t.Errorf("%v: %d dropped, %d too long, refused with %v", e.errno, n.TxDropped, n.TxTooLong, path.Refused.Errno())
		}
	}
}
