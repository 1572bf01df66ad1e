//go:build amd64 || arm64

package soft

import (
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

var onHeap []any // what it has is not allocated on a stack

// TestLinesOfAQP checks that what messages use of a QP begins at cache lines; see TestUsedLines of package transport.
// The memory allocator gives an object of this kind that begins 8 bytes after a line.
func TestLinesOfAQP(t *testing.T) {
	const line, header, class = 64, 8, 2304
	q, up := new(qp), new(verbs.QP)
	onHeap = []any{q, up}
	if at := uintptr(unsafe.Pointer(q)) % line; at != header {
		t.Errorf("a QP begins at byte %d of a line, want %d", at, header)
	}
	if n := unsafe.Sizeof(*q); n > class-header {
		t.Errorf("a QP has %d bytes, want at most %d, since the allocator takes %d for it", n, class-header, class)
	}
	for name, at := range map[string]uintptr{"OwnSQ": unsafe.Offsetof(q.OwnSQ), "OwnRQ": unsafe.Offsetof(q.OwnRQ)} {
		if at := (header + at) % line; at != 0 {
			t.Errorf("%s begins at byte %d of a line", name, at)
		}
	}
	if at := (header + unsafe.Offsetof(q.QP) + unsafe.Offsetof(q.QP.QP)) % line; at != 24 {
		t.Errorf("transport.QP begins at byte %d of a line, want 24", at)
	}
	if at, n := uintptr(unsafe.Pointer(up))%line, unsafe.Sizeof(*up); at != 0 || n > 384 {
		t.Errorf("a QP of package verbs has %d bytes from byte %d of a line on, want at most 384 from the first on", n, at)
	}
}
