package link

import (
	"slices"
	"testing"
)

// The numbers are those of rdma_flow_label_to_udp_sport and rdma_calc_flow_label of Linux 6.1, computed apart from this code.
func TestSourcePort(t *testing.T) {
	for _, c := range []struct {
		label, local, remote uint32
		want                 uint16
	}{
		{0, 0, 0, 0},
		{0, 7, 0, 0},
		{1, 0, 0, 0xc001},
		{0x3fff, 0, 0, 0xffff},
		{0x4000, 0, 0, 0xc001},
		{0xfffff, 0, 0, 0xffc0},
		{0x12345, 9, 9, 0xe341},
		{0x100001, 9, 9, 0xc001},
		{0, 0x11, 0x12, 0xc132},
		{0, 0x12, 0x11, 0xc132},
		{0, 0xffffff, 0xffffff, 0xff21},
		{0, 0x123456, 0xabcdef, 0xc3c8},
	} {
		if got := SourcePort(c.label, c.local, c.remote); got != c.want {
			t.Errorf("label %#x of QPs %#x and %#x: %#x, want %#x", c.label, c.local, c.remote, got, c.want)
		}
	}
}

// oneRoom is a Direct whose receiver has taken each packet when there is a place for the next one.
type oneRoom struct {
	Direct
	room [8]byte
}

func (r *oneRoom) Place(*Path, uint32, int, bool) ([]byte, bool) {
	r.room = [8]byte{}
	return r.room[:], true
}

// seen is a tap that notes packets when they are filled in.
type seen struct {
	Tap
	last []byte
	all  []string
}

func (s *seen) Placed(_ *Path, b []byte, _ bool) { s.last = b }

func (s *seen) Sent() {
	if s.last != nil {
		s.all = append(s.all, string(s.last))
	}
	s.last = nil
}

// A receiver may take a packet, and its place be used again, while the sender fills in more of the same batch: a capture has seen it by then.
func TestTapSeesPlacesBeforeTheyAreUsedAgain(t *testing.T) {
	tap := new(seen)
	b := NewTxBatch(10, 100)
	b.Direct, b.Tap = new(oneRoom), tap
	words := []string{"message1", "message2", "message3", "message4"}
	for i, w := range words {
		alloc := b.Alloc
		if i%2 == 1 {
			alloc = b.AllocTrain
		}
		copy(alloc(nil, 1, 8), w)
	}
	b.Tap.Sent()
	b.Reset()
	if !slices.Equal(tap.all, words) {
		t.Errorf("the tap has seen %q", tap.all)
	}
}
