package mr

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"testing"
)

const (
	testPD   = 7
	testQP   = 3
	testBase = 0x1000
)

// bed makes a table with a region of 100 bytes that windows may be bound to.
func bed(t testing.TB) (*Table, *Region) {
	tab := NewTable(1<<10, nil)
	r := &Region{PD: testPD, Access: LocalWrite | MWBind, Base: testBase, Buf: make([]byte, 100)}
	if err := tab.Add(r); err != nil {
		t.Fatal(err)
	}
	return tab, r
}

func window(t testing.TB, tab *Table, typ WindowType) *Window {
	t.Helper()
	w := &Window{PD: testPD, Type: typ}
	if err := tab.AddWindow(w); err != nil {
		t.Fatal(err)
	}
	return w
}

// bindTo makes a binding of w to bytes 10 to 59 of r with all rights.
func bindTo(tab *Table, w *Window, r *Region) Binding {
	return Binding{
		Window: w, RKey: inc(tab.Key(w)), LKey: r.LKey, Addr: testBase + 10, Length: 50,
		Access: RemoteRead | RemoteWrite | RemoteAtomic,
	}
}

func mustBind(t testing.TB, tab *Table, b *Binding) {
	t.Helper()
	if err := tab.Bind(b, testPD, testQP); err != nil {
		t.Fatal(err)
	}
}

// remote looks n bytes at addr up for a peer, through testQP.
func remote(tab *Table, key uint32, addr, n uint64, need Access) error {
	_, w, err := tab.CheckRemote(key, addr, n, testPD, testQP, need)
	w.Release()
	return err
}

func TestV_MW_01_NewWindowIsNotBound(t *testing.T) {
	tab, _ := bed(t)
	for _, typ := range []WindowType{Type1, Type2} {
		w := window(t, tab, typ)
		for tag := range uint32(256) {
			if err := remote(tab, tab.Key(w)&^255|tag, testBase, 0, RemoteRead); !errors.Is(err, ErrKey) {
				t.Errorf("type %d, tag %d: %v", typ, tag, err)
			}
		}
	}
}

func TestV_MW_02_BoundsAndRightsOfAWindow(t *testing.T) {
	for _, typ := range []WindowType{Type1, Type2} {
		tab, r := bed(t)
		w := window(t, tab, typ)
		b := bindTo(tab, w, r)
		b.Access = RemoteRead
		mustBind(t, tab, &b)
		const at = testBase + 10
		for _, c := range []struct {
			addr, n uint64
			need    Access
			want    error
		}{
			{at, 50, RemoteRead, nil},
			{at, 0, RemoteRead, nil},
			{at + 49, 1, RemoteRead, nil},
			{at + 50, 0, RemoteRead, nil},
			{at + 50, 1, RemoteRead, ErrBounds},
			{at, 51, RemoteRead, ErrBounds},
			{at - 1, 1, RemoteRead, ErrBounds},
			{at - 1, 0, RemoteRead, ErrBounds},
			{at + 1, math.MaxUint64, RemoteRead, ErrBounds},
			{0, 1, RemoteRead, ErrBounds},
			{math.MaxUint64, 2, RemoteRead, ErrBounds},
			{at, 1, RemoteWrite, ErrAccess},
			{at, 8, RemoteAtomic, ErrAccess},
			{at, 8, RemoteAtomic | RemoteRead, ErrAccess},
		} {
			if err := remote(tab, b.RKey, c.addr, c.n, c.need); !errors.Is(err, c.want) {
				t.Errorf("type %d: %d bytes at %#x for %d: %v, want %v", typ, c.n, c.addr, c.need, err, c.want)
			}
		}
		got, held, err := tab.CheckRemote(b.RKey, at, 50, testPD, testQP, RemoteRead)
		if err != nil || &got[0] != &r.Buf[10] || cap(got) != 50 {
			t.Errorf("type %d: other memory, or more of it: %v", typ, err)
		}
		if counted := held != nil; counted != (typ == Type1) { // uses of type 2 are under one shard
			t.Errorf("type %d: the use is counted: %v", typ, counted)
		}
		held.Release()
	}
}

func TestV_MW_10_ZeroBased(t *testing.T) {
	tab, r := bed(t)
	w := window(t, tab, Type2)
	b := bindTo(tab, w, r)
	b.Access |= ZeroBased
	mustBind(t, tab, &b)
	got, _, err := tab.CheckRemote(b.RKey, 3, 47, testPD, testQP, RemoteWrite)
	if err != nil || &got[0] != &r.Buf[13] {
		t.Errorf("other memory: %v", err)
	}
	for _, addr := range []uint64{4, math.MaxUint64, testBase + 13} {
		if err := remote(tab, b.RKey, addr, 47, RemoteWrite); !errors.Is(err, ErrBounds) {
			t.Errorf("47 bytes at %#x: %v", addr, err)
		}
	}
}

