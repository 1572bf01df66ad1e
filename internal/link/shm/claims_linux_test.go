package shm

import (
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Tests of the limits for processes of the same user.

// sealed returns a memfd of a size, with flags and all seals that attach requires.
func sealed(t *testing.T, size int64, flags int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, needSeals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestHugePagesAreRefused checks that memory of the pool of huge pages is refused, whether or not the pool is empty:
// it could be empty later.
func TestHugePagesAreRefused(t *testing.T) {
	fd := sealed(t, 2<<20, unix.MFD_HUGETLB)
	if _, err := attach(fd, 2<<20); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("attach: %v", err)
	}
}

// TestNoHolesInMemory checks that no hole can be punched into attached memory, through the descriptor or through a
// mapping.
func TestNoHolesInMemory(t *testing.T) {
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, page); err != nil {
		t.Fatal(err)
	}
	writable, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(writable) }()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, needSeals); err != nil {
		t.Fatal(err)
	}
	if _, err := attach(fd, page); err != nil {
		t.Fatal(err)
	}
	if unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, page) == nil {
		t.Error("punched a hole through the descriptor")
	}
	writable[0] = 1
	if err := unix.Madvise(writable, unix.MADV_REMOVE); err == nil && writable[0] == 0 { // qemu-user does nothing
		t.Error("punched a hole through the mapping")
	}
}

// TestForeignMemoryIsBounded checks that the memory of peers that this process maps is limited, and unmapped.
func TestForeignMemoryIsBounded(t *testing.T) {
	q := quota{maxBytes: 10 * page, maxMaps: 3}
	for _, size := range []int{9 * page, page} {
		if err := q.add(size); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.add(page); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("too many bytes: %v", err)
	}
	q.drop(9 * page)
	if errors.Join(q.add(page), q.add(page)) != nil || q.add(page) == nil {
		t.Error("3 mappings are allowed")
	}
	l := new(rxRings)
	l.shares.Store(new(map[uint64]*memory))
	if err := l.open(1, sealed(t, page, 0), 1<<32-1); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("a share of 16 TiB: %v", err)
	}
	before := mappedMemory.used()
	func() {
		if _, err := attach(sealed(t, 5*page, 0), 5*page); err != nil {
			t.Fatal(err)
		}
	}()
	if got := mappedMemory.used(); got < before {
		t.Logf("memory of other tests was released meanwhile: %d, %d", before, got)
	}
	for begin := time.Now(); mappedMemory.used() > before; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Since(begin) > 10*time.Second {
			t.Fatalf("%d bytes, then %d", before, mappedMemory.used())
		}
	}
}

func (q *quota) used() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// TestForeignSourcesAreDropped checks that packets of any kind are dropped if their source is not an address of this
// host, and others are received.
func TestForeignSourcesAreDropped(t *testing.T) {
	var d testDirectory
	alien := netip.MustParseAddr("10.1.2.3")
	d.alien = map[netip.Addr]bool{alien: true}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	honest := a.ready(addrB, 7)
	lie := *honest
	lie.Src = alien
	for range 5 {
		a.put(&lie, 7, 8, 1)
		a.put(&lie, 7, 2000, 1)
		a.put(&lie, 7, maxTrain, 1)
		a.put(honest, 7, 8, 2)
		a.p.Send(a.tx)
		got := b.next()
		if len(got) != 1 || got[0].Src != addrA {
			t.Fatalf("%d packets, the first from %v", len(got), got[0].Src)
		}
	}
	if n := b.p.Counters().ShmForeign; n != 15 {
		t.Errorf("%d packets were counted, want 15", n)
	}
	if d.asked != 2 {
		t.Errorf("%d checks for two addresses", d.asked)
	}
	// Later the address belongs to this host.
	d.mu.Lock()
	delete(d.alien, alien)
	d.mu.Unlock()
	b.now += sourceAge
	a.put(&lie, 7, 8, 3)
	a.p.Send(a.tx)
	if got := b.next(); len(got) != 1 || got[0].Src != alien {
		t.Errorf("%d packets", len(got))
	}
}

