package mr

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
)

func add(t *testing.T, tab *Table, r *Region) *Region {
	t.Helper()
	if err := tab.Add(r); err != nil {
		t.Fatal(err)
	}
	return r
}

func remove(t *testing.T, tab *Table, r *Region) {
	t.Helper()
	if err := tab.Remove(r); err != nil {
		t.Fatal(err)
	}
}

func TestCheckBounds(t *testing.T) {
	tab := NewTable(16, nil)
	const base = 0x1000
	r := add(t, tab, &Region{PD: 7, Access: LocalWrite, Base: base, Buf: make([]byte, 100)})
	for _, c := range []struct {
		addr, n uint64
		want    error
	}{
		{base, 100, nil},
		{base, 0, nil},
		{base + 99, 1, nil},
		{base + 100, 0, nil},
		{base + 100, 1, ErrBounds},
		{base + 101, 0, ErrBounds},
		{base, 101, ErrBounds},
		{base - 1, 1, ErrBounds},
		{base - 1, 0, ErrBounds},
		{0, 1, ErrBounds},
		{base + 1, math.MaxUint64, ErrBounds},
		{math.MaxUint64, 2, ErrBounds},
		{base + 50, math.MaxUint64 - 40, ErrBounds},
	} {
		b, err := tab.Check(r.LKey, c.addr, c.n, 7, LocalWrite)
		if !errors.Is(err, c.want) {
			t.Errorf("Check(%#x, %d) = %v, want %v", c.addr, c.n, err, c.want)
		}
		if err == nil && (uint64(len(b)) != c.n || cap(b) != len(b)) {
			t.Errorf("Check(%#x, %d) gives %d bytes with capacity %d", c.addr, c.n, len(b), cap(b))
		}
	}
}

// A zero-based region has Base 0; one registered at the top of the address space must not wrap around.
func TestCheckExtremeBases(t *testing.T) {
	tab := NewTable(16, nil)
	zero := add(t, tab, &Region{Buf: make([]byte, 8)})
	if _, err := tab.Check(zero.RKey, 0, 8, 0, 0); err != nil {
		t.Error(err)
	}
	top := add(t, tab, &Region{Base: math.MaxUint64 - 7, Buf: make([]byte, 8)})
	if _, err := tab.Check(top.RKey, math.MaxUint64-7, 8, 0, 0); err != nil {
		t.Error(err)
	}
	if _, err := tab.Check(top.RKey, 1, 1, 0, 0); !errors.Is(err, ErrBounds) {
		t.Errorf("past the end of the address space: %v", err)
	}
}

