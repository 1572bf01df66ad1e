package udp

import (
	"bytes"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// A lending is a link at a loopback address, with memory for two batches.
type lending struct {
	t    *testing.T
	l    *Link
	p    *port
	mem  []byte
	path *link.Path
}

const lendSize = 64 << 10

func newLending(t *testing.T, a netip.Addr) *lending {
	t.Helper()
	if !kernelAtLeast(6, 5) {
		t.Skip("before Linux 6.5 nothing is lent")
	}
	l := batchedLink(t, Config{Addrs: []netip.Addr{a}, Port: testPort(t), RecvBuffer: 212992})
	s := &lending{t: t, l: l, p: l.ports[0], path: &link.Path{Src: a, Dst: a, TClass: 4}}
	if s.mem = s.p.Lend(2 * lendSize); len(s.mem) != 2*lendSize {
		t.Fatalf("memory of %d bytes, want %d", len(s.mem), 2*lendSize)
	}
	return s
}

// send sends n packets of size bytes out of a slot, and reports whether they were lent.
func (s *lending) send(slot, n, size int) bool {
	tx := link.NewTxBatch(n, 0)
	tx.Buf = s.mem[slot*lendSize:][:lendSize]
	for i := range n {
		fill(tx.Alloc(s.path, 1, size), 0, uint32(i))
	}
	tx.Keep = true
	s.p.Send(tx)
	return tx.Kept
}

// expect receives n packets of size bytes.
func (s *lending) expect(n, size int) {
	s.t.Helper()
	want := make([]byte, size)
	for i, pkt := range receive(s.t, s.p, n) {
		if fill(want, 0, uint32(i)); !bytes.Equal(pkt.Data, want) || pkt.TClass != 4 {
			s.t.Fatalf("packet %d came as % x, class %d", i, pkt.Data[:20], pkt.TClass)
		}
	}
}

func (s *lending) wantSent(packets uint64) {
	s.t.Helper()
	if c := s.p.Counters(); c.TxPackets != packets || c.TxDropped != 0 || c.RxICRCErrors != 0 {
		s.t.Errorf("counters %+v, want %d packets sent, none of them spoiled", c, packets)
	}
}

func TestLend(t *testing.T) {
	for _, a := range loopbacks {
		t.Run(a.String(), func(t *testing.T) {
			s := newLending(t, a)
			for i := range 20 {
				if !s.send(i%2, 15, 4108) {
					t.Fatal("a train was copied")
				}
				s.expect(15, 4108)
			}
			for _, c := range []struct{ n, size int }{{1, 4108}, {7, 4108}, {15, 20}} {
				if s.send(0, c.n, c.size) {
					t.Errorf("%d packets of %d bytes were lent", c.n, c.size)
				}
				s.expect(c.n, c.size)
			}
			if !s.send(0, 60, 1036) {
				t.Error("many small packets were copied")
			}
			s.expect(60, 1036)
			s.wantSent(20*15 + 1 + 7 + 15 + 60)
		})
	}
}

// TestLendSomeOfABatch checks that the messages of a batch, some of them lent, keep their order.
func TestLendSomeOfABatch(t *testing.T) {
	s := newLending(t, lo4)
	tx := link.NewTxBatch(64, 0)
	tx.Buf = s.mem[:lendSize]
	sizes := []int{100, 4108}
	for range 9 {
		sizes = append(sizes, 4092)
	}
	sizes = append(sizes, 500, 600)
	for i, n := range sizes {
		fill(tx.Alloc(s.path, 1, n), 0, uint32(i))
	}
	tx.Keep = true
	s.p.Send(tx)
	if !tx.Kept {
		t.Error("everything was copied")
	}
	for i, pkt := range receive(t, s.p, len(sizes)) {
		if len(pkt.Data) != sizes[i] || int(pkt.Data[11]) != i {
			t.Fatalf("packet %d: %d bytes of packet %d, want %d bytes", i, len(pkt.Data), pkt.Data[11], sizes[i])
		}
	}
	s.wantSent(uint64(len(sizes)))
}

// TestLentMemoryChanges checks that a write into lent memory spoils the packets in flight, which the ICRC detects:
// nothing is copied.
func TestLentMemoryChanges(t *testing.T) {
	s := newLending(t, lo4)
	if !s.send(0, 15, 4108) {
		t.Fatal("a train was copied")
	}
	s.mem[3*4112+100] ^= 1
	var b link.RxBatch
	for s.p.Recv(&b) == 0 {
	}
	if c := s.p.Counters(); len(b.Packets) != 14 || c.RxICRCErrors != 1 {
		t.Errorf("%d packets came, and %d were spoiled; want 14 and 1", len(b.Packets), c.RxICRCErrors)
	}
}

// TestLendFails checks that packets are copied, and none is lost, after the pipe has failed or the kernel has refused
// GSO runs.
func TestLendFails(t *testing.T) {
	for name, spoil := range map[string]func(s *lending){
		"the pipe is full": func(s *lending) {
			if _, err := unix.Write(s.p.lender.pipe[1], make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
		},
		"the pipe cannot be read": func(s *lending) {
			null, err := unix.Open("/dev/null", unix.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Dup3(null, s.p.lender.pipe[0], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			unix.Close(null)
		},
		"no trains": func(s *lending) {
			if err := unix.SetsockoptInt(s.p.tx[0].fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLending(t, lo4)
			spoil(s)
			for range 3 {
				if s.send(0, 15, 4108) {
					t.Fatal("a train was lent")
				}
				s.expect(15, 4108)
			}
			s.wantSent(45)
		})
	}
}

func TestLendDisabled(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), NoLend: true})
	if l.ports[0].Lend(lendSize) != nil {
		t.Error("memory although Config.NoLend is set")
	}
	s := newLending(t, lo4)
	s.l.loopback = false
	if s.l.lends() {
		t.Error("packets for other hosts would be lent")
	}
	t.Setenv("VERBENA_UDP_LEND", "0")
	l = batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	if l.ports[0].Lend(lendSize) != nil {
		t.Error("memory although VERBENA_UDP_LEND is 0")
	}
}

// TestLentMemoryOfAClosedLink checks that lent packets arrive although the link that sent them is closed.
func TestLentMemoryOfAClosedLink(t *testing.T) {
	s := newLending(t, lo4)
	b := open(t, Config{Addrs: []netip.Addr{lo4b}, Port: s.l.cfg.Port})
	s.path = &link.Path{Src: lo4, Dst: lo4b, TClass: 4}
	if !s.send(0, 15, 4108) {
		t.Fatal("a train was copied")
	}
	if err := s.l.Close(); err != nil {
		t.Fatal(err)
	}
	s.p = b.Ports()[0].(*port)
	s.expect(15, 4108)
}

// TestLendAfterALongerPacket checks that the first packet of a WRITE, which is longer than the others, is sent
// alone, and the others as one GSO run. A run on more pages than the pipe holds is copied.
func TestLendAfterALongerPacket(t *testing.T) {
	s := newLending(t, lo4)
	for _, c := range []struct {
		middles, last int
		lent          bool
	}{{15, 0, true}, {15, 4020, false}} {
		tx := link.NewTxBatch(64, 0)
		tx.Buf = s.mem
		sizes := []int{200, 4108}
		for range c.middles {
			sizes = append(sizes, 4092)
		}
		if c.last > 0 {
			sizes = append(sizes, c.last)
		}
		for i, n := range sizes {
			fill(tx.Alloc(s.path, 1, n), 0, uint32(i))
		}
		if got := s.p.train(tx, 2); got != len(sizes)-2 {
			t.Fatalf("a train of %d packets, want %d", got, len(sizes)-2)
		}
		tx.Keep = true
		s.p.Send(tx)
		if tx.Kept != c.lent {
			t.Errorf("%d packets, the last of %d bytes: lent is %v", len(sizes), c.last, tx.Kept)
		}
		for i, pkt := range receive(t, s.p, len(sizes)) {
			if len(pkt.Data) != sizes[i] || int(pkt.Data[11]) != i {
				t.Fatalf("packet %d: %d bytes of packet %d, want %d bytes", i, len(pkt.Data), pkt.Data[11], sizes[i])
			}
		}
	}
}

// TestRenewedMemory checks that unread packets keep their content when the memory that they were lent from gets new
// pages, large or small, locked or not, and is overwritten.
func TestRenewedMemory(t *testing.T) {
	s := newLending(t, lo4)
	other := s.p.Lend(lendSize)
	if len(other) != lendSize || &other[0] == &s.mem[0] {
		t.Fatal("no second memory")
	}
	if s.p.Renew(s.mem[lendSize:], true) || s.p.Renew(make([]byte, lendSize), true) {
		t.Error("memory that Lend did not return is renewed")
	}
	for _, c := range []struct{ large, locked bool }{{true, false}, {false, false}, {false, true}, {true, true}} {
		if c.locked {
			if err := unix.Mlock(s.mem[:4096]); err != nil {
				t.Logf("no locked memory: %v", err)
				continue
			}
		}
		if !s.send(0, 15, 4108) {
			t.Fatal("a train was copied")
		}
		copy(other, "stays")
		if !s.p.Renew(s.mem, c.large) {
			t.Fatalf("%+v: the memory is not renewed", c)
		}
		for i, b := range s.mem {
			if b != 0 {
				t.Fatalf("%+v: byte %d of new pages is %#x", c, i, b)
			}
		}
		for i := range s.mem {
			s.mem[i] = 0xA5
		}
		s.expect(15, 4108)
		if !s.send(1, 15, 4108) {
			t.Fatal("a train was copied")
		}
		s.expect(15, 4108)
		if string(other[:5]) != "stays" {
			t.Error("other memory has changed")
		}
		_ = unix.Munlock(s.mem[:4096])
	}
	s.wantSent(8 * 15)
}
