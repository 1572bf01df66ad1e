package udp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

var (
	lo4  = netip.MustParseAddr("127.0.0.1")
	lo4b = netip.MustParseAddr("127.0.0.2")
	lo4c = netip.MustParseAddr("127.0.0.3")
	lo6  = netip.IPv6Loopback()

	// loopbacks are the loopback addresses of this machine: many containers have no IPv6.
	loopbacks = func() []netip.Addr {
		c, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
		if err != nil {
			return []netip.Addr{lo4}
		}
		c.Close()
		return []netip.Addr{lo4, lo6}
	}()
)

// kinds runs a test with each kind of link of this system.
func kinds(t *testing.T, test func(t *testing.T)) {
	t.Run("plain", func(t *testing.T) {
		t.Setenv("VERBENA_UDP", "plain")
		test(t)
	})
	if runtime.GOOS == "linux" && os.Getenv("VERBENA_UDP") != "plain" {
		t.Run("batched", test)
	}
}

// separate returns an error unless this system binds one port at two addresses of loopback, and refuses foreign ones.
// macOS has 127.0.0.1 only; Wine 8 binds sockets at most addresses to all addresses.
var separate = sync.OnceValue(func() error {
	one, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(lo4, 0)))
	if err != nil {
		return err
	}
	defer one.Close()
	port := one.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	two, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(lo4b, port)))
	if err != nil {
		return err
	}
	return two.Close()
})

// needSeparate skips a test of sockets at several addresses where the system has none.
func needSeparate(t testing.TB) {
	t.Helper()
	if err := separate(); err != nil {
		t.Skipf("this system has no second loopback address for sockets: %v", err)
	}
}

// testPort returns a UDP port that is free at the loopback addresses.
func testPort(t testing.TB) uint16 {
	t.Helper()
	for range 1000 {
		port := uint16(20000 + rand.IntN(10000))
		l, err := Open(Config{Addrs: loopbacks, Port: port})
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// open opens a link and closes it when the test ends.
func open(t testing.TB, cfg Config) link.Link {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pair opens two links, at a and b, that send to each other.
func pair(t testing.TB, cfg Config, a, b netip.Addr) (la, lb link.Link) {
	t.Helper()
	cfg.Port = testPort(t)
	cfg.RecvBuffer = 212992 // the default limit of Linux
	cfg.Addrs = []netip.Addr{a}
	la = open(t, cfg)
	if a == b {
		return la, la
	}
	cfg.Addrs = []netip.Addr{b}
	return la, open(t, cfg)
}

// fill makes pkt an RC SEND ONLY for a QPN, with content that depends on seq.
func fill(pkt []byte, qpn, seq uint32) {
	wire.BTH(pkt).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, qpn, seq, 0)
	for i := wire.BTHLen; i < len(pkt); i++ {
		pkt[i] = byte(uint32(i)*31 + seq)
	}
}

// receive receives n packets, and returns copies of them.
func receive(t testing.TB, p link.Port, n int) (all []link.RxPacket) {
	t.Helper()
	var b link.RxBatch
	for deadline := time.Now().Add(20 * time.Second); len(all) < n; {
		if p.Recv(&b) == 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%d packets have come, want %d; counters %+v", len(all), n, p.Counters())
			}
			p.Wait(100 * time.Millisecond)
		}
		for _, pkt := range b.Packets {
			pkt.Data = bytes.Clone(pkt.Data)
			all = append(all, pkt)
		}
	}
	return all
}

var sizes = []int{12, 16, 20, 24, 28, 100, 256, 1024, 1052, 2048, 4096, 4108}

func TestLoopback(t *testing.T) { kinds(t, testLoopback) }

