package verbs

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestV_MR_05_CheckRange(t *testing.T) {
	const maps = `00400000-00410000 r-xp 00000000 00:00 0    /bin/x
00410000-00420000 rw-p 00000000 00:00 0
00420000-00430000 rw-s 00000000 00:00 0
00440000-00450000 ---p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0    [vsyscall]
`
	tests := []struct {
		at, n       uint64
		read, write bool
	}{
		{0x400000, 1, true, false},
		{0x40ffff, 1, true, false},
		{0x40ffff, 2, true, false},
		{0x410000, 0x20000, true, true},
		{0x410000, 0x20001, false, false},
		{0x42ffff, 1, true, true},
		{0x430000, 1, false, false},
		{0x43ffff, 2, false, false},
		{0x440000, 1, false, false},
		{0x3fffff, 2, false, false},
		{0xffffffffff601000, 1, false, false},
	}
	for _, tt := range tests {
		for _, write := range []bool{false, true} {
			want := tt.read
			if write {
				want = tt.write
			}
			if err := checkRange([]byte(maps), tt.at, tt.n, write); (err == nil) != want {
				t.Errorf("%d bytes at %#x, write %v: %v", tt.n, tt.at, write, err)
			}
		}
	}
	// A text that cannot be parsed is no error.
	for _, text := range []string{"x", "x y z", "1-2", "0-zz rw-p"} {
		if err := checkRange([]byte(text), 1, 1, true); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCheckMemoryOfThisProcess(t *testing.T) {
	heap, mapped := make([]byte, 1<<20), must(AllocBuffer(100))(t)
	var onStack [64]byte
	for _, b := range [][]byte{heap, mapped, onStack[:], heap[len(heap)-1:]} {
		ok(t, checkMemory(b, true))
		ok(t, checkMappings(b, true))
	}
	ok(t, FreeBuffer(mapped))
}

// TestCheckMemoryRights checks memory with and without rights, in ranges that begin and end within pages.
func TestCheckMemoryRights(t *testing.T) {
	page := unix.Getpagesize()
	mem := must(unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer func() { _ = unix.Munmap(mem) }()
	ok(t, unix.Mprotect(mem[2*page:3*page], unix.PROT_READ))
	ok(t, unix.Mprotect(mem[3*page:], unix.PROT_NONE))
	for _, tt := range []struct {
		from, to    int
		read, write bool
	}{
		{100, 2*page - 1, true, true}, {0, 2 * page, true, true}, {5, 2*page + 1, true, false},
		{2*page + 5, 3 * page, true, false}, {2*page + 5, 3*page + 1, false, false}, {3*page + 9, 3*page + 10, false, false},
	} {
		for _, f := range []func([]byte, bool) error{checkMemory, checkMappings} {
			if err := f(mem[tt.from:tt.to], false); (err == nil) != tt.read {
				t.Errorf("%d to %d, reading: %v", tt.from, tt.to, err)
			}
			if err := f(mem[tt.from:tt.to], true); (err == nil) != tt.write {
				t.Errorf("%d to %d, writing: %v", tt.from, tt.to, err)
			}
		}
	}
}

func BenchmarkCheckMemory(b *testing.B) {
	for _, n := range []int{4096, populateMax} {
		buf := make([]byte, n)
		for name, f := range map[string]func([]byte, bool) error{"": checkMemory, "Mappings": checkMappings} {
			b.Run(strconv.Itoa(n)+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := f(buf, true); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
