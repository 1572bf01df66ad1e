package udp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A rawSender is a plain socket that sends unmodified datagrams to a link.
type rawSender struct {
	*net.UDPConn
	to   netip.AddrPort
	flow wire.Flow
}

func newRawSender(t *testing.T, a netip.Addr, port uint16) rawSender {
	t.Helper()
	c, err := net.ListenUDP(network(a), net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	source := c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	return rawSender{c, netip.AddrPortFrom(a, port), wire.NewFlow(a, a, source, port)}
}

func (s rawSender) send(t *testing.T, b []byte) {
	t.Helper()
	if _, err := s.WriteToUDPAddrPort(b, s.to); err != nil {
		t.Fatal(err)
	}
}

// sealed returns a packet of n bytes, BTH to pad, with the ICRC for the given identification.
func (s rawSender) sealed(n int, seq uint32, id uint16) []byte {
	b := make([]byte, n+wire.ICRCLen)
	fill(b[:n], 1, seq)
	s.flow.Seal(b, id)
	return b
}

// awaitCount waits until the port has counted n packets of any kind.
func awaitCount(t *testing.T, p link.Port, n uint64) link.Counters {
	t.Helper()
	var rx link.RxBatch
	for deadline := time.Now().Add(20 * time.Second); ; {
		p.Recv(&rx)
		c := p.Counters()
		if c.RxPackets+c.RxICRCErrors+c.RxMalformed >= n {
			return c
		}
		if time.Now().After(deadline) {
			t.Fatalf("counters %+v, want %d packets in all", c, n)
		}
		p.Wait(10 * time.Millisecond)
	}
}

// TestAnyIdentification sends with increasing IPv4 identifications, as rxe and NICs do.
func TestAnyIdentification(t *testing.T) { kinds(t, testAnyIdentification) }

func testAnyIdentification(t *testing.T) {
	for _, a := range loopbacks {
		l := open(t, Config{Addrs: []netip.Addr{a}, Port: testPort(t)})
		port := portOf(l)
		s := newRawSender(t, a, port)
		id := uint16(0xFFF0)
		for i, n := range []int{12, 16, 300, 1036, 4108, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12} {
			want := s.sealed(n, uint32(i), id)
			s.send(t, want)
			got := receive(t, l.Ports()[0], 1)
			if !bytes.Equal(got[0].Data, want[:n]) {
				t.Fatalf("%v, identification %d: wrong bytes arrived", a, id)
			}
			if id++; i%5 == 4 {
				id = uint16(rand.Uint32())
			}
		}
		if c := l.Ports()[0].Counters(); c.RxICRCErrors+c.RxMalformed != 0 {
			t.Errorf("%v: counters %+v, want no errors", a, c)
		}
	}
}

func portOf(l link.Link) uint16 {
	if p, ok := l.(*plainLink); ok {
		return p.cfg.Port
	}
	return configOf(l).Port
}

func TestBadICRC(t *testing.T) { kinds(t, testBadICRC) }

func testBadICRC(t *testing.T) {
	for _, a := range loopbacks {
		l := open(t, Config{Addrs: []netip.Addr{a}, Port: testPort(t)})
		s := newRawSender(t, a, portOf(l))
		const n = 200
		for i := range n {
			b := s.sealed(100, uint32(i), 0)
			// Byte 4 of the BTH is not covered, and a change of the other header bytes can make the
			// packet malformed.
			bit := 8*wire.BTHLen + rand.IntN(8*(len(b)-wire.BTHLen))
			b[bit/8] ^= 1 << (bit % 8)
			s.send(t, b)
			if i%20 == 19 {
				awaitCount(t, l.Ports()[0], uint64(i))
			}
		}
		c := awaitCount(t, l.Ports()[0], n)
		// Over IPv4 the ICRC has 16 bits of redundancy: one in 65536 of these packets is accepted.
		if c.RxICRCErrors < n-2 || c.RxMalformed != 0 || a.Is6() && c.RxICRCErrors != n {
			t.Errorf("%v: counters %+v, want %d ICRC errors", a, c, n)
		}
		s.send(t, s.sealed(100, 1, 0))
		receive(t, l.Ports()[0], 1)
	}
}

func TestMalformed(t *testing.T) { kinds(t, testMalformed) }

func testMalformed(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	s := newRawSender(t, lo4, portOf(l))
	sent := uint64(0)
	send := func(b []byte) { s.send(t, b); sent++ }
	for n := range 16 {
		send(make([]byte, n))
	}
	whole := s.sealed(100, 1, 0)
	for n := 1; n < len(whole); n += 7 {
		send(whole[:n])
	}
	opcode := s.sealed(100, 1, 0)
	opcode[0] = 0x1F
	send(opcode)
	version := s.sealed(100, 1, 0)
	version[1] |= 1
	send(version)
	for _, n := range []int{4112, 4200, 4352, 4356, 9000, 60000} { // longer than any packet may be
		send(s.sealed(n, 1, 0))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := make([]byte, random.IntN(5000))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		send(b)
		if sent%20 == 0 {
			awaitCount(t, l.Ports()[0], sent) // before the socket's buffer is full
		}
	}
	c := awaitCount(t, l.Ports()[0], sent)
	if c.RxPackets != 0 || c.RxMalformed < 300 {
		t.Errorf("counters %+v, want nothing accepted", c)
	}
	s.send(t, whole)
	if got := receive(t, l.Ports()[0], 1); !bytes.Equal(got[0].Data, whole[:100]) {
		t.Error("a valid packet after the invalid ones arrives with wrong bytes")
	}
}

// TestShards checks that a packet arrives at the port of its QPN.
func TestShards(t *testing.T) { kinds(t, testShards) }

func testShards(t *testing.T) {
	for _, a := range loopbacks {
		for _, n := range []int{1, 2, 3, 8} {
			t.Run(fmt.Sprint(a, n), func(t *testing.T) {
				l := open(t, Config{Addrs: []netip.Addr{a}, Ports: n, Port: testPort(t)})
				if len(l.Ports()) != n {
					t.Fatalf("%d ports, want %d", len(l.Ports()), n)
				}
				path := &link.Path{Src: a, Dst: a}
				tx := link.NewTxBatch(1, 1000)
				want := make([]int, n)
				for i := range 100 {
					qpn := rand.Uint32() & 0xFFFFFF
					want[int(qpn)%n]++
					fill(tx.Alloc(path, 1, 40), qpn, qpn)
					l.Ports()[i%n].Send(tx)
				}
				for i, p := range l.Ports() {
					for _, pkt := range receive(t, p, want[i]) {
						if qpn := wire.BTH(pkt.Data).DestQPN(); int(qpn)%n != i {
							t.Errorf("a packet for QPN %d came to port %d of %d", qpn, i, n)
						}
					}
				}
			})
		}
	}
}
