package verbs

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A buffer lies in a file of whole pages, of which another process can map no more, and which it cannot write.
func TestFileOfABuffer(t *testing.T) {
	t.Setenv("VERBENA_SHM", "1")
	t.Setenv("VERBENA_SHM_DIRECT", "1")
	fd, err := unix.MemfdCreate("test", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Skip("no memfd: ", err)
	}
	ok(t, unix.Close(fd))
	page := os.Getpagesize()
	for _, n := range []int{1, page, page + 1, 3*page - 1} {
		buf := must(AllocBuffer(n))(t)
		file, off := BufferFile(buf[n-1:])
		if file == nil || off != int64(n-1) {
			t.Fatalf("%d bytes: file %v, offset %d", n, file, off)
		}
		if size := must(file.Stat())(t).Size(); size != int64((n+page-1)/page*page) {
			t.Errorf("%d bytes in a file of %d", n, size)
		}
		const want = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
		if seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0); seals != want || err != nil {
			t.Errorf("seals %#x, %v", seals, err)
		}
		buf[n-1] = 7
		var got [1]byte
		if _, err := file.ReadAt(got[:], off); got[0] != 7 || err != nil {
			t.Errorf("the file has %d, %v", got[0], err)
		}
		ok(t, FreeBuffer(buf))
		if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the file of a freed buffer: %v", err)
		}
	}
}

func TestNoFileOfABuffer(t *testing.T) {
	for _, env := range []string{"VERBENA_SHM", "VERBENA_SHM_DIRECT"} {
		t.Run(env, func(t *testing.T) {
			t.Setenv(env, "0")
			buf := must(AllocBuffer(10))(t)
			if file, off := BufferFile(buf); file != nil || off != 0 {
				t.Errorf("file %v, offset %d", file, off)
			}
			ok(t, FreeBuffer(buf))
		})
	}
}

// Memory that is not wholly in a buffer has no file.
func TestBufferFileOfOtherMemory(t *testing.T) {
	page := os.Getpagesize()
	mem := must(unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer func() { _ = unix.Munmap(mem) }()
	m := &mapping{start: sliceStart(mem[page:]), mem: mem[page : 2*page], file: os.Stdin}
	mappings.mu.Lock()
	at := findMapping(m.start)
	mappings.sorted = slices.Insert(mappings.sorted, at, m)
	mappings.mu.Unlock()
	defer func() {
		mappings.mu.Lock()
		mappings.sorted = slices.Delete(mappings.sorted, at, at+1)
		mappings.mu.Unlock()
	}()
	for _, c := range []struct {
		from, to int
		inside   bool
	}{
		{page, 2 * page, true}, {page, page + 1, true}, {2*page - 1, 2 * page, true},
		{page - 1, page, false}, {page - 1, 2 * page, false}, {page, 2*page + 1, false}, {2*page - 1, 2*page + 1, false},
		{2 * page, 2*page + 1, false}, {0, 3 * page, false},
	} {
		buf := mem[c.from:c.to]
		want, at := (*os.File)(nil), int64(0)
		if c.inside {
			want, at = os.Stdin, int64(c.from-page)
		}
		if file, off := BufferFile(buf); file != want || off != at {
			t.Errorf("bytes %d to %d: file %v, offset %d", c.from, c.to, file, off)
		}
		if own := ownBuffer(buf); own != c.inside {
			t.Errorf("bytes %d to %d: own %v", c.from, c.to, own)
		}
		pin := pinBuffer(buf)
		if overlaps := c.from < 2*page && c.to > page && c.from < c.to; (pin != nil) != overlaps {
			t.Errorf("bytes %d to %d: pinned %v", c.from, c.to, pin != nil)
		}
		pin.unpin()
	}
	if m.mrs != 0 {
		t.Errorf("%d regions", m.mrs)
	}
}

// adjacent returns memory over two adjoining buffers of AllocBuffer of one page, and these.
func adjacent(t *testing.T) (both, first, second []byte) {
	t.Helper()
	page := os.Getpagesize()
	at := map[uint64][]byte{}
	for range 100 {
		b := must(AllocBuffer(page))(t)
		if low := at[start(b)-uint64(page)]; low != nil {
			both, first, second = unsafe.Slice(unsafe.SliceData(low), 2*page), low, b
		} else if high := at[start(b)+uint64(page)]; high != nil {
			both, first, second = unsafe.Slice(unsafe.SliceData(b), 2*page), b, high
		} else {
			at[start(b)] = b
			continue
		}
		delete(at, start(first))
		delete(at, start(second))
		break
	}
	for _, b := range at {
		ok(t, FreeBuffer(b))
	}
	if both == nil {
		t.Skip("no two buffers adjoin")
	}
	return both, first, second
}

// A region may lie over several buffers. None of them is freed before it.
func TestRegionOverAdjacentBuffers(t *testing.T) {
	both, first, second := adjacent(t)
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	part := os.Getpagesize() - 1
	other := must(AllocBuffer(10))(t)
	for name, buf := range map[string][]byte{"all": both, "two bytes": both[part : part+2]} {
		mr := must(pd.RegMR(buf, AccessLocalWrite))(t)
		refused(t, FreeBuffer(first), EBUSY, "1 MR")
		refused(t, FreeBuffer(second), EBUSY, "1 MR")
		if file, _ := BufferFile(buf); file != nil {
			t.Errorf("%s: one file has both", name)
		}
		ok(t, mr.Rereg(ReregChangeTranslation, nil, other, 0))
		ok(t, mr.Rereg(ReregChangeTranslation, nil, second, 0))
		ok(t, FreeBuffer(other))
		other = must(AllocBuffer(10))(t)
		refused(t, FreeBuffer(second), EBUSY, "1 MR")
		ok(t, mr.Close())
	}
	for _, b := range [][]byte{first, second, other} {
		ok(t, FreeBuffer(b))
	}
}