func TestV_MW_03_KeyChangesAtEachBind(t *testing.T) {
	for _, typ := range []WindowType{Type1, Type2} {
		tab, r := bed(t)
		w := window(t, tab, typ)
		old := tab.Key(w)
		for range 600 { // more than there are tags
			b := bindTo(tab, w, r)
			b.RKey = old&^255 | uint32(uint8(old+1))
			mustBind(t, tab, &b)
			if err := remote(tab, old, testBase+10, 1, RemoteRead); !errors.Is(err, ErrKey) {
				t.Fatalf("type %d: the key %#x of the last bind: %v", typ, old, err)
			}
			if err := remote(tab, b.RKey, testBase+10, 1, RemoteRead); err != nil {
				t.Fatal(err)
			}
			if typ == Type2 {
				if err := tab.Invalidate(b.RKey, testPD, testQP); err != nil {
					t.Fatal(err)
				}
			}
			old = b.RKey
		}
	}
}

// A lookup compares the state of a window before and after its reads. So each change gives a state that was not there
// before, although the keys repeat.
func TestEachChangeOfAWindowIsANewState(t *testing.T) {
	tab, r := bed(t)
	w := window(t, tab, Type2)
	b := bindTo(tab, w, r)
	seen := map[uint64]bool{w.state.Load(): true}
	for n := range 300 {
		mustBind(t, tab, &b)
		bound := w.state.Load()
		if err := tab.Invalidate(b.RKey, testPD, testQP); err != nil {
			t.Fatal(err)
		}
		free := w.state.Load()
		if seen[bound] || seen[free] || bound == free {
			t.Fatalf("bind %d: the states %#x and %#x were there before", n, bound, free)
		}
		seen[bound], seen[free] = true, true
	}
}

// Windows of type 2 belong to the QP through which they were bound, those of type 1 to all QPs of the domain.
func TestV_MW_02_UseByOtherDomainsAndQPs(t *testing.T) {
	for _, typ := range []WindowType{Type1, Type2} {
		tab, r := bed(t)
		w := window(t, tab, typ)
		b := bindTo(tab, w, r)
		mustBind(t, tab, &b)
		_, held, err := tab.CheckRemote(b.RKey, testBase+10, 1, testPD+1, testQP, RemoteRead)
		if !errors.Is(err, ErrPD) {
			t.Errorf("type %d from another domain: %v", typ, err)
		}
		held.Release()
		_, held, err = tab.CheckRemote(b.RKey, testBase+10, 1, testPD, testQP+1, RemoteRead)
		want := error(nil)
		if typ == Type2 {
			want = ErrOtherQP
		}
		if !errors.Is(err, want) {
			t.Errorf("type %d through another QP: %v", typ, err)
		}
		held.Release()
		if !w.Drained() {
			t.Errorf("type %d: uses are not released", typ)
		}
		if _, err := tab.Check(b.RKey, testBase+10, 1, testPD, 0); !errors.Is(err, ErrKey) {
			t.Errorf("type %d: the rkey as lkey: %v", typ, err)
		}
	}
}

