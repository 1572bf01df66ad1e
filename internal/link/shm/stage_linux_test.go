package shm

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A testDirectory is a Directory over socket pairs: its processes are links of this one.
type testDirectory struct {
	mu    sync.Mutex
	links map[string]*Link
	dials int
	slow  chan struct{} // if not nil, connections are accepted when it is closed, or when the test ends
	test  context.Context
	later sync.WaitGroup // connections not yet accepted
	alien map[netip.Addr]bool
	asked int
}

// Local reports whether an address is one of this host; see Surveyor.
func (d *testDirectory) Local(a netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return !d.alien[a]
}

func (d *testDirectory) Owner(a netip.Addr, _ uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.As4()[0] == 203 { // other hosts
		return ""
	}
	return a.String()
}

func (d *testDirectory) Dial(name string) (*net.UnixConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials++
	l := d.links[name]
	if l == nil {
		return nil, unix.ECONNREFUSED
	}
	a, b := socketPair()
	if d.slow == nil {
		l.Accept(b)
		return a, nil
	}
	d.later.Go(func() {
		select {
		case <-d.slow:
		case <-d.test.Done():
		}
		l.Accept(b)
	})
	return a, nil
}

// socketPair returns a connection of unix sockets.
func socketPair() (a, b *net.UnixConn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	end := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socketpair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			panic(err)
		}
		return c.(*net.UnixConn)
	}
	return end(fds[0]), end(fds[1])
}

// A fakeLink carries no packets and counts those sent.
type fakeLink struct {
	ports  []*fakePort
	ranges bool // the QP numbers of port i have i in their upper 8 bits
}

func (l *fakeLink) Capabilities() (c link.Capabilities) {
	for i := range l.ports {
		if l.ranges {
			c.QPNs = append(c.QPNs, link.QPNRange{First: uint32(i) << 16, Last: uint32(i)<<16 | 0xFFFF})
		}
	}
	return c
}

func (*fakePort) Capabilities() link.PortCapabilities { return link.PortCapabilities{} }

type fakePort struct {
	mu    sync.Mutex
	sent  []byte // the first byte of each packet
	recvs int
	more  int // packets that Recv has yet to return
	waits int
	wake  chan struct{}
}

func newFakeLink(ports int) *fakeLink {
	l := &fakeLink{}
	for range ports {
		l.ports = append(l.ports, &fakePort{wake: make(chan struct{}, 1)})
	}
	return l
}

func (l *fakeLink) Ports() (ports []link.Port) {
	for _, p := range l.ports {
		ports = append(ports, p)
	}
	return ports
}
func (*fakeLink) SetAddrs([]netip.Addr) error { return nil }
func (*fakeLink) Join(netip.Addr) error       { return nil }
func (*fakeLink) Leave(netip.Addr) error      { return nil }
func (*fakeLink) Close() error                { return nil }

func (p *fakePort) Send(b *link.TxBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b.Packets {
		p.sent = append(p.sent, b.Bytes(i)[0])
	}
	b.Reset()
}

func (p *fakePort) Recv(b *link.RxBatch) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recvs++
	b.Packets = b.Packets[:0]
	if p.more > 0 {
		p.more--
		b.Packets = append(b.Packets, link.RxPacket{Data: make([]byte, 12)})
	}
	return len(b.Packets)
}

func (p *fakePort) Wait(d time.Duration) {
	p.mu.Lock()
	p.waits++
	p.mu.Unlock()
	var late <-chan time.Time
	if d >= 0 {
		late = time.After(d)
	}
	select {
	case <-p.wake:
	case <-late:
	}
}

func (p *fakePort) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
func (*fakePort) Counters() (c link.Counters) { return c }

var (
	addrA = netip.MustParseAddr("127.9.0.1")
	addrB = netip.MustParseAddr("127.9.0.2")
	addrC = netip.MustParseAddr("127.9.0.3")
)

// A side is a link and the state of a shard for one port.
type side struct {
	*Link
	tb   testing.TB
	addr netip.Addr
	p    *port
	tx   *link.TxBatch
	rx   link.RxBatch
	now  int64
	lost chan struct{}
}

// open opens a link in a directory.
func (d *testDirectory) open(tb testing.TB, addr netip.Addr, ports int) *side {
	tb.Helper()
	return d.openAs(tb, addr, ports, d)
}

// openAs is open with a directory that has more methods.
func (d *testDirectory) openAs(tb testing.TB, addr netip.Addr, ports int, as Directory) *side {
	tb.Helper()
	l, err := Wrap(newFakeLink(ports), as)
	if err != nil {
		tb.Fatal(err)
	}
	s := &side{Link: l.(*Link), tb: tb, addr: addr, tx: link.NewTxBatch(256, 64<<10), lost: make(chan struct{}, 16)}
	s.hold = time.Minute // machines are busy
	s.p = s.ports[0]
	s.tx.Direct, s.tx.ByReference = s.p, s.p
	s.OnLost(func() { s.lost <- struct{}{} })
	d.mu.Lock()
	if d.links == nil {
		d.links = make(map[string]*Link)
	}
	d.links[addr.String()] = s.Link
	d.test = tb.Context()
	d.mu.Unlock()
	tb.Cleanup(func() {
		s.Close()
		d.later.Wait()
	})
	return s
}

// path returns a prepared path to QP qpn at another side.
func (s *side) path(to netip.Addr, qpn uint32) *link.Path {
	p := &link.Path{Src: s.addr, Dst: to}
	s.Prepare(p, qpn)
	return p
}

// ready returns a path whose ring set is ready.
func (s *side) ready(to netip.Addr, qpn uint32) *link.Path {
	s.tb.Helper()
	p := s.path(to, qpn)
	s.await("ring set", func() bool { return p.Route.(*route).rings.Load() != nil })
	return p
}

func (s *side) await(what string, done func() bool) {
	s.tb.Helper()
	for begin := time.Now(); !done(); time.Sleep(50 * time.Microsecond) {
		if time.Since(begin) > 20*time.Second {
			s.tb.Fatalf("no %s", what)
		}
	}
}

// put places a SEND of n bytes with a number in its payload.
func (s *side) put(path *link.Path, qpn uint32, n int, number uint32) bool {
	alloc := s.tx.Alloc
	if n > wire.MaxPayload {
		alloc = s.tx.AllocTrain
	}
	b := alloc(path, qpn, wire.BTHLen+n)
	if b == nil {
		return false
	}
	wire.BTH(b).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, qpn, number&0xFFFFFF, 0)
	for i := range b[wire.BTHLen:] {
		b[wire.BTHLen+i] = byte(int(number) + i)
	}
	if n >= 4 {
		binary.LittleEndian.PutUint32(b[wire.BTHLen:], number)
	}
	return true
}

// take receives one batch.
func (s *side) take() []link.RxPacket {
	s.now += 1000
	s.rx.Now = s.now
	s.p.Recv(&s.rx)
	return s.rx.Packets
}

// next receives until there are packets.
func (s *side) next() []link.RxPacket {
	s.tb.Helper()
	var got []link.RxPacket
	s.await("packet", func() bool { got = s.take(); return len(got) > 0 })
	return got
}

func (s *side) inner(i int) *fakePort { return s.ports[i].inner.(*fakePort) }
