package wire_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// benchSizes are payloads in bytes: a small message and a full packet.
var benchSizes = []int{64, 4096}

// writeOnly builds an RDMA WRITE ONLY of n payload bytes with room for the ICRC, as the data path does.
func writeOnly(b []byte, n int) {
	wire.BTH(b).Put(wire.RC|wire.WriteOnly, 0, 0xFFFF, 17, 0x123456, wire.BTHAckReq)
	wire.RETH(b[wire.BTHLen:]).Put(0x7F0012345678, 0x1234, uint32(n))
}

// sealedWrite builds the packet of writeOnly with its ICRC, for identification id.
func sealedWrite(n int, f wire.Flow, id uint16) []byte {
	b := make([]byte, wire.BTHLen+wire.RETHLen+n+wire.ICRCLen)
	writeOnly(b, n)
	copy(b[wire.BTHLen+wire.RETHLen:], randomBytes(rand.New(rand.NewPCG(5, 6)), n))
	f.Seal(b, id)
	return b
}

// bench runs step on a packet of each size; bytes reports whether a rate in bytes is meaningful.
func bench(b *testing.B, bytes bool, step func(pkt []byte, f wire.Flow)) {
	f := wire.NewFlow(v4a, v4b, 0xC000, wire.Port)
	for _, n := range benchSizes {
		pkt := sealedWrite(n, f, 0x1234)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			if bytes {
				b.SetBytes(int64(len(pkt)))
			}
			for b.Loop() {
				step(pkt, f)
			}
		})
	}
}

var (
	sink uint64
	flow wire.Flow
)

func BenchmarkParse(b *testing.B) {
	bench(b, false, func(pkt []byte, _ wire.Flow) {
		p, err := wire.Parse(pkt[:len(pkt)-wire.ICRCLen])
		if err != nil {
			b.Fatal(err)
		}
		sink += p.RETH().Addr() + uint64(p.BTH().PSN()) + uint64(len(p.Payload()))
	})
}

func BenchmarkBuild(b *testing.B) {
	bench(b, false, func(pkt []byte, _ wire.Flow) { writeOnly(pkt, len(pkt)) })
}

func BenchmarkSeal(b *testing.B) {
	bench(b, true, func(pkt []byte, f wire.Flow) { f.Seal(pkt, 0x1234) })
}

// BenchmarkVerify verifies packets of known identification: those of Verbena, and IPv6.
func BenchmarkVerify(b *testing.B) {
	bench(b, true, func(pkt []byte, f wire.Flow) {
		if _, ok := f.Verify(pkt, 0x1234); !ok {
			b.Fatal("not verified")
		}
	})
}

// BenchmarkVerifySolve verifies packets of unknown identification, such as rxe's.
func BenchmarkVerifySolve(b *testing.B) {
	bench(b, true, func(pkt []byte, f wire.Flow) {
		if id, ok := f.Verify(pkt, 0); !ok || id != 0x1234 {
			b.Fatal("not verified")
		}
	})
}

// BenchmarkVerifyNewFlow makes a new flow for each packet, as a link without a cache of flows does.
func BenchmarkVerifyNewFlow(b *testing.B) {
	for _, a := range []struct {
		name string
		f    func() wire.Flow
	}{
		{"IPv4", func() wire.Flow { return wire.NewFlow(v4a, v4b, 0xC000, wire.Port) }},
		{"IPv6", func() wire.Flow { return wire.NewFlow(v6a, v6b, 0xC000, wire.Port) }},
	} {
		b.Run(a.name, func(b *testing.B) {
			pkt := sealedWrite(64, a.f(), 0)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := a.f().Verify(pkt, 0); !ok {
					b.Fatal("not verified")
				}
			}
		})
	}
}

func BenchmarkSolveID(b *testing.B) {
	b.ReportAllocs()
	for i := range b.N {
		id, _ := wire.SolveID(uint32(i)*0x9E3779B9, 4124)
		sink += uint64(id)
	}
}

// TestNoAllocs proves that the data path does not allocate, for refused packets neither.
func TestNoAllocs(t *testing.T) {
	f := wire.NewFlow(v4a, v4b, 0xC000, wire.Port)
	pkt := sealedWrite(4096, f, 0x1234)
	bad := sealedWrite(64, f, 0)
	bad[0] = 0xFF
	grh := make(wire.GRH, wire.GRHLen)
	for _, c := range []struct {
		name string
		step func()
	}{
		{"parse", func() {
			p, _ := wire.Parse(pkt[:len(pkt)-wire.ICRCLen])
			sink += p.RETH().Addr() + uint64(len(p.Payload()))
		}},
		{"parse bad", func() { _, err := wire.Parse(bad); sink += uint64(len(err.Error())) }},
		{"build", func() { writeOnly(pkt, 4096) }},
		{"seal", func() { f.Seal(pkt, 0x1234) }},
		{"verify", func() { f.Verify(pkt, 0x1234) }},
		{"verify, solve", func() { f.Verify(pkt, 0) }},
		{"verify bad", func() { f.Verify(bad, 0) }},
		{"flow", func() { flow = wire.NewFlow(v6a, v6b, 1, wire.Port); flow = wire.NewFlow(v4a, v4b, 1, wire.Port) }},
		{"GRH", func() {
			grh.Put(v4a, v4b, 1, 64, 0, 99)
			grh.Put(v6a, v6b, 1, 64, 2, 99)
			sink += uint64(grh.SrcIP().BitLen())
		}},
	} {
		if n := testing.AllocsPerRun(100, c.step); n != 0 {
			t.Errorf("%s: %v allocations, want none", c.name, n)
		}
	}
}
