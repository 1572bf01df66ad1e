package sock

import (
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/rs"
)

// withMaps returns a connected stream whose peer has a table for maps IO maps, and credits.
func withMaps(t *testing.T, maps int, credits uint16) (*Stream, func()) {
	t.Helper()
	st, free := withCQ(t)
	st.opts.Inline = 64
	st.m.Connect(rs.ConnData{Flags: rs.HostFlags(), Credits: credits, IOMaps: rs.Scale(maps),
		Table: rs.SGE{Length: rs.TableEntries}})
	return st, func() {
		t.Helper()
		st.publish.release()
		free()
	}
}

// A map has the offset that the program gives, or that of its buffer's address if the program gives none.
func TestOffsetOfAnIOMap(t *testing.T) {
	st, free := withMaps(t, 8, 16)
	defer free()
	buf := make([]byte, 16)
	for _, remote := range []bool{false, true} {
		for offset, want := range map[int64]int64{
			0: 0, 5: 5, -2: -2, 1: 1, -1: int64(uintptr(unsafe.Pointer(&buf[0]))),
		} {
			if at, err := st.IOMap(buf, remote, offset); at != want || err != nil {
				t.Errorf("offset %d, remote %v: %#x, want %#x; %v", offset, remote, at, want, err)
			}
			for _, m := range st.publish.maps {
				if m.offset != want || (m.index >= 0) != remote || m.mr == nil {
					t.Errorf("offset %d, remote %v: %d at index %d", offset, remote, m.offset, m.index)
				}
			}
			ok(t, st.IOUnmap(buf))
		}
	}
}

// A map is published at the lowest place that is free, up to the limit of the peer. One of this side only has no place.
func TestPlacesOfIOMaps(t *testing.T) {
	st, free := withMaps(t, 8, 1000)
	defer free()
	limit := st.m.MaxMaps()
	bufs := make([][]byte, limit+2)
	for i := range bufs {
		bufs[i] = make([]byte, 8)
	}
	indexes := func(want ...int) {
		t.Helper()
		for i, m := range st.publish.maps {
			if i >= len(want) || m.index != want[i] {
				t.Errorf("place %d of map %d, want %v", m.index, i, want)
			}
		}
	}
	must(st.IOMap(bufs[limit+1], false, 0))(t)
	if st.publish.ever != 0 || st.m.MapsPending() {
		t.Errorf("a map of this side only is published, %d in all", st.publish.ever)
	}
	want := []int{-1}
	for i := range limit {
		must(st.IOMap(bufs[i], true, 0))(t)
		want = append(want, i)
	}
	indexes(want...)
	if _, err := st.IOMap(bufs[limit], true, 0); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("one more than the limit of %d: %v", limit, err)
	}
	ok(t, st.IOUnmap(bufs[1]))
	must(st.IOMap(bufs[limit], true, 0))(t)
	indexes(append(append([]int{-1, 0}, want[3:]...), 1)...)
}

// Each map that the peer has been told of uses up one of half of the credits for ever; one that is taken back before
// does not.
func TestBudgetOfIOMaps(t *testing.T) {
	st, free := withMaps(t, 8, 4)
	defer free()
	buf := make([]byte, 8)
	for range 10 {
		must(st.IOMap(buf, true, 0))(t)
		ok(t, st.IOUnmap(buf))
	}
	for range 2 {
		must(st.IOMap(buf, true, 0))(t)
		st.m.NextMap()
		ok(t, st.IOUnmap(buf))
	}
	if at, err := st.IOMap(buf, true, 0); at != -1 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("the third one: %d, %v", at, err)
	}
}

// A buffer is unmapped by its address and length, not by one of them.
func TestIOUnmapOfOneOfSeveral(t *testing.T) {
	st, free := withMaps(t, 8, 16)
	defer free()
	buf := make([]byte, 16)
	for _, b := range [][]byte{buf[:8], buf, buf[8:]} {
		must(st.IOMap(b, false, 0))(t)
	}
	for i, b := range [][]byte{buf[8:], buf} {
		ok(t, st.IOUnmap(b))
		if err := st.IOUnmap(b); !errors.Is(err, syscall.EINVAL) || len(st.publish.maps) != 2-i {
			t.Errorf("again: %v; %d maps", err, len(st.publish.maps))
		}
	}
	if m := st.publish.maps[0]; len(m.buf) != 8 || &m.buf[0] != &buf[0] {
		t.Errorf("the map of %d bytes is left", len(m.buf))
	}
}

// A writer to IO maps is one only during the call.
func TestIOWriteEnds(t *testing.T) {
	st, free := withMaps(t, 0, 16)
	defer free()
	if n, err := st.IOWrite([]byte("x"), 0, WaitMode{}); n != 0 || err != nil || st.placing {
		t.Errorf("%d bytes, %v; it still writes: %v", n, err, st.placing)
	}
}
