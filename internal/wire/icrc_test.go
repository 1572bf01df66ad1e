package wire_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/wiretest"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian

	v4a, v4b = netip.MustParseAddr("192.168.77.2"), netip.MustParseAddr("192.168.77.3")
	v6a, v6b = netip.MustParseAddr("fd77::2"), netip.MustParseAddr("fd77::3")
)

// headers makes the IP and UDP header of a packet of n bytes, BTH to pad. In the fields that the ICRC masks it puts
// other values than the mask.
func headers(src, dst netip.Addr, sport, dport, id uint16, n int) (ip, udp []byte) {
	udp = make([]byte, 8)
	be.PutUint16(udp, sport)
	be.PutUint16(udp[2:], dport)
	be.PutUint16(udp[4:], uint16(8+n+4))
	if src.Is4() {
		ip = []byte{0x45, 3, 0, 0, 0, 0, 0x40, 0, 64, 17, 0xAB, 0xCD}
		be.PutUint16(ip[2:], uint16(20+8+n+4))
		be.PutUint16(ip[4:], id)
	} else {
		ip = []byte{0x61, 0x23, 0x45, 0x67, 0, 0, 17, 64}
		be.PutUint16(ip[4:], uint16(8+n+4))
	}
	return append(append(ip, src.AsSlice()...), dst.AsSlice()...), udp
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestICRC compares with the definition, for every length near the block sizes of the fast path.
func TestICRC(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, a := range [][2]netip.Addr{{v4a, v4b}, {v6a, v6b}, {v6a, netip.IPv6LinkLocalAllNodes()}} {
		for n := wire.BTHLen; n < 9300; n += 1 + n/200 {
			sport, dport, id, pkt := uint16(r.Uint32()), uint16(r.Uint32()), uint16(r.Uint32()), randomBytes(r, n)
			ip, udp := headers(a[0], a[1], sport, dport, id, n)
			want := wiretest.ICRC(ip, udp, pkt)
			if got := wire.NewFlow(a[0], a[1], sport, dport).ICRC(pkt, id); got != want {
				t.Fatalf("%v -> %v, %d bytes: ICRC %#x, want %#x", a[0], a[1], n, got, want)
			}
		}
	}
}

// TestICRCVector verifies an ACK of rxe, byte by byte as captured.
func TestICRCVector(t *testing.T) {
	pkt := []byte{0x11, 0, 0xFF, 0xFF, 0, 0, 0, 0x2C, 0, 0, 0x20, 0, 0x1F, 0, 0, 1, 0, 0, 0, 0}
	wire.NewFlow(v4a, v4b, 51044, wire.Port).Seal(pkt, 0xD3E4)
	if got, want := [4]byte(pkt[16:]), [4]byte{0xBD, 0x7C, 0x51, 0x63}; got != want {
		t.Errorf("ICRC % x, want % x", got, want)
	}
}

// TestFlow4in6 takes IPv4 addresses in the form of a GID.
func TestFlow4in6(t *testing.T) {
	a, b := netip.AddrFrom16(v4a.As16()), netip.AddrFrom16(v4b.As16())
	if wire.NewFlow(a, b, 1, 2) != wire.NewFlow(v4a, v4b, 1, 2) {
		t.Error("the flow of 4-in-6 addresses is not that of the IPv4 addresses")
	}
	wire.NewFlow(v4a, v6b, 1, 2) // makes no sense, must not panic
	wire.NewFlow(netip.Addr{}, netip.Addr{}, 1, 2)
}

// TestSolveID compares with brute force: the ICRCs of all identifications, for one length.
func TestSolveID(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	f := wire.NewFlow(v4a, v4b, 0xC000, wire.Port)
	for _, n := range []int{12, 16, 20, 24, 28, 76, 268, 1040, 1052, 4108, 4124, 4132, 9000, 9216} {
		pkt := randomBytes(r, n)
		zero := f.ICRC(pkt, 0)
		for id := range 1 << 16 {
			if got, ok := wire.SolveID(zero^f.ICRC(pkt, uint16(id)), n); !ok || got != uint16(id) {
				t.Fatalf("%d bytes, id %#x: SolveID gives %#x, %v", n, id, got, ok)
			}
		}
	}
}

// TestSolveIDLengths samples identifications at every length.
func TestSolveIDLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	f := wire.NewFlow(v4a, v4b, 0xC000, wire.Port)
	pkt := randomBytes(r, 9216)
	for n := wire.BTHLen; n <= len(pkt); n += 4 {
		zero := f.ICRC(pkt[:n], 0)
		for range 8 {
			id := uint16(r.Uint32())
			if got, ok := wire.SolveID(zero^f.ICRC(pkt[:n], id), n); !ok || got != id {
				t.Fatalf("%d bytes, id %#x: SolveID gives %#x, %v", n, id, got, ok)
			}
		}
	}
}

