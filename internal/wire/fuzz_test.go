package wire_test

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/wiretest"
)

// FuzzPacket decodes and rebuilds each input that Parse accepts, and formats every input.
func FuzzPacket(f *testing.F) {
	for op := range layouts {
		f.Add([]byte(full(op, max(op.Info().MinData, min(op.Info().MaxData, 5))).Build()))
	}
	for _, name := range []string{"imm", "udaddy", "atomic_cas"} {
		f.Add(captures.Read(f, name)[1].Body())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		text := wire.Packet(b).String()
		p, err := wire.Parse(b)
		if (p == nil) == (err == nil) || text == "" {
			t.Fatalf("Parse gives %v and %v, String %q", p, err, text)
		}
		if err != nil {
			return
		}
		fields := p.Fields()
		again := fields.Build()
		if want := withoutReserved(p); !bytes.Equal(again, want) {
			t.Fatalf("built again:\ngot  %x\nwant %x", []byte(again), want)
		}
		if got := again.Fields(); !reflect.DeepEqual(got, fields) {
			t.Fatalf("built again and decoded:\ngot  %+v\nwant %+v", got, fields)
		}
		if !bytes.Equal(b, before) {
			t.Fatal("the packet was changed")
		}
	})
}

// withoutReserved returns the packet with all reserved bits and pad bytes 0.
func withoutReserved(p wire.Packet) []byte {
	b := bytes.Clone(p)
	in := p.Info()
	b[4] &= 0xC0
	b[8] &= 0x80
	if in.DETH != 0 {
		b[in.DETH+4] = 0
	}
	if in.XRCETH != 0 {
		b[in.XRCETH] = 0
	}
	if in.FETH != 0 {
		clear(b[in.FETH : in.FETH+3])
		b[in.FETH+3] &= 0x3F
	}
	if p.Opcode() == wire.CNP {
		clear(b[wire.BTHLen:])
	}
	clear(b[len(b)-p.BTH().Pad():])
	return b
}

// FuzzHeaders writes the headers with any numbers and reads them back; numbers with too many bits are cut.
func FuzzHeaders(f *testing.F) {
	f.Add(
		uint64(0x0123456789ABCDEF),
		uint64(0xFEDCBA9876543210),
		uint32(0x89ABCDEF),
		uint32(0x01234567),
		uint16(0xFFFF),
		uint8(0x1C),
		uint8(0x2C),
	)
	f.Fuzz(func(t *testing.T, a, b uint64, x, y uint32, k uint16, op, syn uint8) {
		const low24 = 0xFFFFFF
		bth, deth, reth := make(wire.BTH, wire.BTHLen), make(wire.DETH, wire.DETHLen), make(wire.RETH, wire.RETHLen)
		atomic, aeth := make(wire.AtomicETH, wire.AtomicETHLen), make(wire.AETH, wire.AETHLen)
		xrc, feth := make(wire.XRCETH, wire.XRCETHLen), make(wire.FETH, wire.FETHLen)
		bth.Put(wire.Opcode(op), int(syn), k, x, y, x)
		deth.Put(x, y)
		reth.Put(a, x, y)
		atomic.Put(a, x, b, a^b)
		aeth.Put(syn, x)
		xrc.Put(x)
		feth.Put(syn, op)
		for name, ok := range map[string]bool{
			"BTH": bth.Opcode() == wire.Opcode(op) && bth.Pad() == int(syn&3) && bth.PKey() == k && bth.DestQPN() == x&low24 &&
				bth.PSN() == y&low24 &&
				bth.Version() == 0 && bth.Solicited() == (x>>31 == 1) && bth.MigReq() == (x>>30&1 == 1) &&
				bth.AckReq() == (x&1 == 1) &&
				!bth.FECN() && !bth.BECN(),
			"DETH":      deth.QKey() == x && deth.SrcQPN() == y&low24,
			"RETH":      reth.Addr() == a && reth.RKey() == x && reth.DMALen() == y,
			"AtomicETH": atomic.Addr() == a && atomic.RKey() == x && atomic.SwapAdd() == b && atomic.Compare() == a^b,
			"AETH": aeth.Syndrome() == syn && aeth.MSN() == x&low24 && aeth.Timer() == syn&31 &&
				aeth.IsAck() == (syn < 0x20) && aeth.IsRNR() == (syn >= 0x20 && syn < 0x40) && wire.Syndrome(syn).String() != "",
			"XRCETH": xrc.SRQN() == x&low24,
			"FETH":   feth.Placement() == syn&15 && feth.Selectivity() == op&3,
		} {
			if !ok {
				t.Errorf("%s is read differently from what was written", name)
			}
		}
	})
}

