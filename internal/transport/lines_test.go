//go:build amd64 || arm64

package transport

import (
	"testing"
	"unsafe"
)

// TestUsedLines checks that each of the two places of what messages use of a QP fills five cache lines, where package
// soft has QPs: 24 bytes after the beginning of a line. A request uses four lines of the second place, and one of the
// peer two.
func TestUsedLines(t *testing.T) {
	const line, at = 64, 24
	for name, p := range map[string][2]uintptr{
		"requests": {requesterAt, responderEnd}, "others": {coreAt, coreEnd},
	} {
		if begin := (at + p[0]) % line; begin != 0 || p[1]-p[0] > 5*line {
			t.Errorf("%s: %d bytes from byte %d of a line on, want at most %d from the first on", name, p[1]-p[0], begin, 5*line)
		}
	}
	lines := func(from, to uintptr) uintptr { return (at+to-1)/line - (at+from)/line + 1 }
	if n := lines(requesterAt, requesterEnd); n > 4 {
		t.Errorf("a request uses %d lines", n)
	}
	if n := lines(responderAt, responderEnd); n > 2 {
		t.Errorf("a request of the peer uses %d lines", n)
	}
	if n := lines(dueAt, dueEnd); n > 1 {
		t.Errorf("what is due is in %d lines", n)
	}
	if n := unsafe.Sizeof(SendQueue{}); n != line {
		t.Errorf("a SendQueue has %d bytes, want %d", n, line)
	}
	if UsedOfRQ > line {
		t.Errorf("messages use %d bytes of a RecvQueue, want at most %d", UsedOfRQ, line)
	}
	const header = 8 // of the memory allocator
	c := sendChunk{}
	if unsafe.Sizeof(c.slots[0])%line != 0 || (header+unsafe.Offsetof(c.slots))%line != 0 ||
		(header+unsafe.Offsetof(c.short))%line != 0 {
		t.Errorf("slots of %d bytes from byte %d on, inline data from byte %d on", unsafe.Sizeof(c.slots[0]),
			unsafe.Offsetof(c.slots), unsafe.Offsetof(c.short))
	}
}