// TestSourceChecksAreLimited checks that a sender that uses many sources causes few checks.
func TestSourceChecksAreLimited(t *testing.T) {
	asked := 0
	s := sources{local: func(netip.Addr) bool { asked++; return false }}
	l, honest := new(rxRings), new(rxRings)
	now := int64(1e9)
	for i := range 100_000 {
		if i%100 == 0 {
			now += checkPause / 10
		}
		if s.admit(l, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now) {
			t.Fatal("admitted")
		}
	}
	if asked > freeChecks+101 {
		t.Errorf("%d checks in 100 ms", asked)
	}
	if n := len(s.known); n > maxSource {
		t.Errorf("%d addresses are remembered", n)
	}
	s.local = func(netip.Addr) bool { return true }
	if !s.admit(honest, addrA, now) {
		t.Error("the address of another sender is not checked")
	}
}

// TestLocal checks which addresses the kernel considers local.
func TestLocal(t *testing.T) {
	var s Sockets
	for addr, want := range map[string]bool{
		"127.0.0.1": true, "127.9.0.1": true, "192.0.2.77": false, "255.255.255.255": false, "0.0.0.0": false,
		"224.0.0.1":       false,
		"127.255.255.255": false, "2001:db8::77": false, "::": false, "ff02::1": false, "fe80::1234:5678:9abc:def0": false,
	} {
		if got := s.Local(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err != nil || !s.Local(p.Addr()) {
			t.Errorf("%v is not local (%v)", a, err)
		}
	}
	if s.Local(netip.Addr{}) {
		t.Error("no address is local")
	}
}

// TestSlowHandshakesAreBounded checks that handshakes in progress are limited, and that the next process receives a
// bye.
func TestSlowHandshakesAreBounded(t *testing.T) {
	var d testDirectory
	b := d.open(t, addrB, 1)
	before := descriptors(t)
	var mine []*net.UnixConn
	for range 3 * maxIncoming {
		c, theirs := socketPair()
		b.Accept(theirs)
		mine = append(mine, c)
	}
	// A handshake may have a file open for a moment, as package peeruser the first time.
	b.await("the limit of descriptors", func() bool { return descriptors(t)-before <= len(mine)+maxIncoming })
	_, err := dialRings(mine[len(mine)-1], 1)
	if err == nil || ended(err) {
		t.Errorf("a handshake beyond the limit: %v", err)
	}
	for _, c := range mine {
		c.Close()
	}
	b.await("end of them", func() bool { return descriptors(t) <= before })
	a := d.open(t, addrA, 1)
	a.ready(addrB, 7)
}

// TestRingSetsAreBounded checks that a link has no more ring sets than allowed, and that packets of the others go
// over the other link.
func TestRingSetsAreBounded(t *testing.T) {
	var d testDirectory
	a, b, c := d.open(t, addrA, 1), d.open(t, addrB, 1), d.open(t, addrC, 1)
	b.ringSets = 1
	a.ready(addrB, 7)
	p := c.path(addrB, 7)
	c.await("another way", func() bool { return p.Route.(*route).state.Load() == routeOther })
	if got := c.Lost(p); got != link.NotLost {
		t.Errorf("%v", got)
	}
}

// TestListenerOutlivesErrors checks that a listener survives a lack of descriptors.
func TestListenerOutlivesErrors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "socket")
	var s Sockets
	got := make(chan *net.UnixConn, 1)
	s.Listen([]string{name}, func(c *net.UnixConn) { got <- c })
	defer s.Listen(nil, nil)
	l := s.listeners[name]
	if err := l.SetDeadline(time.Now()); err != nil { // an error of Accept
		t.Fatal(err)
	}
	time.Sleep(2 * acceptPause)
	if err := l.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Dial(name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case c := <-got:
		c.Close()
	case <-time.After(10 * time.Second):
		t.Fatal("no connection is accepted")
	}
}

// TestListenAtTheOtherNames checks that a name that is taken does not prevent the others.
func TestListenAtTheOtherNames(t *testing.T) {
	dir := t.TempDir()
	taken, free := filepath.Join(dir, "none", "socket"), filepath.Join(dir, "socket")
	var s Sockets
	got := make(chan *net.UnixConn, 1)
	s.Listen([]string{taken, free}, func(c *net.UnixConn) { got <- c })
	defer s.Listen(nil, nil)
	c, err := s.Dial(free)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case c := <-got:
		c.Close()
	case <-time.After(10 * time.Second):
		t.Fatal("no connection is accepted")
	}
}
