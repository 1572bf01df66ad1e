package transport

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestCopyPayload copies payloads of every length, in one piece and in two, and lets the batch seal them: the ICRC must
// match.
func TestCopyPayload(t *testing.T) {
	path := &link.Path{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2")}
	flow := wire.NewFlow(path.Src, path.Dst, 0xC000, wire.Port)
	rng := rand.New(rand.NewPCG(1, 2))
	src := make([]byte, wire.MaxPayload+64)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	const head = wire.BTHLen + wire.RETHLen
	tx := link.NewTxBatch(2, 1<<14)
	for n := 0; n <= wire.MaxPayload; n++ {
		data, cut := src[n&63:][:n], n/3
		for _, pieces := range [][][]byte{{data}, {data[:cut], data[cut:]}} {
			b := tx.Alloc(path, 17, head+(n+3)&^3)
			for i := range b {
				b[i] = byte(i) | 1
			}
			copyPayload(tx, b, head, pieces...)
			if !bytes.Equal(b[head:][:n], data) || len(bytes.Trim(b[head+n:], "\x00")) > 0 {
				t.Fatalf("%d bytes in %d pieces: payload or pad is wrong", n, len(pieces))
			}
		}
		for i := range 2 {
			whole := tx.Bytes(i)
			body := whole[:len(whole)-wire.ICRCLen]
			want := append(bytes.Clone(body), 0, 0, 0, 0)
			flow.Seal(want, 7)
			if tx.Seal(i, flow, 7); !bytes.Equal(whole, want) {
				t.Fatalf("%d bytes, %d pieces: ICRC %x, want %x", n, i+1, whole[len(body):], want[len(body):])
			}
		}
		tx.Reset()
	}
}