func testLoopback(t *testing.T) {
	ends := [][2]netip.Addr{{lo4, lo4b}}
	for _, a := range loopbacks {
		ends = append(ends, [2]netip.Addr{a, a})
	}
	for _, addrs := range ends {
		for _, off := range []Config{{}, {NoGSO: true}, {NoGRO: true}, {NoGSO: true, NoGRO: true}} {
			t.Run(fmt.Sprintf("%v,GSO=%v,GRO=%v", addrs[1], !off.NoGSO, !off.NoGRO), func(t *testing.T) {
				if addrs[1] == lo4b {
					needSeparate(t)
				}
				a, b := pair(t, off, addrs[0], addrs[1])
				n := uint64(0)
				for seq := range uint32(20) {
					n += exchangeBatch(t, a.Ports()[0], b.Ports()[0], &link.Path{Src: addrs[0], Dst: addrs[1]}, seq<<12)
				}
				if c := a.Ports()[0].Counters(); c.TxPackets != n || c.TxDropped != 0 {
					t.Errorf("sender counts %+v, want %d packets", c, n)
				}
				if c := b.Ports()[0].Counters(); c.RxPackets != n || c.RxICRCErrors+c.RxMalformed != 0 {
					t.Errorf("receiver counts %+v, want %d packets", c, n)
				}
			})
		}
	}
}

// exchangeBatch sends runs of packets of random sizes, which the smallest socket buffer holds, and checks that all
// arrive in order.
func exchangeBatch(t *testing.T, from, to link.Port, path *link.Path, seq uint32) uint64 {
	t.Helper()
	var want [][]byte
	tx := link.NewTxBatch(1000, 1<<20)
	for room := 60000; room > 0; {
		size := sizes[rand.IntN(len(sizes))]
		for range 1 + rand.IntN(70) {
			pkt := tx.Alloc(path, 1, size)
			fill(pkt, 5, seq)
			want = append(want, bytes.Clone(pkt))
			seq++
			if room -= size + 500; room < 0 {
				break
			}
		}
	}
	from.Send(tx)
	if !tx.Empty() {
		t.Error("Send left packets in the batch")
	}
	for i, g := range receive(t, to, len(want)) {
		if !bytes.Equal(g.Data, want[i]) {
			t.Fatalf("packet %d of %d: %d bytes came for %d, or other bytes", i, len(want), len(g.Data), len(want[i]))
		}
		if g.Src != path.Src || g.Dst != path.Dst || g.TClass != 0 || g.HopLimit != 64 {
			t.Fatalf("packet %d: %v -> %v, class %d, hop limit %d", i, g.Src, g.Dst, g.TClass, g.HopLimit)
		}
	}
	return uint64(len(want))
}

// TestTooLong checks that a packet that is too long is counted and recorded in its path, and that the packets around
// it are sent. Every system refuses a packet longer than a UDP datagram in this way.
func TestTooLong(t *testing.T) { kinds(t, testTooLong) }

func testTooLong(t *testing.T) {
	const long = 1 << 16
	for _, to := range loopbacks {
		l := open(t, Config{Addrs: []netip.Addr{to}, Port: testPort(t)})
		p := l.Ports()[0]
		path := &link.Path{Src: to, Dst: to, Private: true}
		nobody := &link.Path{Src: to, Dst: to}
		tx := link.NewTxBatch(4, 4*long)
		for seq, n := range []int{100, long, 100, long} {
			at := path
			if seq == 3 {
				at = nobody
			}
			fill(tx.Alloc(at, 1, n), 5, uint32(seq))
		}
		p.Send(tx)
		receive(t, p, 2)
		if c := p.Counters(); c.TxDropped != 2 || c.TxTooLong != 2 || c.TxPackets != 2 {
			t.Errorf("%v: %+v", to, c)
		}
		headers := 20 + 8
		if to.Is6() {
			headers = 40 + 8
		}
		if want := link.RefusalOf(syscall.EMSGSIZE, long+wire.ICRCLen+headers); path.Refused != want {
			t.Errorf("%v: %+v, want %+v", to, path.Refused, want)
		}
	}
}
