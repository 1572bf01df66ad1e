package verbs

import (
	"slices"
	"strconv"
	"testing"
	"unsafe"

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
	for _, text := range []string{"x", "x y z", "1-2", "0-zz rw-p", "0 rw-p", "0-2 r", "-2 rw-p"} {
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

// populate decides by itself where the kernel can: for memory with the right, and for memory without it.
func TestPopulate(t *testing.T) {
	if !canPopulate(t) {
		t.Skip("the kernel does not bring pages into memory on request")
	}
	page := unix.Getpagesize()
	mem := must(unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer func() { _ = unix.Munmap(mem) }()
	ok(t, unix.Mprotect(mem[2*page:], unix.PROT_READ))
	ok(t, unix.Mprotect(mem[3*page:], unix.PROT_NONE))
	for _, c := range []struct {
		from, to    int
		read, write bool
	}{
		{0, 1, true, true}, {page - 1, page + 1, true, true}, {5, 2 * page, true, true},
		{2*page - 1, 2*page + 1, true, false}, {3*page - 1, 3 * page, true, false}, {3*page - 1, 3*page + 1, false, false},
	} {
		if got := populate(mem[c.from:c.to], false); got != c.read {
			t.Errorf("bytes %d to %d, reading: %v", c.from, c.to, got)
		}
		if got := populate(mem[c.from:c.to], true); got != c.write {
			t.Errorf("bytes %d to %d, writing: %v", c.from, c.to, got)
		}
	}
	if there := resident(t, mem); !slices.Equal(there[:2], []bool{true, true}) {
		t.Errorf("pages in memory: %v", there)
	}
}

// Registration brings a short buffer into memory, unless it is paged on demand.
func TestRegistrationBringsPagesIntoMemory(t *testing.T) {
	page := unix.Getpagesize()
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	for _, access := range []AccessFlags{0, AccessLocalWrite, AccessOnDemand, AccessOnDemand | AccessLocalWrite} {
		mem := must(unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
		if slices.Contains(resident(t, mem), true) {
			t.Skip("the kernel does not tell which pages are in memory")
		}
		mr := must(pd.RegMR(mem[page+5:2*page+6], access))(t)
		there := resident(t, mem)
		ok(t, mr.Close())
		ok(t, unix.Munmap(mem))
		onDemand := access&AccessOnDemand != 0
		if !onDemand && !canPopulate(t) {
			continue
		}
		if onDemand && slices.Contains(there, true) || !onDemand && (!there[1] || !there[2]) {
			t.Errorf("access %v: pages in memory %v", access, there)
		}
	}
}

// resident reports for each page of mem whether it is in memory.
func resident(t *testing.T, mem []byte) []bool {
	t.Helper()
	list := make([]byte, len(mem)/unix.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		uintptr(unsafe.Pointer(&list[0]))); errno != 0 {
		t.Skip("mincore: ", errno)
	}
	there := make([]bool, len(list))
	for i, b := range list {
		there[i] = b&1 != 0
	}
	return there
}

// canPopulate reports whether the kernel brings pages into memory on request.
func canPopulate(t *testing.T) bool {
	mem := must(unix.Mmap(-1, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer func() { _ = unix.Munmap(mem) }()
	return unix.Madvise(mem, unix.MADV_POPULATE_READ) == nil
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
