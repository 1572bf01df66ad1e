package numbered

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTableIsAMap compares a table with a map.
func TestTableIsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []uint32{8, 100, 1 << 24} {
		var tab Table[int]
		want := map[uint32]*int{}
		for step := range 20000 {
			n := rng.Uint32N(spread)
			switch v := new(int); {
			case rng.IntN(2) == 0 && len(want) < 500:
				tab.Put(n, v)
				want[n] = v
			default:
				if len(want) > 0 && rng.IntN(4) > 0 {
					for n = range want {
						break
					}
				}
				tab.Remove(n)
				delete(want, n)
			}
			if tab.Get(n) != want[n] || tab.Len() != len(want) {
				t.Fatalf("step %d: number %d: %p of %d, want %p of %d", step, n, tab.Get(n), tab.Len(), want[n],
					len(want))
			}
		}
		var listed []uint32
		for n, v := range tab.All() {
			if want[n] != v {
				t.Fatalf("number %d is listed with another value", n)
			}
			listed = append(listed, n)
		}
		if len(listed) != len(want) || !slices.IsSorted(listed) {
			t.Errorf("%d of %d are listed, or not in order", len(listed), len(want))
		}
		if c := tab.cells.Load(); len(*c) > 4096 {
			t.Errorf("%d cells for 500 values at most", len(*c))
		}
	}
}

func TestEmptyTable(t *testing.T) {
	var tab Table[int]
	tab.Remove(3)
	if tab.Get(3) != nil || tab.Len() != 0 {
		t.Error("something is there")
	}
	for range tab.All() {
		t.Error("something is listed")
	}
}

// TestLookupsDuringChanges checks that lookups find constant values while others change.
func TestLookupsDuringChanges(t *testing.T) {
	var tab Table[uint32]
	for n := range uint32(50) {
		tab.Put(n*77777, &[]uint32{n * 77777}[0])
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rng := rand.New(rand.NewPCG(3, 4))
		for range 20000 {
			n := rng.Uint32N(1<<24-1) | 1<<22 + 1
			if tab.Get(n) != nil {
				continue
			}
			tab.Put(n, &n)
			tab.Remove(n)
		}
	}()
	for {
		for n := range uint32(50) {
			if v := tab.Get(n * 77777); v == nil || *v != n*77777 {
				t.Fatalf("number %d was lost", n*77777)
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func BenchmarkGet(b *testing.B) {
	var tab Table[int]
	for n := range uint32(1000) {
		tab.Put(n*16411&0xffffff, new(int))
	}
	b.ReportAllocs()
	for n := uint32(0); b.Loop(); n++ {
		tab.Get(n % 1000 * 16411 & 0xffffff)
	}
}
