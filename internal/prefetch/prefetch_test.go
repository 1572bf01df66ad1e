package prefetch

import (
	"slices"
	"testing"
	"unsafe"
)

// Values of any size, at any address, with or without memory, may be asked for.
func TestValue(t *testing.T) {
	b := make([]byte, 8192)
	for i := range b {
		Value(&b[i])
		ForWrite(unsafe.Pointer(&b[i]))
	}
	ForWrite(nil)
	if slices.Max(b) != 0 {
		t.Error("the memory has changed")
	}
	Value((*[4096]byte)(b))
	Value((*[4096]byte)(b[4096:]))
	Value[[1 << 16]byte](nil)
	v := new([200]byte)
	TargetOf(v, 200).Fetch()
	TargetOf(v, 200).FetchLike(nil)
	Target{}.Fetch()
	Part(v, 10, 150)
	Part[[200]byte](nil, 0, 200)
	if first := TargetOf(v, 200).First(); first != &v[0] {
		t.Errorf("the first byte is at %p, want %p", first, &v[0])
	}
	if first := (Target{}).First(); first != nil {
		t.Errorf("no memory begins at %p", first)
	}
	if n := testing.AllocsPerRun(100, func() { Value((*[4096]byte)(b)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
