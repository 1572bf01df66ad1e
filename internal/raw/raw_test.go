package raw

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Headers of a frame. The expected checksums were computed independently.
const (
	ethIPv4 = "02000000000b02000000000a0800"
	ipv4UDP = "4500002000004000401126cb0a0000010a000002"
)

// rssKey and the vectors are those that Microsoft publishes for the verification of receive side scaling.
const rssKey = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"

var rssVectors = []struct {
	dst, src     string // address and port
	hash, noPort uint32
}{
	{"161.142.100.80:1766", "66.9.149.187:2794", 0x51ccc178, 0x323e8fc2},
	{"65.69.140.83:4739", "199.92.111.2:14230", 0xc626b0ea, 0xd718262a},
	{"12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b394a, 0xd2d0a5de},
	{"209.142.163.6:2217", "38.27.205.30:48228", 0xafc7327f, 0x82989176},
	{"202.188.127.2:1303", "153.39.163.191:44251", 0x10e828a2, 0x5d1809c5},
	{"[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x40207d3d, 0x2cc18cd5},
	{"[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0xdde51bbf, 0x0f0c461c},
	{"[fe80::200:f8ff:fe21:67cf]:38024", "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", 0x02d1feef, 0x4b61e985},
}

// packet makes a TCP or UDP packet in a frame.
func packet(src, dst netip.AddrPort, proto uint8) []byte {
	l4 := make([]byte, 20)
	l4[12] = 0x50
	if proto == protoUDP {
		l4 = make([]byte, 8)
		l4[5] = 8
	}
	binary.BigEndian.PutUint16(l4, src.Port())
	binary.BigEndian.PutUint16(l4[2:], dst.Port())
	b := make([]byte, 14)
	if src.Addr().Is4() {
		b[12] = 8
		ip := make([]byte, 12)
		ip[0], ip[3], ip[8], ip[9] = 0x45, byte(20+len(l4)), 64, proto
		b = append(append(append(b, ip...), src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	} else {
		b[12], b[13] = 0x86, 0xdd
		ip := make([]byte, 8)
		ip[0], ip[5], ip[6], ip[7] = 0x60, byte(len(l4)), proto, 64
		b = append(append(append(b, ip...), src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	}
	b = append(b, l4...)
	var h Headers
	Parse(b, &h)
	FillChecksums(b, &h)
	return b
}

func TestV_QPX_07_PublishedToeplitzVectors(t *testing.T) {
	key := [KeyLen]byte(unhex(t, rssKey))
	for _, v := range rssVectors {
		src, dst := netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst)
		addrs := HashSrcIPv4 | HashDstIPv4 | HashSrcIPv6 | HashDstIPv6
		for proto, ports := range map[uint8]HashFields{protoTCP: HashSrcTCP | HashDstTCP, protoUDP: HashSrcUDP | HashDstUDP} {
			b := packet(src, dst, proto)
			var h Headers
			Parse(b, &h)
			if got := Hash(&key, addrs|ports, b, &h); got != v.hash {
				t.Errorf("%s to %s: %#x, want %#x", v.src, v.dst, got, v.hash)
			}
			if got := Hash(&key, addrs, b, &h); got != v.noPort {
				t.Errorf("%s to %s without ports: %#x, want %#x", v.src, v.dst, got, v.noPort)
			}
			if got := Hash(&key, addrs|ports^(HashSrcTCP|HashDstTCP|HashSrcUDP|HashDstUDP), b, &h); got != v.noPort {
				t.Errorf("%s to %s, ports of the other protocol: %#x, want %#x", v.src, v.dst, got, v.noPort)
			}
			if got := Hash(&key, addrs|ports|HashInner, b, &h); got != 0 {
				t.Errorf("the inner headers of a frame without any: %#x", got)
			}
		}
	}
}

func TestV_WC_04_Checksums(t *testing.T) {
	b := append(unhex(t, ethIPv4+ipv4UDP), unhex(t, "04d2162e000c00006869210a")...) // UDP 1234 to 5678, "hi!\n"
	var h Headers
	if !Parse(b, &h) || h.Outer.L4 != 34 || VerifyChecksums(b, &h) {
		t.Fatalf("a UDP checksum of 0 is none: %+v", h.Outer)
	}
	FillChecksums(b, &h)
	if got := binary.BigEndian.Uint16(b[24:]); got != 0x26cb { // RFC 791: for the header above, computed independently
		t.Errorf("IPv4 checksum %#x", got)
	}
	if got := binary.BigEndian.Uint16(b[40:]); got != 0x4760 { // RFC 768: likewise
		t.Errorf("UDP checksum %#x", got)
	}
	if !VerifyChecksums(b, &h) {
		t.Error("what FillChecksums made is not right")
	}
	for bit := 14 * 8; bit < len(b)*8; bit++ { // every wrong bit behind the Ethernet header is detected
		b[bit/8] ^= 1 << (bit % 8)
		if Parse(b, &h) && VerifyChecksums(b, &h) {
			t.Errorf("bit %d is wrong, and nobody notices", bit)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	for n := range b { // and every truncation
		if Parse(b[:n], &h) && VerifyChecksums(b[:n], &h) {
			t.Errorf("%d of %d bytes are right", n, len(b))
		}
	}
	padded := append(bytes.Clone(b), make([]byte, 14)...) // like short frames
	if !Parse(padded, &h) || !VerifyChecksums(padded, &h) {
		t.Error("padding behind the packet makes it wrong")
	}
}

func TestV_WC_04_NotOverIPv6(t *testing.T) {
	b := packet(netip.MustParseAddrPort("[fd00::1]:1"), netip.MustParseAddrPort("[fd00::2]:2"), protoTCP)
	var h Headers
	Parse(b, &h)
	if VerifyChecksums(b, &h) {
		t.Error("IP_CSUM_OK is about IPv4")
	}
	if got := fold(sum(h.Outer.pseudo(b), b[h.Outer.L4:h.Outer.End])); got != 0xffff {
		t.Errorf("the TCP checksum over IPv6 is not filled in right: %#x", got)
	}
}

func TestV_WQ_06_FrameCheckSequence(t *testing.T) {
	// The residue of a frame with its FCS is a constant of the polynomial.
	b := unhex(t, "ffffffffffff02000000000a080600010800060400010200000000")
	fcs := FCS(b)
	whole := append(bytes.Clone(b), fcs[:]...)
	if got := FCS(whole); got != [4]byte{0x1c, 0xdf, 0x44, 0x21} { // 0x2144df1c
		t.Errorf("the residue is % x", got)
	}
	if got := FCS([]byte("123456789")); got != [4]byte{0x26, 0x39, 0xf4, 0xcb} { // the check value of CRC-32, 0xcbf43926
		t.Errorf("check value % x", got)
	}
}

// TestV_WR_19_Segments splits payloads of about multiples of the segment size.
func TestV_WR_19_Segments(t *testing.T) {
	const mss = 100
	for _, v6 := range []bool{false, true} {
		src, dst := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")
		if v6 {
			src, dst = netip.MustParseAddrPort("[fd00::1]:1"), netip.MustParseAddrPort("[fd00::2]:2")
		}
		for _, n := range []int{0, 1, mss - 1, mss, mss + 1, 3*mss - 1, 3 * mss, 3*mss + 1} {
			hdr := packet(src, dst, protoTCP)
			l4 := len(hdr) - 20
			binary.BigEndian.PutUint32(hdr[l4+4:], 0xffffff80) // wraps around
			hdr[l4+13] = tcpFIN | tcpPSH | tcpCWR | 0x10
			if !v6 {
				binary.BigEndian.PutUint16(hdr[16:], 0) // overwritten, whatever the program put there
				binary.BigEndian.PutUint16(hdr[18:], 0xffff)
			}
			payload := make([]byte, n)
			for i := range payload {
				payload[i] = byte(i * 7)
			}
			var g Segmenter
			if err := g.Start(bytes.Clone(hdr), mss, n); err != nil {
				t.Fatal(err)
			}
			var all []byte
			frames := max(1, (n+mss-1)/mss)
			for i := range frames {
				b := make([]byte, 200)
				h, m, ok := g.Next(b)
				if !ok || h != len(hdr) || m != min(mss, n-i*mss) {
					t.Fatalf("%d bytes, frame %d: %d and %d, %v", n, i, h, m, ok)
				}
				b = b[:h+m]
				copy(b[h:], payload[i*mss:])
				g.Finish(b)
				all = append(all, b[h:]...)
				var p Headers
				if !Parse(b, &p) || p.Outer.L4 != l4 || p.Outer.End != len(b) {
					t.Fatalf("%d bytes, frame %d: % x", n, i, b)
				}
				if !v6 && (!VerifyChecksums(b, &p) || binary.BigEndian.Uint16(b[18:]) != uint16(0xffff+i)) {
					t.Errorf("%d bytes, frame %d: checksums, or identification %#x", n, i, b[18:20])
				}
				if fold(sum(p.Outer.pseudo(b), b[l4:])) != 0xffff {
					t.Errorf("%d bytes, frame %d: TCP checksum", n, i)
				}
				if seq := binary.BigEndian.Uint32(b[l4+4:]); seq != 0xffffff80+uint32(i*mss) {
					t.Errorf("%d bytes, frame %d: sequence number %#x", n, i, seq)
				}
				flags := byte(0x10)
				if i == 0 {
					flags |= tcpCWR
				}
				if i == frames-1 {
					flags |= tcpFIN | tcpPSH
				}
				if b[l4+13] != flags {
					t.Errorf("%d bytes, frame %d: flags %#x, want %#x", n, i, b[l4+13], flags)
				}
			}
			if _, _, ok := g.Next(make([]byte, 200)); ok || !bytes.Equal(all, payload) {
				t.Errorf("%d bytes: a frame too many, or other bytes", n)
			}
		}
	}
}

func TestV_WR_19_InvalidHeaders(t *testing.T) {
	src, dst := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")
	good := packet(src, dst, protoTCP)
	bad := map[string][]byte{"UDP": packet(src, dst, protoUDP), "more than TCP": append(bytes.Clone(good), 0), "none": nil}
	for n := range good {
		bad[string(rune(n))] = good[:n]
	}
	for name, hdr := range bad {
		var g Segmenter
		if g.Start(bytes.Clone(hdr), 100, 100) == nil {
			t.Errorf("%q: accepted", name)
		}
	}
	if new(Segmenter).Start(good, 0, 1) == nil {
		t.Error("segments of 0 bytes")
	}
}

func FuzzParse(f *testing.F) {
	src, dst := netip.MustParseAddrPort("10.0.0.1:4789"), netip.MustParseAddrPort("10.0.0.2:4789")
	f.Add(packet(src, dst, protoTCP))
	vxlan := append(packet(src, dst, protoUDP), 8, 0, 0, 0, 0, 0, 1, 0)
	f.Add(append(vxlan, packet(src, dst, protoUDP)...))
	f.Add(append(packet(src, dst, 47), 0x20, 0, 0x65, 0x58, 0, 0, 0, 1))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x88\x47\x00\x01\x01\x40\x60"))
	f.Add(
		[]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x81\x00\x00\x01\x86\xdd\x60\x00\x00\x00\x00\x08\x2c\x00"),
	)
	key := [KeyLen]byte{1, 2, 3}
	rule := Rule{Flags: AllowLoopback}
	for _, t := range []SpecType{SpecEth, SpecIPv4Ext, SpecIPv6, SpecESP, SpecTCP, SpecUDP, SpecVXLAN, SpecGRE, SpecMPLS} {
		rule.Specs = append(rule.Specs, Spec{Type: t})
		if t != SpecVXLAN && t != SpecGRE {
			rule.Specs = append(rule.Specs, Spec{Type: t | SpecInner})
		}
	}
	rule.Prepare()
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Headers
		if !Parse(b, &h) {
			return
		}
		for _, s := range []*Stack{&h.Outer, &h.Inner} {
			if s.L3 >= len(b) || s.L4 >= len(b) || s.End > len(b) || s.L4 >= 0 && s.L4+l4Len(s.Proto) > s.End {
				t.Fatalf("%+v of %d bytes", s, len(b))
			}
		}
		for i := range rule.Specs {
			rule.Specs[i].matches(b, &h)
		}
		Hash(&key, HashSrcIPv4|HashDstIPv4|HashSrcTCP|HashDstTCP|HashInner, b, &h)
		Hash(&key, HashSrcIPv6|HashDstIPv6|HashSrcUDP|HashDstUDP|HashSPI, b, &h)
		VerifyChecksums(b, &h)
		var g Segmenter
		if g.Start(bytes.Clone(b), 9, 20) == nil {
			out := make([]byte, len(b)+9)
			for n, p, ok := g.Next(out); ok; n, p, ok = g.Next(out) {
				g.Finish(out[:n+p])
			}
		}
		FillChecksums(b, &h)
	})
}

func BenchmarkParseAndMatch(b *testing.B) {
	frame := packet(netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2"), protoTCP)
	var table Table
	for i := range 64 {
		r := &Rule{
			Priority: uint16(i),
			Specs: []Spec{
				{Type: SpecIPv4},
				{Type: SpecTCP, Val: Fields{DstPort: uint16(65 - i)}, Mask: Fields{DstPort: 0xffff}},
			},
		}
		table.Add(r)
	}
	a, found := arrival{b: frame}, hits(0)
	b.ReportAllocs()
	for b.Loop() {
		Parse(frame, &a.h)
		table.receive(&a, false, &found)
	}
	if int(found) != b.N {
		b.Fatal(found)
	}
}

// hits counts matches.
type hits int

func (n *hits) deliver(*Rule)     { *n++ }
func (n *hits) change(*Rule) bool { return true }

func BenchmarkToeplitz(b *testing.B) {
	key := [KeyLen]byte(unhex(b, rssKey))
	data := make([]byte, 12)
	b.ReportAllocs()
	for b.Loop() {
		Toeplitz(&key, data)
	}
}
