package udp

import (
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

func configOf(l link.Link) Config { return l.(*Link).cfg }

// batchedLink opens a link that is not plain. The test is skipped where all links are.
func batchedLink(t testing.TB, cfg Config) *Link {
	t.Helper()
	needBatched(t)
	return open(t, cfg).(*Link)
}

// needBatched skips a test of links that are not plain where all links are, as for an emulator.
func needBatched(t testing.TB) {
	t.Helper()
	if os.Getenv("VERBENA_UDP") == "plain" {
		t.Skip("VERBENA_UDP is plain")
	}
}

// TestSegmentationRefused makes the kernel refuse GSO runs, as for a device that does not support them.
func TestSegmentationRefused(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.ports[0]
	if err := unix.SetsockoptInt(p.tx[0].fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	tx := link.NewTxBatch(100, 100000)
	path := &link.Path{Src: lo4, Dst: lo4, TClass: 4}
	for i := range 90 {
		fill(tx.Alloc(path, 1, 100), 0, uint32(i))
	}
	p.Send(tx)
	for i, pkt := range receive(t, p, 90) {
		if pkt.Data[11] != byte(i) || pkt.TClass != 4 {
			t.Fatalf("packet %d came as %d with class %d", pkt.Data[11], i, pkt.TClass)
		}
	}
	if l.gso.Load() {
		t.Error("trains are still tried")
	}
	if c := p.Counters(); c.TxPackets != 90 || c.TxDropped != 0 || c.RxICRCErrors != 0 {
		t.Errorf("counters %+v, want 90 sent", c)
	}
}

// TestHeaderFields checks that traffic class and hop limit arrive, in GSO runs and in single packets, and only where
// they were set.
func TestHeaderFields(t *testing.T) {
	needBatched(t)
	for _, a := range loopbacks {
		l := open(t, Config{Addrs: []netip.Addr{a}, Port: testPort(t)})
		p := l.Ports()[0]
		paths := []*link.Path{
			{Src: a, Dst: a},
			{Src: a, Dst: a, TClass: 0x68, HopLimit: 9},
			{Src: a, Dst: a, TClass: 0x20},
			{Src: a, Dst: a, HopLimit: 255, FlowLabel: 0x12345},
			{Src: a, Dst: a, HopLimit: 64},
		}
		tx := link.NewTxBatch(100, 100000)
		for i, path := range paths {
			for range 1 + i%3 {
				fill(tx.Alloc(path, 1, 60), 0, uint32(i))
			}
		}
		n := len(tx.Packets)
		p.Send(tx)
		for _, pkt := range receive(t, p, n) {
			want := paths[pkt.Data[11]]
			hops := want.HopLimit
			if hops == 0 {
				hops = 64
			}
			if pkt.TClass != want.TClass || pkt.HopLimit != hops {
				t.Errorf("%v: class %#x, hop limit %d came for %+v", a, pkt.TClass, pkt.HopLimit, want)
			}
		}
	}
}

// TestSendTimeout checks that Send waits for a full socket buffer, up to a limit.
func TestSendTimeout(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	s := &l.ports[0].sender
	for _, errno := range []unix.Errno{unix.EAGAIN, unix.ENOBUFS} {
		s.socket, s.timeLeft = l.ports[0].tx[0], sendTimeout
		within(t, errno.Error(), 0, 20*time.Second, func() {
			n := 0
			for s.retry(errno) {
				n++
			}
			if n == 0 {
				t.Errorf("%v: no second try", errno)
			}
		})
	}
	if !s.retry(unix.EINTR) || s.retry(unix.EMSGSIZE) || s.retry(unix.EPERM) {
		t.Error("the wrong errors are tried again")
	}
}

func TestTrain(t *testing.T) {
	x, y, likeX := &link.Path{}, &link.Path{TClass: 1}, &link.Path{}
	type packets []link.TxPacket
	pkt := func(p *link.Path, off, n int) link.TxPacket { return link.TxPacket{Path: p, Off: off, Len: n} }
	long := make(packets, 200)
	for i := range long {
		long[i] = link.TxPacket{Path: x, Off: i * 16, Len: 16}
	}
	for _, c := range []struct {
		name string
		pkts packets
		want int
	}{
		{"one", packets{pkt(x, 0, 100)}, 1},
		{"equal", packets{pkt(x, 0, 100), pkt(x, 100, 100), pkt(x, 200, 100)}, 3},
		{"a shorter one ends it", packets{pkt(x, 0, 100), pkt(x, 100, 100), pkt(x, 200, 60), pkt(x, 260, 100)}, 3},
		{"several shorter ones begin another", packets{pkt(x, 0, 100), pkt(x, 100, 100), pkt(x, 200, 60), pkt(x, 260, 60)},
			2},
		{"acknowledgements do not", packets{pkt(x, 0, 24), pkt(x, 24, 20), pkt(x, 44, 20)}, 2},
		{"a longer one begins another", packets{pkt(x, 0, 100), pkt(x, 100, 104)}, 1},
		{"other path", packets{pkt(x, 0, 100), pkt(x, 100, 100), pkt(y, 200, 100)}, 2},
		{"equal path", packets{pkt(x, 0, 100), pkt(likeX, 100, 100), pkt(x, 200, 100)}, 3},
		{"a hole", packets{pkt(x, 0, 100), pkt(x, 200, 100)}, 1},
		{"at most 64", long, 64},
		{"a datagram is full", packets{pkt(x, 0, 1000), pkt(x, 1000, 1000), pkt(x, 2000, 1000)}, 3},
	} {
		if got := (&port{link: new(Link)}).train(&link.TxBatch{Packets: c.pkts, Buf: make([]byte, 8<<10)},
			0); got != c.want {
			t.Errorf("%s: %d packets, want %d", c.name, got, c.want)
		}
	}
	big := make(packets, 20)
	for i := range big {
		big[i] = link.TxPacket{Path: x, Off: i * 4112, Len: 4112}
	}
	if got := (&port{link: new(Link)}).train(&link.TxBatch{Packets: big, Buf: make([]byte, 1<<17)},
		0); got != link.MaxTrain/4112 {
		t.Errorf("%d packets of 4112 bytes, want %d", got, link.MaxTrain/4112)
	}
}

func TestVersionAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"5.12": true, "5.12.0-rc1": true, "5.11.99-generic": false, "6.1.0-56-amd64": true, "4.18": false, "10.0": true,
		"": false, "x.y": false,
	} {
		if got := versionAtLeast(release, 5, 12); got != want {
			t.Errorf("%q at least 5.12: %v", release, got)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t)})
	p := l.Ports()[0]
	tx := link.NewTxBatch(16, 4096)
	var rx link.RxBatch
	paths := []*link.Path{{Src: lo4, Dst: lo4}, {Src: lo4, Dst: lo4, TClass: 1}, {Src: lo4b, Dst: lo4b}}
	if n := testing.AllocsPerRun(100, func() {
		for i := range 15 {
			fill(tx.Alloc(paths[i/5], 1, 100), 0, 1)
		}
		p.Send(tx)
		for n := 0; n < 15; {
			n += p.Recv(&rx)
		}
		p.Wait(0)
		p.Wake()
		p.Wait(-1)
		p.Wait(10 * time.Microsecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// TestCloseLeavesNothing counts descriptors and goroutines, after success and after failure.
func TestCloseLeavesNothing(t *testing.T) { kinds(t, testCloseLeavesNothing) }

func testCloseLeavesNothing(t *testing.T) {
	port := testPort(t)
	open(t, Config{Addrs: []netip.Addr{lo4}, Port: port}) // opens the descriptors of the network poller
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	for range 5 {
		l, err := Open(Config{Addrs: []netip.Addr{lo4b, lo4c}, Port: port, Ports: 3})
		if err != nil {
			t.Fatal(err)
		}
		l.Join(netip.MustParseAddr("239.77.9.9"))
		done := make(chan struct{})
		go func() { defer close(done); l.Ports()[1].Wait(-1) }()
		if _, err := Open(Config{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.7"), lo4}, Port: port,
			Ports: 3}); err == nil {
			t.Fatal("a taken port was opened")
		}
		l.SetAddrs([]netip.Addr{lo4c, netip.MustParseAddr("127.0.0.8")})
		l.Close()
		<-done
	}
	for range 2000 { // the last of them may be on their way out
		if runtime.NumGoroutine() <= goroutines {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := descriptors(t); n > fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
}

// TestControlCalls changes a link while it sends and receives, for the race detector and to find use of closed
// descriptors.
func TestControlCalls(t *testing.T) { kinds(t, testControlCalls) }

func testControlCalls(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), Ports: 2})
	stop := make(chan struct{})
	done := make(chan struct{}, 10)
	run := func(f func()) {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		}()
	}
	for _, p := range l.Ports() {
		tx := link.NewTxBatch(64, 64000)
		var rx link.RxBatch
		run(func() {
			for i := range 60 {
				a := []netip.Addr{lo4, lo4b, lo4c}[i/20]
				fill(tx.Alloc(&link.Path{Src: a, Dst: a}, 1, 100), uint32(i), 1)
			}
			p.Send(tx)
			p.Recv(&rx)
		})
		run(func() { p.Wait(100 * time.Microsecond) })
		run(func() { p.Wake(); p.Counters(); time.Sleep(50 * time.Microsecond) })
	}
	group := netip.MustParseAddr("239.77.3.3")
	for i := range 100 {
		addrs := []netip.Addr{lo4, lo4b, lo4c}[:1+i%3]
		if err := l.SetAddrs(addrs); err != nil {
			t.Fatal(err)
		}
		l.Join(group)
		l.Leave(group)
	}
	close(stop)
	for range 6 {
		<-done
	}
	if c := l.Ports()[0].Counters(); c.RxICRCErrors+c.RxMalformed != 0 {
		t.Errorf("counters %+v, want no errors", c)
	}
}

// TestHiddenOwner checks that the remedy works: rdma_rxe releases the port when its module is removed, not when its
// devices are, and holds it at every address.
func TestHiddenOwner(t *testing.T) {
	for _, c := range []struct {
		rxe       []string
		loaded    bool
		has, lack string
	}{
		{nil, false, "ss -ulnp sport = :4791); stop it, or use another address", "rdma_rxe"},
		{nil, false, "if it is verbena serve, this process needs its VERBENA_RUN", "rdma_rxe"},
		{nil, true, "remove it (modprobe -r rdma_rxe), or use another network namespace", "use another address"},
		{[]string{"rxe0"}, true, "remove it (rdma link delete rxe0; modprobe -r rdma_rxe)", "use another address"},
		{[]string{"rxe0", "r1"}, false, "(rdma link delete r1; rdma link delete rxe0; modprobe -r rdma_rxe)",
			"use another address"},
	} {
		if got := hiddenOwner(c.rxe, c.loaded); !strings.Contains(got, c.has) || strings.Contains(got, c.lack) {
			t.Errorf("%q, %v: %s", c.rxe, c.loaded, got)
		}
	}
}

// An acknowledgement at the end of a GSO run arrives before the request in front of it, unless they are for two QPs.
func TestAcknowledgementBeforeTheRequest(t *testing.T) {
	needBatched(t)
	for _, a := range loopbacks {
		p := open(t, Config{Addrs: []netip.Addr{a}, Port: testPort(t)}).Ports()[0]
		if !p.Capabilities().AckLast {
			t.Fatal("no AckLast on the loopback interface")
		}
		path := &link.Path{Src: a, Dst: a}
		for _, c := range []struct {
			request uint32
			first   wire.Opcode
		}{{8, wire.RC | wire.Ack}, {9, wire.RC | wire.SendOnly}} {
			tx := link.NewTxBatch(4, 1000)
			fill(tx.Alloc(path, c.request, wire.BTHLen+8), c.request, 1)
			ack := tx.Alloc(path, 8, wire.BTHLen+wire.AETHLen)
			wire.BTH(ack).Put(wire.RC|wire.Ack, 0, 0xFFFF, 8, 1, 0)
			wire.AETH(ack[wire.BTHLen:]).Put(wire.SynAck, 1)
			p.Send(tx)
			if got := wire.BTH(receive(t, p, 2)[0].Data).Opcode(); got != c.first {
				t.Errorf("%v: a request for QP %d and an acknowledgement for QP 8: %v arrives first", a, c.request, got)
			}
		}
	}
}

// A link without GSO sends acknowledgements before requests.
func TestNoAckLastWithoutRuns(t *testing.T) {
	needBatched(t)
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), NoGSO: true})
	if l.Ports()[0].Capabilities().AckLast {
		t.Error("AckLast without GSO")
	}
	tx := link.NewTxBatch(1, 100)
	tx.AckLast = true
	if l.Ports()[0].Send(tx); tx.AckLast {
		t.Error("AckLast stays set after GSO was found not to work")
	}
}
