package soft_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/verbs"
)

// inMemory counts the pages of b that are in memory.
func inMemory(t *testing.T, b []byte) (n int) {
	t.Helper()
	vec := make([]byte, len(b)/unix.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(unsafe.Pointer(unsafe.SliceData(vec))))
	if errno != 0 {
		t.Skip("mincore:", errno)
	}
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}

// TestX_MR_03_PrefetchBringsPagesIn: the pages of an on-demand region are in memory after PREFETCH and
// PREFETCH_WRITE, those of the SGEs and no others; PREFETCH_NO_FAULT brings none.
func TestX_MR_03_PrefetchBringsPagesIn(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	page := unix.Getpagesize()
	for advice, want := range map[verbs.AdviseMRAdvice]int{
		verbs.AdvicePrefetch: 8, verbs.AdvicePrefetchWrite: 8, verbs.AdvicePrefetchNoFault: 0,
	} {
		b, err := unix.Mmap(-1, 0, 64*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		must(t, err)
		must(t, unix.Madvise(b, unix.MADV_NOHUGEPAGE))
		if err := unix.Madvise(b[:page], unix.MADV_POPULATE_READ); err != nil {
			t.Skip("the kernel cannot prefetch:", err)
		}
		mr := get(e.pd.RegMR(b[page:], verbs.AccessOnDemand|verbs.AccessLocalWrite))(t)
		if n := inMemory(t, b[page:]); n != 0 {
			t.Errorf("%v: %d pages are in memory after the registration", advice, n)
		}
		must(t, e.pd.AdviseMR(advice, verbs.AdviseMRFlush, mr.SGE(8*page, 8*page)))
		if n := inMemory(t, b[9*page:17*page]); n != want {
			t.Errorf("%v: %d of 8 pages are in memory, want %d", advice, n, want)
		}
		if n := inMemory(t, b[17*page:]) + inMemory(t, b[page:9*page]); n != 0 {
			t.Errorf("%v: %d pages of no SGE are in memory", advice, n)
		}
		must(t, mr.Close())
		must(t, unix.Munmap(b))
	}
}
