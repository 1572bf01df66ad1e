package sock

import (
	"slices"
	"testing"
)

// A look finds as many bytes as are asked for and left, in whichever buffers they are. A copy takes them, in order.
func TestPartsOfSeveralBuffers(t *testing.T) {
	iov := [][]byte{{}, {0, 1, 2}, {}, {3}, {4, 5, 6, 7, 8}, {}, {9}}
	p := partsOf(iov)
	if p.left != 10 {
		t.Errorf("%d bytes are left", p.left)
	}
	for most, want := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10} {
		if got := p.look(most); got != want || p.looked != want {
			t.Errorf("a look at %d finds %d, %d in all", most, got, p.looked)
		}
	}
	p = partsOf(iov)
	if got := p.look(5); got != 5 {
		t.Errorf("a look at 5 bytes finds %d", got)
	}
	dst := make([]byte, 4)
	if !p.copyTo(dst) || !slices.Equal(dst, []byte{0, 1, 2, 3}) || p.left != 6 || p.looked != 1 {
		t.Errorf("copied %v; %d bytes are left, %d looked at", dst, p.left, p.looked)
	}
	if got := p.look(4); got != 4 || p.looked != 4 {
		t.Errorf("a look at 4 bytes finds %d, %d in all", got, p.looked)
	}
	spare := make([]byte, 0, 2)
	if b, ok := p.take(6, &spare); !ok || !slices.Equal(b, []byte{4, 5, 6, 7, 8, 9}) || p.left != 0 || &b[0] != &spare[0] {
		t.Errorf("took %v, %v; %d bytes are left", b, ok, p.left)
	}
	if p = partsOf(nil); p.left != 0 || p.look(1) != 0 {
		t.Errorf("no buffers: %d bytes", p.left)
	}
}