// TestSolveIDRefuses counts the random differences that SolveID accepts. Of the 2^32 differences 2^17 are valid: one
// for each of 2^16 identifications, with DF and without.
func TestSolveIDRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const tries, want = 1 << 22, 1 << 22 >> 15
	passed := 0
	for range tries {
		if _, ok := wire.SolveID(r.Uint32(), 12+4*r.IntN(1000)); ok {
			passed++
		}
	}
	if passed < want/2 || passed > want*2 {
		t.Errorf("%d of %d random differences passed, want about %d", passed, tries, want)
	}
	for _, n := range []int{-4, 13, 14, 15, 9220, 1 << 30} {
		if _, ok := wire.SolveID(0, n); ok {
			t.Errorf("SolveID accepts the length %d", n)
		}
	}
}

// TestVerifyWithoutDF accepts packets without DF, and refuses other flags and fragments.
func TestVerifyWithoutDF(t *testing.T) {
	pkt := randomBytes(rand.New(rand.NewPCG(9, 10)), 64)
	f := wire.NewFlow(v4a, v4b, 0xC000, wire.Port)
	for bits, want := range map[uint16]bool{0x4000: true, 0: true, 0x2000: false, 0x8000: false, 1: false, 0x4001: false} {
		ip, udp := headers(v4a, v4b, 0xC000, wire.Port, 0x1234, len(pkt))
		be.PutUint16(ip[6:], bits)
		b := le.AppendUint32(append([]byte(nil), pkt...), wiretest.ICRC(ip, udp, pkt))
		if id, ok := f.Verify(b, 7); ok != want || ok && id != 0x1234 {
			t.Errorf("flags and fragment offset %#04x: Verify gives %#x, %v, want %v", bits, id, ok, want)
		}
	}
}

func TestVerify(t *testing.T) {
	for _, a := range [][2]netip.Addr{{v4a, v4b}, {v6a, v6b}} {
		f := wire.NewFlow(a[0], a[1], 0xC001, wire.Port)
		b := make([]byte, 64+wire.ICRCLen)
		f.Seal(b, 5)
		if id, ok := f.Verify(b, 5); !ok || id != 5 {
			t.Errorf("%v: Verify gives %d, %v with the right guess", a[0], id, ok)
		}
		want := uint16(5)
		if a[0].Is6() {
			want = 9 // IPv6 has no identification: Verify returns the guess
		}
		if id, ok := f.Verify(b, 9); !ok || id != want {
			t.Errorf("%v: Verify gives %d, %v with a wrong guess", a[0], id, ok)
		}
		for n := range 20 {
			f.Verify(b[:n], 0) // must not panic
		}
		for n := range wire.BTHLen + wire.ICRCLen {
			if _, ok := f.Verify(make([]byte, n), 0); ok {
				t.Errorf("%v: Verify accepts %d bytes", a[0], n)
			}
		}
	}
}