func TestX_MW_01_V_MW_09_BindIsRefused(t *testing.T) { // V-MW-09, and a failed bind leaves the window as it was
	for name, c := range map[string]struct {
		change func(*Binding, *Region)
		pd     uint32
		want   error
	}{
		"unknown lkey":             {func(b *Binding, _ *Region) { b.LKey ^= 1 }, testPD, ErrKey},
		"another slot's rkey":      {func(b *Binding, _ *Region) { b.RKey += 256 }, testPD, ErrNewKey},
		"QP of another domain":     {func(*Binding, *Region) {}, testPD + 1, ErrPD},
		"region of another domain": {func(_ *Binding, r *Region) { r.PD++ }, testPD, ErrPD},
		"no MW_BIND":               {func(_ *Binding, r *Region) { r.Access &^= MWBind }, testPD, ErrAccess},
		"writing a read-only one": {func(b *Binding, r *Region) { r.Access = MWBind; b.Access = RemoteWrite }, testPD,
			ErrAccess},
		"atomics on a read-only one": {func(b *Binding, r *Region) { r.Access = MWBind; b.Access = RemoteAtomic }, testPD,
			ErrAccess},
		"in front": {func(b *Binding, _ *Region) { b.Addr = testBase - 1 }, testPD, ErrBounds},
		"behind":   {func(b *Binding, _ *Region) { b.Addr, b.Length = testBase, 101 }, testPD, ErrBounds},
		"around":   {func(b *Binding, _ *Region) { b.Length = math.MaxUint64 }, testPD, ErrBounds},
	} {
		for _, typ := range []WindowType{Type1, Type2} {
			tab, good := bed(t)
			bad := &Region{PD: testPD, Access: LocalWrite | MWBind, Base: testBase, Buf: make([]byte, 100)}
			w := window(t, tab, typ)
			before := bindTo(tab, w, good)
			if typ == Type1 { // one that is bound already
				mustBind(t, tab, &before)
			}
			b := before
			b.RKey = inc(b.RKey)
			if err := tab.Add(bad); err != nil {
				t.Fatal(err)
			}
			b.LKey = bad.LKey
			c.change(&b, bad)
			if err := tab.Bind(&b, c.pd, testQP); !errors.Is(err, c.want) {
				t.Errorf("%s, type %d: %v, want %v", name, typ, err, c.want)
			}
			if err := remote(tab, b.RKey, testBase+10, 1, RemoteRead); err == nil {
				t.Errorf("%s, type %d: the new key works", name, typ)
			}
			if err := remote(tab, before.RKey, testBase+10, 1, RemoteRead); typ == Type1 && err != nil {
				t.Errorf("%s: the old binding is gone: %v", name, err)
			}
			if err := tab.Remove(bad); err != nil {
				t.Errorf("%s, type %d: the region counts as bound: %v", name, typ, err)
			}
		}
	}
}

func TestX_MW_01_ReadOnlyRegionCanBeRead(t *testing.T) {
	tab, r := bed(t)
	r.Access = MWBind
	b := bindTo(tab, window(t, tab, Type2), r)
	b.Access = RemoteRead
	mustBind(t, tab, &b)
}

func TestV_MW_02_Type2IsInvalidatedBeforeItIsBoundAgain(t *testing.T) {
	tab, r := bed(t)
	w := window(t, tab, Type2)
	b := bindTo(tab, w, r)
	mustBind(t, tab, &b)
	again := b
	again.RKey = inc(again.RKey)
	if err := tab.Bind(&again, testPD, testQP); !errors.Is(err, ErrRebind) {
		t.Errorf("bound twice: %v", err)
	}
	for i, c := range []struct {
		key, pd uint32
		qp      uint64
		want    error
	}{
		{inc(b.RKey), testPD, testQP, ErrNoBinding},
		{r.RKey, testPD, testQP, ErrNoBinding},
		{0, testPD, testQP, ErrNoBinding},
		{math.MaxUint32, testPD, testQP, ErrNoBinding},
		{b.RKey, testPD + 1, testQP, ErrPD},
		{b.RKey, testPD, testQP + 1, ErrOtherQP},
		{b.RKey, testPD, testQP, nil},
		{b.RKey, testPD, testQP, ErrNoBinding}, // V-MW-02: once
	} {
		if err := tab.Invalidate(c.key, c.pd, c.qp); !errors.Is(err, c.want) {
			t.Errorf("invalidate %#x: %v, want %v", c.key, err, c.want)
		}
		if err := remote(tab, b.RKey, testBase+10, 1, RemoteRead); (err == nil) != (i < 6) {
			t.Errorf("after invalidate %#x: %v", c.key, err)
		}
	}
	mustBind(t, tab, &again)
	empty := b
	empty.Length, empty.Window = 0, window(t, tab, Type2)
	empty.RKey = tab.Key(empty.Window)
	if err := tab.Bind(&empty, testPD, testQP); !errors.Is(err, ErrEmpty) {
		t.Errorf("no memory: %v", err)
	}
}

func TestV_MW_02_Type1IsUnboundByLength0(t *testing.T) {
	tab, r := bed(t)
	w := window(t, tab, Type1)
	b := bindTo(tab, w, r)
	mustBind(t, tab, &b)
	if err := tab.Invalidate(b.RKey, testPD, testQP); !errors.Is(err, ErrNoBinding) {
		t.Errorf("invalidate: %v", err)
	}
	none := Binding{Window: w, RKey: inc(b.RKey)}
	mustBind(t, tab, &none)
	for _, key := range []uint32{b.RKey, none.RKey} {
		if err := remote(tab, key, testBase+10, 0, RemoteRead); !errors.Is(err, ErrKey) {
			t.Errorf("key %#x: %v", key, err)
		}
	}
	remove(t, tab, r)
}

