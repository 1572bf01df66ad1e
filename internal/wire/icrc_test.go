package wire

import (
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"testing"
)

var (
	v4a, v4b = netip.MustParseAddr("192.168.77.2"), netip.MustParseAddr("192.168.77.3")
	v6a, v6b = netip.MustParseAddr("fd77::2"), netip.MustParseAddr("fd77::3")
)

// slowICRC is the ICRC as its definition reads: copy, mask, one CRC over all.
func slowICRC(ip, udp, pkt []byte) uint32 {
	all := []byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
	h := len(all)
	all = append(all, ip...)
	if ip[0]>>4 == 4 {
		for _, i := range []int{1, 8, 10, 11} {
			all[h+i] = 0xFF
		}
	} else {
		all[h] |= 0x0F
		for _, i := range []int{1, 2, 3, 7} {
			all[h+i] = 0xFF
		}
	}
	h = len(all)
	all = append(all, udp...)
	all[h+6], all[h+7] = 0xFF, 0xFF
	h = len(all)
	all = append(all, pkt...)
	all[h+4] = 0xFF
	return crc32.ChecksumIEEE(all)
}

// headers makes the IP and UDP header of a packet of n bytes, BTH to pad.
func headers(src, dst netip.Addr, sport, dport, id uint16, n int) (ip, udp []byte) {
	udp = make([]byte, udpLen)
	be.PutUint16(udp, sport)
	be.PutUint16(udp[2:], dport)
	be.PutUint16(udp[4:], uint16(udpLen+n+ICRCLen))
	if src.Is4() {
		ip = make([]byte, ipv4Len)
		ip[0], ip[1], ip[6], ip[8], ip[9], ip[10], ip[11] = 0x45, 3, flagDF, 64, 17, 0xAB, 0xCD
		be.PutUint16(ip[2:], uint16(ipv4Len+udpLen+n+ICRCLen))
		be.PutUint16(ip[4:], id)
		copy(ip[12:], src.AsSlice())
		copy(ip[16:], dst.AsSlice())
	} else {
		ip = make([]byte, ipv6Len)
		ip[0], ip[1], ip[3], ip[6], ip[7] = 0x60, 0x12, 0x34, 17, 64
		be.PutUint16(ip[4:], uint16(udpLen+n+ICRCLen))
		copy(ip[8:], src.AsSlice())
		copy(ip[24:], dst.AsSlice())
	}
	return ip, udp
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
	for _, a := range [][2]netip.Addr{{v4a, v4b}, {v6a, v6b}, {v6a, netip.IPv6Unspecified()}} {
		for n := BTHLen; n < 9000; n += 1 + n/200 {
			sport, id, pkt := uint16(r.Uint32()), uint16(r.Uint32()), randomBytes(r, n)
			ip, udp := headers(a[0], a[1], sport, Port, id, n)
			want := slowICRC(ip, udp, pkt)
			if got := NewFlow(a[0], a[1], sport, Port).ICRC(pkt, id); got != want {
				t.Fatalf("%v -> %v, %d bytes: ICRC %#x, want %#x", a[0], a[1], n, got, want)
			}
		}
	}
}

func TestSolveID(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	f := NewFlow(v4a, v4b, 0xC000, Port)
	for n := BTHLen; n <= maxSolve; n += 4 + 4*r.IntN(32) {
		pkt := randomBytes(r, n)
		zero := f.ICRC(pkt, 0)
		for range 50 {
			id := uint16(r.Uint32())
			if got, ok := SolveID(zero^f.ICRC(pkt, id), n); !ok || got != id {
				t.Fatalf("%d bytes, id %#x: SolveID gives %#x, %v", n, id, got, ok)
			}
		}
	}
}
