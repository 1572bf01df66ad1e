package prefetch

import "testing"

// Values of any size, at any address, with or without memory, may be asked for.
func TestValue(t *testing.T) {
	b := make([]byte, 8192)
	for i := range b {
		Value(&b[i])
	}
	Value((*[4096]byte)(b))
	Value((*[4096]byte)(b[4096:]))
	Value[[1 << 16]byte](nil)
	if n := testing.AllocsPerRun(100, func() { Value((*[4096]byte)(b)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
