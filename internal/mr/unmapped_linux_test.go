package mr

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// beforeGap returns n bytes, whole pages, and behind them a page that cannot be accessed.
func beforeGap(t *testing.T, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n+unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	if err := unix.Mprotect(mem[n:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return mem
}

// TestUnmapped has each access meet memory that is not mapped, on either side, at the start and in the middle.
func TestUnmapped(t *testing.T) {
	page := unix.Getpagesize()
	mem := beforeGap(t, page)
	buf := make([]byte, 4096)
	for _, off := range []int{page - 600, page - 8, page, page + 100} {
		gone := mem[off:][:700]
		if _, ok := Copy(gone, buf); ok {
			t.Errorf("offset %d: copied to it", off)
		}
		if _, ok := Copy(buf, gone); ok {
			t.Errorf("offset %d: copied from it", off)
		}
		if _, ok := CopyCRC(0, buf, gone); ok {
			t.Errorf("offset %d: copied and summed for an FPDU", off)
		}
		if !wire.SumsWhileCopying {
			continue
		}
		if _, ok := CopySum(buf, gone); ok {
			t.Errorf("offset %d: copied and summed", off)
		}
	}
	for _, off := range []int{page, page + 3, page - 3} {
		word := mem[off:][:8]
		_, added := FetchAdd(word, 1)
		_, swapped := CompareSwap(word, 0, 1)
		if set := Set(word, 1); added || swapped || set {
			t.Errorf("offset %d: FetchAdd %v, CompareSwap %v, Set %v", off, added, swapped, set)
		}
	}
	if n, ok := Copy(mem[page-8:page], buf); n != 8 || !ok {
		t.Errorf("copied %d bytes, %v, to memory that is mapped", n, ok)
	}
	for _, at := range [][3]int{{0, 700, 700}, {page - 600, 600, 700}, {page, 0, 700}, {100, page - 100, page}} {
		b := mem[at[0]:][:at[2]]
		if n := Readable(b); n != at[1] {
			t.Errorf("%d bytes at %d: %d are readable, want %d", at[2], at[0], n, at[1])
		}
		if ok := TryCopy(b, make([]byte, at[2])); ok != (at[1] == at[2]) {
			t.Errorf("%d bytes at %d: copied %v", at[2], at[0], ok)
		}
	}
	// Other panics are not hidden.
	defer func() {
		if recover() == nil {
			t.Error("a panic of the caller's was swallowed")
		}
	}()
	guarded(func() { panic("other") })
}

func BenchmarkCopy(b *testing.B) {
	dst, src := make([]byte, 4096), make([]byte, 4096)
	for _, bm := range []struct {
		name string
		f    func(n int)
	}{
		{"Copy", func(n int) { Copy(dst[:n], src[:n]) }},
		{"dma", func(n int) { dma(dst[:n], src[:n]) }},
	} {
		for _, n := range []int{8, 4096} {
			b.Run(bm.name+map[int]string{8: "8", 4096: "4096"}[n], func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					bm.f(n)
				}
			})
		}
	}
}

// TestUnmappedLong has a long copy, made by a string instruction on some processors, meet memory that is not mapped.
func TestUnmappedLong(t *testing.T) {
	const n = 64 << 10
	page := unix.Getpagesize()
	mem := beforeGap(t, n)
	buf := make([]byte, n)
	for range 3 { // the processor's state after a fault permits another one
		for _, off := range []int{page, page - 1, 1} {
			if _, ok := Copy(mem[off:][:n], buf); ok {
				t.Errorf("offset %d: copied to it", off)
			}
			if _, ok := Copy(buf, mem[off:][:n]); ok {
				t.Errorf("offset %d: copied from it", off)
			}
		}
		if m, ok := Copy(mem[:n], buf); m != n || !ok {
			t.Errorf("copied %d bytes, %v, to memory that is mapped", m, ok)
		}
	}
}