func TestV_MR_21_V_MW_11_BoundRegionStays(t *testing.T) { // V-MW-11
	for _, typ := range []WindowType{Type1, Type2} {
		tab, r := bed(t)
		w, v := window(t, tab, typ), window(t, tab, typ)
		for _, w := range []*Window{w, v} {
			b := bindTo(tab, w, r)
			mustBind(t, tab, &b)
		}
		next := *r
		for _, w := range []*Window{w, v} { // two windows are bound, then one
			if err := tab.Replace(r, &next); !errors.Is(err, ErrBound) {
				t.Errorf("type %d: Replace: %v", typ, err)
			}
			if err := tab.Remove(r); !errors.Is(err, ErrBound) {
				t.Errorf("type %d: Remove: %v", typ, err)
			}
			key := inc(tab.Key(w))
			if err := remote(tab, key, testBase+10, 1, RemoteRead); err != nil {
				t.Errorf("type %d: the key of a bound window: %v", typ, err)
			}
			tab.RemoveWindow(w)
			if err := tab.Invalidate(key, testPD, testQP); !errors.Is(err, ErrNoBinding) {
				t.Errorf("type %d: invalidate of a window that is gone: %v", typ, err)
			}
			if err := remote(tab, key, testBase+10, 1, RemoteRead); !errors.Is(err, ErrKey) {
				t.Errorf("type %d: the key of a window that is gone: %v", typ, err)
			}
			b := bindTo(tab, w, r)
			if err := tab.Bind(&b, testPD, testQP); !errors.Is(err, ErrNoWindow) {
				t.Errorf("type %d: bind of a window that is gone: %v", typ, err)
			}
		}
		remove(t, tab, r)
		if left := tab.entries.Len(); left != 0 {
			t.Errorf("%d keys are in use", left)
		}
	}
}

// Whichever keys a program chose for a window, they never name a region, and a region's keys never name a window.
func TestSlotsKeepTheirKind(t *testing.T) {
	tab := NewTable(1<<10, nil)
	slots := [2]map[uint32]bool{{}, {}}
	for range 500 {
		r := add(t, tab, &Region{Buf: make([]byte, 1)})
		w := window(t, tab, Type2)
		slots[0][r.LKey>>tagBits], slots[1][tab.Key(w)>>tagBits] = true, true
		remove(t, tab, r)
		tab.RemoveWindow(w)
	}
	for s := range slots[0] {
		if slots[1][s] {
			t.Errorf("slot %d was a region's and a window's", s)
		}
	}
}

// A window of type 1 that is bound to another region no longer holds the first one.
func TestV_MR_21_WindowMovesToAnotherRegion(t *testing.T) {
	tab, r := bed(t)
	other := add(t, tab, &Region{PD: testPD, Access: LocalWrite | MWBind, Base: testBase, Buf: make([]byte, 100)})
	w := window(t, tab, Type1)
	b := bindTo(tab, w, r)
	mustBind(t, tab, &b)
	b.LKey = other.LKey
	mustBind(t, tab, &b)
	remove(t, tab, r)
	if err := tab.Remove(other); !errors.Is(err, ErrBound) {
		t.Errorf("the region that the window is bound to: %v", err)
	}
}

// If only one slot is left, it serves a region as well as a window.
func TestFreedSlotsServeBothKinds(t *testing.T) {
	tab := NewTable(3, nil)
	for range 10 {
		var regions []*Region
		var windows []*Window
		for range 3 {
			regions = append(regions, add(t, tab, &Region{}))
		}
		if err := tab.AddWindow(&Window{}); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		for _, r := range regions {
			remove(t, tab, r)
		}
		for range 3 {
			windows = append(windows, window(t, tab, Type1))
		}
		if err := tab.Add(&Region{}); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		for _, w := range windows {
			tab.RemoveWindow(w)
		}
	}
}