// FuzzGRH decodes any 40 bytes; a header can be written again and reads the same.
func FuzzGRH(f *testing.F) {
	h := make(wire.GRH, wire.GRHLen)
	h.Put4(v4a, v4b, 1, 64, 280)
	f.Add(bytes.Clone(h))
	h.Put6(v6a, v6b, 1, 64, 0x12345, 280)
	f.Add(bytes.Clone(h))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < wire.GRHLen {
			return
		}
		h := wire.GRH(b[:wire.GRHLen])
		src, dst := h.SrcIP(), h.DstIP()
		if v := h.Version(); v == 0 {
			if src.IsValid() || dst.IsValid() {
				t.Fatalf("no header, but addresses %v and %v", src, dst)
			}
			return
		} else if (v == 4) != src.Is4() || (v == 4) != dst.Is4() {
			t.Fatalf("version %d with addresses %v and %v", v, src, dst)
		}
		again := make(wire.GRH, wire.GRHLen)
		if src.Is4() {
			again.Put4(src, dst, h.TClass(), h.HopLimit(), 100)
		} else {
			again.Put6(src, dst, h.TClass(), h.HopLimit(), h.FlowLabel(), 100)
		}
		if again.Version() != h.Version() || again.SrcIP() != src || again.DstIP() != dst || again.TClass() != h.TClass() ||
			again.HopLimit() != h.HopLimit() ||
			again.FlowLabel() != h.FlowLabel() {
			t.Fatalf("%x written again is %x", []byte(h), []byte(again))
		}
	})
}

// FuzzMAD decodes any bytes; the header of a MAD can be written again, except for reserved bytes.
func FuzzMAD(f *testing.F) {
	f.Add(captures.Read(f, "cm_reject")[0].Body()[wire.BTHLen+wire.DETHLen:])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.ParseMAD(b)
		if (m == nil) == (err == nil) {
			t.Fatalf("ParseMAD gives %d bytes and %v", len(m), err)
		}
		if err != nil {
			return
		}
		again := make(wire.MAD, wire.MADLen)
		copy(again.Data(), m.Data())
		again.Put(m.Header())
		want := bytes.Clone(m)
		want[18], want[19] = 0, 0
		if !bytes.Equal(again, want) || again.Header() != m.Header() {
			t.Fatalf("got  %x\nwant %x", []byte(again), want)
		}
	})
}

// FuzzICRC compares with the definition, solves for the identification, and verifies arbitrary bytes.
func FuzzICRC(f *testing.F) {
	p := captures.Read(f, "imm")[0]
	f.Add(p.Data, p.Src.AsSlice(), p.Dst.AsSlice(), p.SrcPort, p.ID, uint16(0))
	f.Add(make([]byte, 32), v6a.AsSlice(), v6b.AsSlice(), uint16(0xC000), uint16(0), uint16(0xFFFF))
	f.Fuzz(func(t *testing.T, b, srcBytes, dstBytes []byte, port, id, guess uint16) {
		src, ok1 := netip.AddrFromSlice(srcBytes)
		dst, ok2 := netip.AddrFromSlice(dstBytes)
		flow := wire.NewFlow(src, dst, port, wire.Port)
		flow.Verify(b, guess) // any input is possible: it must not panic
		if !ok1 || !ok2 || src.Is4() != dst.Is4() || src.Is4In6() || dst.Is4In6() || len(b) < wire.BTHLen || len(b) > 9000 {
			return
		}
		ip, udp := headers(src, dst, port, wire.Port, id, len(b))
		want := wiretest.ICRC(ip, udp, b)
		if got := flow.ICRC(b, id); got != want {
			t.Fatalf("ICRC %#08x, want %#08x", got, want)
		}
		if len(b)&3 != 0 {
			return
		}
		sealed := append(bytes.Clone(b), 0, 0, 0, 0)
		flow.Seal(sealed, id)
		got, ok := flow.Verify(sealed, guess)
		if !ok || src.Is4() && got != id {
			t.Fatalf("identification %#x, guess %#x: Verify gives %#x, %v", id, guess, got, ok)
		}
	})
}
