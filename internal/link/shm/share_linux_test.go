package shm

import (
	"bytes"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// buffer returns memory as verbs.AllocBuffer allocates it, and a share of it from byte 100 on.
func buffer(t *testing.T, size int) ([]byte, *link.Share) {
	t.Helper()
	m, f, err := create(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for i := range m.bytes {
		m.bytes[i] = byte(i>>8) + byte(i)
	}
	return m.bytes, link.NewShare(f, int64(size), 100)
}

// refer sends the middle of a WRITE by reference.
func (s *side) refer(path *link.Path, sh *link.Share, off int64, n int) {
	s.tb.Helper()
	b := s.tx.AllocRef(path, 7, wire.BTHLen, sh, off, n)
	if b == nil {
		s.tb.Fatal("no place")
	}
	wire.BTH(b).Put(wire.RC|wire.WriteMiddle, 0, 0xFFFF, 7, 1, 0)
	s.p.Send(s.tx)
}

func (s *side) share(path *link.Path, sh *link.Share) {
	s.tb.Helper()
	s.await("share", func() bool { return s.tx.Reads(path, 7, sh) })
}

func TestPacketsByReference(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	mem, sh := buffer(t, 1<<20)
	a.share(path, sh)
	for _, at := range []struct{ off, n int }{{0, link.MinRef}, {12345, 16 << 10}, {1<<20 - link.MaxRef, link.MaxRef}} {
		a.refer(path, sh, int64(at.off), at.n)
		p := b.next()[0]
		if !p.Train || p.Epoch.Over() || p.Len() != wire.BTHLen+at.n || !bytes.Equal(p.Payload(), mem[at.off:at.off+at.n]) {
			t.Errorf("%v: train %v, over %v, %d bytes", at, p.Train, p.Epoch.Over(), p.Len())
		}
	}
	if c := a.p.Counters(); c.ShmRefs != 3 || c.ShmTxPackets != 3 {
		t.Errorf("%+v", c)
	}
	rings := (*b.in.Load())[0]
	if unix.Mprotect((*rings.shares.Load())[sh.ID].bytes, unix.PROT_READ|unix.PROT_WRITE) == nil {
		t.Error("the receiver can write the memory")
	}
	sh.Close()
	if a.tx.Reads(path, 7, sh) {
		t.Error("a closed share can be read")
	}
	b.await("end of the share", func() bool { return len(*rings.shares.Load()) == 0 })
	if _, more := buffer(t, page); func() bool { more.Close(); return a.tx.Reads(path, 7, more) }() {
		t.Error("a share that was closed before can be read")
	}
}

// TestRevoked checks that packets revoked before their receipt do not arrive, and that those revoked while they are
// copied are void.
func TestRevoked(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	_, sh := buffer(t, 1<<20)
	a.share(path, sh)
	a.refer(path, sh, 0, link.MinRef)
	a.p.Revoke(path)
	b.await("packet", func() bool { b.take(); return b.p.Counters().ShmRevoked == 1 })
	if len(b.rx.Packets) != 0 {
		t.Error("a revoked packet arrived")
	}
	if c := b.p.Counters(); c.RxPackets != 0 || c.RxBytes != 0 {
		t.Errorf("counted: %d packets, %d bytes", c.RxPackets, c.RxBytes)
	}
	a.refer(path, sh, 0, link.MinRef)
	p := b.next()[0]
	if c := b.p.Counters(); c.RxPackets != 1 || c.RxBytes != wire.BTHLen+link.MinRef {
		t.Errorf("counted: %d packets, %d bytes", c.RxPackets, c.RxBytes)
	}
	if p.Epoch.Over() {
		t.Error("void at once")
	}
	sh.Close()
	if !p.Epoch.Over() {
		t.Error("not void after Close")
	}
}

// TestLostReference checks that a packet by reference that a full ring has no place for counts as lost only.
func TestLostReference(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	_, sh := buffer(t, 1<<20)
	a.share(path, sh)
	a.fill(path)
	a.await("loss", func() bool { return a.put(path, 7, 4096, 0) })
	a.refer(path, sh, 0, link.MinRef)
	if c := a.p.Counters(); c.TxDropped != 2 || c.ShmRefs != 0 || c.TxBytes > c.TxPackets*(wire.BTHLen+4096) {
		t.Errorf("%d dropped, %d by reference, %d bytes in %d packets", c.TxDropped, c.ShmRefs, c.TxBytes, c.TxPackets)
	}
}

// TestInvalidReferences checks invalid references.
func TestInvalidReferences(t *testing.T) {
	for name, at := range map[string]struct {
		off  int64
		n    int
		drop bool // only that packet is dropped
		id   uint64
	}{
		"behind the end":   {off: 1<<20 - link.MinRef + 1, n: link.MinRef},
		"far behind":       {off: -1, n: link.MinRef},
		"too long":         {off: 0, n: link.MaxRef + 4096},
		"too short":        {off: 0, n: 64},
		"of no share":      {off: 0, n: link.MinRef, drop: true, id: 1 << 60},
		"of an odd length": {off: 0, n: link.MinRef + 1, drop: true},
	} {
		var d testDirectory
		a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
		path := a.ready(addrB, 7)
		_, sh := buffer(t, 1<<20)
		a.share(path, sh)
		id := sh.ID
		if at.id != 0 {
			sh.ID = at.id
		}
		a.refer(path, sh, at.off, at.n)
		sh.ID = id
		b.await("end: "+name, func() bool {
			if n := len(b.take()); n > 0 {
				t.Fatalf("%s: %d packets", name, n)
			}
			c := b.p.Counters()
			if at.drop {
				return c.RxMalformed+c.ShmRevoked == 1
			}
			return c.ShmBroken == 1
		})
		sh.Close()
	}
}

// TestBadShares checks that memory that is not sealed, or too short, is refused, and that the ring set continues.
func TestBadShares(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	bad := link.NewShare(file, 1<<20, 0)
	a.tx.Reads(path, 7, bad)
	rings := path.Route.(*route).rings.Load()
	a.await("answer", func() bool { return (*rings.shares.Load())[0].state.Load() == shareRefused })
	if a.tx.Reads(path, 7, bad) {
		t.Error("the share can be read")
	}
	a.put(path, 7, 8, 1)
	a.p.Send(a.tx)
	b.next()
}

func TestDirectCanBeForbidden(t *testing.T) {
	t.Setenv("VERBENA_SHM_DIRECT", "0")
	var d testDirectory
	a := d.open(t, addrA, 1)
	d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	_, sh := buffer(t, 1<<20)
	a.tx.Reads(path, 7, sh)
	rings := path.Route.(*route).rings.Load()
	a.await("answer", func() bool { return (*rings.shares.Load())[0].state.Load() == shareRefused })
}

// sender returns the sending end of a ring set, and the socket of its receiver.
func sender(t *testing.T) (l *txRings, peer *net.UnixConn) {
	t.Helper()
	c, peer := socketPair()
	t.Cleanup(func() {
		c.Close()
		peer.Close()
	})
	m, f, err := create(page)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	l = &txRings{conn: c, rings: m}
	l.shares.Store(new([]*sharing))
	if l.raw, err = c.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	return l, peer
}

// TestSharesEndWhileTheSocketIsFull checks that a receiver that reads nothing for a while is told the end of each share
// that it was told of, after it: it would keep the others mapped.
func TestSharesEndWhileTheSocketIsFull(t *testing.T) {
	l, peer := sender(t)
	_, all := buffer(t, page)
	for range 4 * maxShares {
		sh := link.NewShare(all.File, page, 0)
		l.reads(sh)
		sh.Close()
	}
	var mu sync.Mutex
	told, left := 0, map[uint64]bool{}
	go func() {
		for b := make([]byte, frameLen); ; {
			if _, err := io.ReadFull(peer, b); err != nil {
				return
			}
			mu.Lock()
			switch f := parseFrame(b); {
			case f.kind == frameShare:
				told++
				left[f.word] = true
			case left[f.word]:
				delete(left, f.word)
			default:
				t.Errorf("share %d ends before it begins", f.word)
			}
			mu.Unlock()
		}
	}()
	s := &side{tb: t}
	s.await("end of the shares", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(*l.shares.Load()) == 0 && len(left) == 0
	})
	sh := link.NewShare(all.File, page, 0)
	l.reads(sh)
	s.await("share afterwards", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return left[sh.ID]
	})
}

