package cm

import (
	"net/netip"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// newBoard returns a board in memory of this process.
func newBoard() *board.Board {
	words := make([]uint64, board.Len/8)
	return board.New(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), board.Len))
}

// TestForeign: the process that reads QP 1 limits requests for a flooded process by its board, and passes those of the
// sources that it knows; other datagrams, and those of the other kind, are not limited.
func TestForeign(t *testing.T) {
	m := New(Config{Seed: [32]byte{8: 4}})
	b, r := newBoard(), &requests{}
	known, stranger := netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("198.51.100.7")
	early, late := sourceKey(known, 9), sourceKey(known, 10)
	m.guard.know(early, true) // before the board is there
	m.guard.Show([]*board.Board{b})
	m.guard.know(late, true)
	b.Flood(board.Connect) // of an earlier owner
	f := newForeign(b)
	f.refused = &refusals{} // other tests have requests of the same sources
	clock := int64(5000 * millisecond)
	f.now = func() int64 { return clock }
	passed := func(n int, mad func() []byte) (passed int) {
		for range n {
			if !f.Drop(mad()) {
				passed++
			}
		}
		return passed
	}
	unknown := func() []byte { return r.from(stranger, uint64(r.n)) }
	look := func() []byte {
		r.n++
		msg := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindSIDRREQ, uint64(r.n))
		cmmsg.SIDRREQ(msg.Data()).Put(r.n, wire.DefaultPKey, simUDP)
		return msg
	}
	want := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d of 500 pass, want %d", what, got, want)
		}
	}
	want("requests before the flood", passed(500, unknown), 500)
	m.guard.flood(77*second, board.Connect)
	want("requests in the flood", passed(500, unknown), guardRequestBurst)
	want("requests of a known source", passed(500, func() []byte { return r.from(known, 9) }), 500)
	want("requests of another one", passed(500, func() []byte { return r.from(known, 10) }), 500)
	want("look-ups", passed(500, look), 500)
	want("other datagrams", passed(500, func() []byte { return make([]byte, wire.MADLen) }), 500)
	m.guard.know(late, false)
	want("requests of a source that is forgotten", passed(500, func() []byte { return r.from(known, 10) }), 0)
	m.guard.flood(77*second, board.Lookup)
	want("look-ups in a flood", passed(500, look), guardRequestBurst)
	clock += guardTime
	want("requests after the flood", passed(500, unknown), 500)
	want("look-ups after the flood", passed(500, look), 500)
}

// TestForeignAllocatesNothing: a request for another process costs no memory.
func TestForeignAllocatesNothing(t *testing.T) {
	b, r := newBoard(), &requests{}
	f := newForeign(b)
	b.Flood(board.Connect)
	a := netip.MustParseAddr("198.51.100.7")
	if n := testing.AllocsPerRun(1000, func() { f.Drop(r.from(a, uint64(r.n))) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
