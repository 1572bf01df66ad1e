package engine

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

func newTable(start uint32, max int) *qpTable {
	return &qpTable{whole: newSpan(minQPN, maxQPN, start), max: max}
}

func mustReserve(t *testing.T, tab *qpTable, shard, shards uint32) uint32 {
	t.Helper()
	n, err := tab.reserve(shard, shards)
	if err != nil {
		t.Fatal(err)
	}
	if n < minQPN || n > maxQPN || n%shards != shard {
		t.Fatalf("got number 0x%x for shard %d of %d", n, shard, shards)
	}
	return n
}

func TestV_QP_11_NumbersAreNotReusedSoon(t *testing.T) {
	for _, start := range []uint32{0, 0x20} {
		tab := newTable(start, 100)
		seen := map[uint32]bool{}
		for range 1000 {
			n := mustReserve(t, tab, 1, 2)
			if seen[n] {
				t.Fatalf("number 0x%x was given again", n)
			}
			seen[n] = true
			tab.remove(n)
		}
	}
}

// A peer that knows the number of one QP does not know that of another, neither in the whole range nor in that of a
// shard.
func TestQPNumbersCannotBeGuessed(t *testing.T) {
	tab := newTable(0, 1000)
	part := newSpan(0x40000, 0x7ffff, 0)
	for name, draw := range map[string]func() (uint32, error){
		"whole": func() (uint32, error) { return tab.reserve(1, 4) },
		"part":  func() (uint32, error) { return tab.reserveIn(&part) },
	} {
		near, last := 0, uint32(0)
		for range 200 {
			n, err := draw()
			if err != nil {
				t.Fatal(err)
			}
			if name == "part" && (n < 0x40000 || n > 0x7ffff) {
				t.Fatalf("%#x is not in the part", n)
			}
			if d := int(n) - int(last); d > -32 && d < 32 {
				near++
			}
			last = n
		}
		if near > 5 { // 0.05 are expected
			t.Errorf("%s: %d of 200 numbers are near the one before", name, near)
		}
	}
}

func TestQPNumbersGoRound(t *testing.T) {
	tab := newTable(maxQPN-1, 100)
	var got []uint32
	for range 4 {
		got = append(got, mustReserve(t, tab, 0, 1))
	}
	for i, want := range []uint32{maxQPN - 1, maxQPN, minQPN, minQPN + 1} {
		if got[i] != want {
			t.Fatalf("numbers %x", got)
		}
	}
	tab.whole.next = maxQPN // in use, and so are the first two
	if n := mustReserve(t, tab, 0, 1); n != minQPN+2 {
		t.Fatalf("number 0x%x", n)
	}
}

func TestQPTableLimit(t *testing.T) {
	tab := newTable(0x100, 3)
	var n uint32
	for range 3 {
		n = mustReserve(t, tab, 0, 1)
	}
	if _, err := tab.reserve(0, 1); !errors.Is(err, ErrQPLimit) {
		t.Fatalf("a fourth of three: %v", err)
	}
	tab.remove(n)
	mustReserve(t, tab, 0, 1)
}

func TestQPTableFixedNumber(t *testing.T) {
	tab := newTable(0x100, 3)
	if err := tab.reserveFixed(1); err != nil {
		t.Fatal(err)
	}
	if err := tab.reserveFixed(1); !errors.Is(err, ErrQPInUse) {
		t.Fatalf("QP 1 twice: %v", err)
	}
}

func TestQPTableLookup(t *testing.T) {
	tab := newTable(0x123FFE, 10)
	a, b := mustReserve(t, tab, 0, 1), mustReserve(t, tab, 0, 1)
	c := mustReserve(t, tab, 0, 1) // on the next page
	if tab.get(a) != nil {
		t.Fatal("a number without a QP is found")
	}
	qp := transport.NewQP(transport.Config{Num: c, Type: transport.RC})
	tab.put(qp)
	if tab.get(c) != qp {
		t.Fatal("the QP is not found")
	}
	for _, n := range []uint32{0, 1, a, b, c + 1, 0xFFFFFF, 0xFF123FFE} {
		if tab.get(n) != nil {
			t.Errorf("number 0x%x is found", n)
		}
	}
	count := 0
	for range tab.all() {
		count++
	}
	if count != 1 {
		t.Errorf("all finds %d QPs", count)
	}
	for _, n := range []uint32{a, b, c} {
		tab.remove(n)
	}
	if tab.qps.Len() != 0 {
		t.Error("a number is left")
	}
}