func TestX_MR_03_NullRegion(t *testing.T) {
	tab := NewTable(4, nil)
	r := add(t, tab, &Region{PD: testPD, Access: LocalWrite, Null: true})
	if r.RKey != 0 {
		t.Errorf("rkey %#x", r.RKey)
	}
	for _, addr := range []uint64{0, 1, 1 << 40, math.MaxUint64} {
		w, err := tab.Check(r.LKey, addr, 100, testPD, LocalWrite)
		if err != nil || len(w) != 100 {
			t.Fatalf("%d bytes to write, %v", len(w), err)
		}
		copy(w, bytes.Repeat([]byte{1}, 100))
		b, err := tab.Check(r.LKey, addr, NullChunk, testPD, 0)
		if err != nil || len(b) != NullChunk || bytes.Count(b, []byte{0}) != NullChunk {
			t.Errorf("%d bytes to read, %v", len(b), err)
		}
	}
	if b, err := tab.Check(r.LKey, 0, math.MaxUint32, testPD, LocalWrite); err != nil || len(b) != NullChunk {
		t.Errorf("a large piece: %d bytes, %v", len(b), err)
	}
	for _, need := range []Access{0, RemoteRead, RemoteWrite, RemoteAtomic} {
		for _, key := range []uint32{r.LKey, 0} {
			if err := remote(tab, key, 0, 1, need); !errors.Is(err, ErrKey) {
				t.Errorf("a peer with key %#x: %v", key, err)
			}
		}
	}
	w := window(t, tab, Type2)
	if err := tab.Bind(&Binding{Window: w, RKey: tab.Key(w), LKey: r.LKey, Length: 1}, testPD, testQP); !errors.Is(
		err,
		ErrAccess,
	) {
		t.Errorf("bind: %v", err)
	}
}

// A bind of a type 1 window is complete once no access through the previous binding is in progress.
func TestType1BindCompletesAfterItsUsers(t *testing.T) {
	tab, r := bed(t)
	w := window(t, tab, Type1)
	b := bindTo(tab, w, r)
	mustBind(t, tab, &b)
	_, held, err := tab.CheckRemote(b.RKey, testBase+10, 1, testPD, testQP, RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	mustBind(t, tab, &Binding{Window: w, RKey: inc(b.RKey)})
	if w.Drained() {
		t.Error("drained while the memory is in use")
	}
	held.Release()
	if !w.Drained() {
		t.Error("not drained although the memory is not in use")
	}
}

// While a type 1 window moves between two regions, concurrent lookups find either region or none, never a mixture.
func TestLookupsRaceWithBinds(t *testing.T) {
	tab := NewTable(8, nil)
	var regions [2]*Region
	for i := range regions {
		regions[i] = add(
			t,
			tab,
			&Region{PD: testPD, Access: LocalWrite | MWBind, Base: uint64(1+i) << 20, Buf: make([]byte, 64<<i)},
		)
		for j := range regions[i].Buf {
			regions[i].Buf[j] = byte(i)
		}
	}
	w := window(t, tab, Type1)
	first := tab.Key(w) &^ 255
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for n := uint64(0); ; n++ {
				select {
				case <-done:
					return
				default:
				}
				i := n % 2
				b, held, err := tab.CheckRemote(first|uint32(i), (1+i)<<20, 64<<i, testPD, testQP+n%5, RemoteRead)
				if err == nil && (len(b) != 64<<i || b[0] != byte(i) || b[len(b)-1] != byte(i)) {
					t.Errorf("the memory of another region: %d bytes of %d", len(b), b[0])
				}
				held.Release()
			}
		})
	}
	for n := range 20000 {
		i := n % 2
		b := Binding{
			Window: w,
			RKey:   first | uint32(i),
			LKey:   regions[i].LKey,
			Addr:   regions[i].Base,
			Length: 64 << i,
			Access: RemoteRead,
		}
		if err := tab.Bind(&b, testPD, testQP); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wg.Wait()
	if !w.Drained() {
		t.Error("a use was not released")
	}
}

func TestBindingAllocatesNothing(t *testing.T) {
	tab, r := bed(t)
	w := window(t, tab, Type2)
	b := bindTo(tab, w, r)
	if n := testing.AllocsPerRun(100, func() {
		if tab.Bind(&b, testPD, testQP) != nil || remote(tab, b.RKey, testBase+10, 8, RemoteRead) != nil ||
			tab.Invalidate(b.RKey, testPD, testQP) != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCheckRemote(b *testing.B) {
	tab, r := bed(b)
	r.Access |= RemoteRead
	w1, w2 := window(b, tab, Type1), window(b, tab, Type2)
	b1, b2 := bindTo(tab, w1, r), bindTo(tab, w2, r)
	mustBind(b, tab, &b1)
	mustBind(b, tab, &b2)
	for _, c := range []struct {
		name string
		key  uint32
	}{{"region", r.RKey}, {"window1", b1.RKey}, {"window2", b2.RKey}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := remote(tab, c.key, testBase+10, 50, RemoteRead); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// inc returns the next key of a window: the low 8 bits are its program's (ibv_inc_rkey).
func inc(key uint32) uint32 { return key&^0xff | (key+1)&0xff }
