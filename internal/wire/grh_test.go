package wire_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/captures"
)

// dirty makes a receive buffer with other content.
func dirty() wire.GRH { return bytes.Repeat([]byte{0xEE}, wire.GRHLen) }

func TestV_GEN_03_GRHBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(h wire.GRH)
		want string
	}{
		{"IPv6", func(h wire.GRH) { h.Put6(v6a, v6b, 0xAB, 63, 0xFF12345, 280) },
			"6ab12345 0118 11 3f fd770000000000000000000000000002 fd770000000000000000000000000003"},
		{"IPv4", func(h wire.GRH) { h.Put4(v4a, v4b, 0xAB, 63, 280) },
			"0000000000000000000000000000000000000000 45ab012c 00004000 3f11 1ec0 c0a84d02 c0a84d03"},
	} {
		h := dirty()
		c.put(h)
		if want := unhex(t, c.want); !bytes.Equal(h, want) {
			t.Errorf("%s:\ngot  %x\nwant %x", c.name, []byte(h), want)
		}
	}
}

func TestGRHRoundTrip(t *testing.T) {
	for _, c := range []struct {
		src, dst  netip.Addr
		version   int
		flowLabel uint32
	}{
		{v4a, v4b, 4, 0},
		{v6a, v6b, 6, 0xABCDE},
		{netip.MustParseAddr("fe80::1"), netip.IPv6LinkLocalAllNodes(), 6, 0xFFFFF},
		{netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("239.1.1.1"), 4, 0},
		{netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("255.255.255.255"), 4, 0},
	} {
		h := dirty()
		h.Put(c.src, c.dst, 0xB8, 5, 0xF00000|c.flowLabel, 1000)
		if h.Version() != c.version || h.SrcIP() != c.src || h.DstIP() != c.dst || h.TClass() != 0xB8 || h.HopLimit() != 5 ||
			h.FlowLabel() != c.flowLabel {
			t.Errorf("%v -> %v is read as IPv%d %v -> %v, class %#x, hop limit %d, flow label %#x", c.src, c.dst,
				h.Version(), h.SrcIP(), h.DstIP(), h.TClass(), h.HopLimit(), h.FlowLabel())
		}
	}
}

// TestGRHMapped takes addresses in the 4-in-6 form, as in GIDs.
func TestGRHMapped(t *testing.T) {
	h, want := dirty(), dirty()
	h.Put(netip.AddrFrom16(v4a.As16()), netip.AddrFrom16(v4b.As16()), 0, 64, 0, 100)
	want.Put4(v4a, v4b, 0, 64, 100)
	if !bytes.Equal(h, want) {
		t.Errorf("got %x, want %x", []byte(h), []byte(want))
	}
}

// TestGRHVersion decodes buffers that have other bytes before an IPv4 header, or no header at all.
func TestGRHVersion(t *testing.T) {
	v4 := dirty()
	v4.Put4(v4a, v4b, 0, 64, 100)
	with := func(h wire.GRH, i int, v byte) wire.GRH {
		h = bytes.Clone(h)
		h[i] = v
		return h
	}
	v6 := dirty()
	v6.Put6(v6a, v6b, 0, 64, 0, 100)
	for _, c := range []struct {
		name string
		h    wire.GRH
		want int
	}{
		{"IPv4", v4, 4},
		{"IPv4 behind old bytes", with(v4, 0, 0xEE), 4},
		{"IPv4 behind what looks like IPv6", with(v4, 0, 0x60), 4},
		{"wrong IPv4 checksum behind what looks like IPv6", with(with(v4, 0, 0x60), 30, 0), 6},
		{"wrong IPv4 checksum", with(v4, 30, 0), 4},
		{"IPv4 with options", with(v4, 20, 0x46), 0},
		{"IPv6", v6, 6},
		{"IPv6 with 0x45 inside", with(v6, 20, 0x45), 6},
		{"zeros", make(wire.GRH, wire.GRHLen), 0},
	} {
		if got := c.h.Version(); got != c.want {
			t.Errorf("%s: version %d, want %d", c.name, got, c.want)
		}
		if c.want == 0 && (c.h.SrcIP().IsValid() || c.h.DstIP().IsValid()) {
			t.Errorf("%s: has the addresses %v and %v", c.name, c.h.SrcIP(), c.h.DstIP())
		}
	}
}

// TestGoldenGRH compares with the IP headers of captured UD packets. rxe sends an identification, which is in the
// receiver's header; Verbena sends 0.
func TestGoldenGRH(t *testing.T) {
	for _, name := range []string{"ud_pingpong", "ud_pingpong_ipv6", "mckey"} {
		for _, p := range captures.Read(t, name) {
			h := dirty()
			n := 8 + len(p.Data)
			h.Put(p.Src, p.Dst, 0, hopLimit(&p), 0, n)
			want := p.IP
			got := []byte(h[wire.GRHLen-len(want):])
			if p.Src.Is4() {
				want = bytes.Clone(want)
				sum := uint32(be.Uint16(want[10:])) + uint32(p.ID) // the identification is part of the checksum
				be.PutUint16(want[4:], 0)
				be.PutUint16(want[10:], uint16(sum>>16+sum))
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, packet %d:\ngot  %x\nwant %x", name, p.N, got, want)
			}
		}
	}
}

func hopLimit(p *captures.Packet) uint8 {
	if p.Src.Is4() {
		return p.IP[8]
	}
	return p.IP[7]
}
