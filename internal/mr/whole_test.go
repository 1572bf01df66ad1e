package mr

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"unsafe"
)

// A region of the whole address space ends where no process has memory.
func TestV_MR_14_BoundsOfTheAddressSpace(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) < 8 {
		t.Skip("the address space ends earlier")
	}
	tab := NewTable(4, nil)
	r := add(t, tab, &Region{PD: testPD, Access: LocalWrite, Whole: true})
	for _, c := range []struct {
		addr, n uint64
		want    error
	}{
		{lowest, 1, nil},
		{lowest, 0, nil},
		{lowest, top - lowest, nil},
		{top - 1, 1, nil},
		{lowest - 1, 1, ErrBounds},
		{lowest - 1, 2, ErrBounds},
		{0, 0, ErrBounds},
		{lowest, top - lowest + 1, ErrBounds},
		{top - 1, 2, ErrBounds},
		{top - 1, math.MaxUint64, ErrBounds},
		{top, 0, ErrBounds},
		{top + 1, 1, ErrBounds},
		{math.MaxUint64, 1, ErrBounds},
	} {
		b, err := tab.Check(r.LKey, c.addr, c.n, testPD, LocalWrite)
		if !errors.Is(err, c.want) || err == nil && (uint64(len(b)) != c.n || cap(b) != len(b)) {
			t.Errorf("%d bytes at %#x: %d bytes, %v, want %v", c.n, c.addr, len(b), err, c.want)
		}
	}
	mem := []byte("some memory of the process")
	b, err := tab.Check(r.LKey, uint64(uintptr(unsafe.Pointer(&mem[5]))), 6, testPD, 0)
	if err != nil || !bytes.Equal(b, []byte("memory")) || &b[0] != &mem[5] {
		t.Errorf("%q, %v", b, err)
	}
}

// No peer may name the whole address space, by no key and through no window.
func TestV_MR_14_AddressSpaceIsNotThePeers(t *testing.T) {
	tab := NewTable(4, nil)
	r := add(t, tab, &Region{PD: testPD, Access: LocalWrite | RemoteRead | MWBind, Whole: true})
	if r.RKey != 0 {
		t.Errorf("rkey %#x", r.RKey)
	}
	for _, key := range []uint32{r.LKey, 0} {
		if err := remote(tab, key, lowest, 1, RemoteRead); !errors.Is(err, ErrKey) {
			t.Errorf("a peer with key %#x: %v", key, err)
		}
	}
	w := window(t, tab, Type2)
	b := Binding{Window: w, RKey: inc(tab.Key(w)), LKey: r.LKey, Addr: lowest, Length: 1, Access: RemoteRead}
	if err := tab.Bind(&b, testPD, testQP); !errors.Is(err, ErrAccess) {
		t.Errorf("bind: %v", err)
	}
}