// TestShareOutlivesRingSets checks that a region that is registered for long keeps no ring sets that have ended.
func TestShareOutlivesRingSets(t *testing.T) {
	_, sh := buffer(t, page)
	var ended []weak.Pointer[txRings]
	for range 8 {
		l, _ := sender(t)
		l.reads(sh)
		l.end.Store(ringsClosed)
		l.conn.Close()
		ended = append(ended, weak.Make(l))
	}
	s := &side{tb: t}
	s.await("end of the ring sets", func() bool {
		runtime.GC()
		kept := 0
		for _, l := range ended {
			if l.Value() != nil {
				kept++
			}
		}
		return kept <= 1
	})
	runtime.KeepAlive(sh)
}

// TestClosedShare checks that a share whose file was closed is not sent by reference.
func TestClosedShare(t *testing.T) {
	var d testDirectory
	a, _ := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	_, sh := buffer(t, 1<<20)
	sh.File.Close()
	for range 3 {
		if a.tx.Reads(path, 7, sh) {
			t.Fatal("the share can be read")
		}
	}
}

// TestEndedShare checks that a share that has ended before the receiver was told of it is not sent by reference,
// leaves no descriptor open, and does not count in maxShares.
func TestEndedShare(t *testing.T) {
	l, _ := sender(t)
	_, sh := buffer(t, 1<<20)
	sh.Close()
	before := descriptors(t)
	for range 3 {
		if l.reads(sh) {
			t.Fatal("the share can be read")
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if known := *l.shares.Load(); len(known) != 0 {
		t.Errorf("%d shares are known, want 0", len(known))
	}
}