func TestCheckRights(t *testing.T) {
	tab := NewTable(16, nil)
	r := add(t, tab, &Region{PD: 1, Access: LocalWrite | RemoteRead, Buf: make([]byte, 8)})
	for _, c := range []struct {
		name string
		key  uint32
		pd   uint32
		need Access
		want error
	}{
		{"no right needed", r.LKey, 1, 0, nil},
		{"both rights", r.LKey, 1, LocalWrite | RemoteRead, nil},
		{"a right it lacks", r.LKey, 1, RemoteWrite, ErrAccess},
		{"one of two lacks", r.LKey, 1, RemoteRead | RemoteAtomic, ErrAccess},
		{"another domain", r.LKey, 2, 0, ErrPD},
		{"another tag", r.LKey ^ 1, 1, 0, ErrKey},
		{"a free slot", r.LKey + 1<<tagBits, 1, 0, ErrKey},
		{"key 0", 0, 1, 0, ErrKey},
		{"the last key", math.MaxUint32, 1, 0, ErrKey},
	} {
		if _, err := tab.Check(c.key, 0, 8, c.pd, c.need); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestV_MR_02_KeysAreUniqueAndNeverZero(t *testing.T) {
	const n = 3000
	tab := NewTable(n, nil)
	seen := make(map[uint32]bool)
	for range n {
		r := add(t, tab, &Region{})
		if r.LKey == 0 || seen[r.LKey] {
			t.Fatalf("key %#x", r.LKey)
		}
		seen[r.LKey] = true
	}
	if err := tab.Add(&Region{}); !errors.Is(err, ErrFull) {
		t.Fatalf("one more than the table holds: %v", err)
	}
	if err := tab.AddWindow(&Window{}); !errors.Is(err, ErrFull) {
		t.Fatalf("a window more than the table holds: %v", err)
	}
	listed := make(map[uint32]bool)
	for _, r := range tab.All() {
		if !seen[r.LKey] || listed[r.Num()] {
			t.Fatalf("region %d with key %#x is listed", r.Num(), r.LKey)
		}
		listed[r.Num()] = true
	}
	if len(listed) != n {
		t.Fatalf("%d of %d regions are listed", len(listed), n)
	}
}

// A peer that knows one key cannot guess another.
func TestKeysCannotBeGuessed(t *testing.T) {
	tab := NewTable(2000, nil)
	r := add(t, tab, &Region{})
	keys, tags := []uint32{r.RKey}, map[uint32]bool{}
	near := 0
	for range 500 {
		w := window(t, tab, Type2)
		keys = append(keys, add(t, tab, &Region{}).RKey, tab.Key(w))
	}
	for i, k := range keys[1:] {
		if d := int(k) - int(keys[i]); d > -1<<16 && d < 1<<16 {
			near++
		}
		tags[k&0xff] = true
	}
	if near > 5 || len(tags) < 200 { // 0.03 near ones are expected, and 251 of 256 low bytes
		t.Errorf("%d of 1000 keys are near the previous key; %d low bytes", near, len(tags))
	}
}

// The upper 24 bits of the keys repeat only after all 2^24 values. Of 2^16 keys of a source that repeated within 2^25,
// or that let the low byte change the others, about 64 would repeat.
func TestSlotsOfKeysDoNotRepeat(t *testing.T) {
	draw, seen := Unguessable(), map[uint32]bool{}
	for range 1 << 16 {
		slot := draw() >> tagBits
		if seen[slot] {
			t.Fatalf("slot %#x came back within %d keys", slot, len(seen))
		}
		seen[slot] = true
	}
}

// Windows share the table with regions but are not listed as regions.
func TestAllLeavesWindowsOut(t *testing.T) {
	tab := NewTable(4, nil)
	r := add(t, tab, &Region{})
	if err := tab.AddWindow(&Window{}); err != nil {
		t.Fatal(err)
	}
	if all := tab.All(); len(all) != 1 || all[0] != r {
		t.Errorf("%v are listed", all)
	}
}

func TestV_MR_22_KeyOfRemovedRegionIsInvalid(t *testing.T) {
	tab := NewTable(4, nil)
	dead := make(map[uint32]bool)
	for range 200 { // the four slots are reused many times, with other tags
		r := add(t, tab, &Region{Buf: make([]byte, 1)})
		if dead[r.LKey] {
			t.Fatalf("key %#x came back within 200 registrations", r.LKey)
		}
		remove(t, tab, r)
		dead[r.LKey] = true
		for k := range dead {
			if tab.Get(k) != nil {
				t.Fatalf("removed key %#x is alive", k)
			}
		}
	}
}

func TestReplaceKeepsTheKeyAndTheNumber(t *testing.T) {
	tab := NewTable(4, nil)
	add(t, tab, &Region{})
	old := add(t, tab, &Region{Buf: make([]byte, 1)})
	r := &Region{LKey: old.LKey, RKey: old.RKey, Buf: make([]byte, 9)}
	if err := tab.Replace(old, r); err != nil {
		t.Fatal(err)
	}
	if got := tab.Get(old.LKey); got != r || r.Num() != 2 {
		t.Fatalf("the key leads to %p, want %p; its number is %d, want 2", got, r, r.Num())
	}
}

// Regions are numbered from 1 in the order of their registration, and listed in that order, whatever their keys are.
// Windows and removed regions leave the numbers as they are.
func TestNumbersOfRegions(t *testing.T) {
	key := uint32(100 << tagBits)
	tab := NewTable(16, func() uint32 { key -= 1 << tagBits; return key })
	gone := add(t, tab, &Region{})
	window(t, tab, Type1)
	var want []*Region
	for i := range 5 {
		r := add(t, tab, &Region{})
		if n := r.Num(); n != uint32(i)+2 {
			t.Errorf("region %d has the number %d", i+2, n)
		}
		want = append(want, r)
	}
	remove(t, tab, gone)
	if got := tab.All(); gone.Num() != 1 || !slices.Equal(got, want) {
		t.Errorf("number %d of the first, then %v are listed, want %v", gone.Num(), got, want)
	}
}

func TestAtomics(t *testing.T) {
	mem := make([]byte, 24)
	for _, off := range []int{0, 8, 3} { // the last one is not aligned
		b := mem[off : off+8]
		Store(b, 40)
		if got := fetchAdd(b, 2); got != 40 || Load(b) != 42 {
			t.Errorf("offset %d: fetch and add: %d, then %d", off, got, Load(b))
		}
		if got := compareSwap(b, 41, 7); got != 42 || Load(b) != 42 {
			t.Errorf("offset %d: compare and swap with another value: %d, then %d", off, got, Load(b))
		}
		if got := compareSwap(b, 42, 7); got != 42 || Load(b) != 7 {
			t.Errorf("offset %d: compare and swap: %d, then %d", off, got, Load(b))
		}
		if got := fetchAdd(b, math.MaxUint64); got != 7 || Load(b) != 6 {
			t.Errorf("offset %d: adding -1: %d, then %d", off, got, Load(b))
		}
		if binary.NativeEndian.Uint64(b) != 6 {
			t.Errorf("offset %d: not in host byte order", off)
		}
	}
}

func TestAtomicsFromManyGoroutines(t *testing.T) {
	for _, off := range []int{0, 5} {
		b := make([]byte, 16)[off : off+8]
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 1000 {
					fetchAdd(b, 1)
					for {
						v := Load(b)
						if off == 0 || compareSwap(b, v, v+1) == v { // plain loads race with aligned atomics only in theory
							break
						}
					}
				}
			})
		}
		wg.Wait()
		want := uint64(4000)
		if off != 0 {
			want = 8000
		}
		if got := Load(b); got != want {
			t.Errorf("offset %d: %d, want %d", off, got, want)
		}
	}
}

func TestLookupsRaceWithChanges(t *testing.T) {
	tab := NewTable(1<<12, nil)
	stay := add(t, tab, &Region{Buf: make([]byte, 8)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5000 {
			r := &Region{Buf: make([]byte, 8)}
			if err := tab.Add(r); err != nil {
				t.Error(err)
				return
			}
			if err := tab.Remove(r); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		if tab.Get(stay.LKey) != stay {
			t.Fatal("a region was lost while others changed")
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	tab := NewTable(1<<10, nil)
	r := &Region{Access: LocalWrite, Base: 4096, Buf: make([]byte, 4096)}
	if err := tab.Add(r); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tab.Check(r.LKey, 4096, 4096, 0, LocalWrite); err != nil {
			b.Fatal(err)
		}
	}
}
