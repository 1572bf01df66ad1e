package link

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// The expected ports are those of rdma_flow_label_to_udp_sport and rdma_calc_flow_label of Linux 6.1, computed
// independently.
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

// oneRoom is a Direct with a single place: its receiver has taken each packet when the next place is requested.
type oneRoom struct {
	Direct
	room [8]byte
}

func (r *oneRoom) PlaceCounted(path *Path, qpn uint32, n int, _ Ack) ([]byte, bool) {
	return r.Place(path, qpn, n, false)
}

func (r *oneRoom) Place(*Path, uint32, int, bool) ([]byte, bool) {
	r.room = [8]byte{}
	return r.room[:], true
}

// seen is a tap that records packets once they are complete.
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

// A receiver may take a packet, and its place be reused, while the sender writes more of the same batch: the tap
// has seen the packet by then.
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

// runs appends packets of the given lengths, BTH to ICRC, and returns how many the batch takes.
func runs(b *TxBatch, lens ...int) int {
	path := &Path{}
	for i, n := range lens {
		if b.Alloc(path, 1, n-wire.ICRCLen) == nil {
			return i
		}
	}
	return len(lens)
}

// repeat appends n packets of equal length to before.
func repeat(before []int, n, length int) []int {
	for range n {
		before = append(before, length)
	}
	return before
}

// A batch ends with a GSO run, or where a message begins, unless that is too early.
func TestEndWithTrain(t *testing.T) {
	const first, middle, last = 4128, 4112, 516
	for i, c := range []struct {
		lens []int
		want int
	}{
		{repeat(nil, 20, middle), 15},                                       // more packets do not fit into one datagram
		{repeat([]int{first}, 20, middle), 16},                              // a message of 64 KiB
		{append(repeat([]int{first}, 15, middle), first), 16},               // and the next message
		{append(repeat([]int{first}, 15, middle), last), 17},                // with a shorter last packet
		{append(repeat(nil, 5, middle), first), 5},                          // the end of a message, after a long enough run
		{append(repeat(nil, 3, middle), first), 4},                          // the run is too short
		{repeat([]int{first, middle, middle, middle, first}, 11, 512), 16},  // short messages share a batch
		{append(repeat([]int{middle, first}, 5, middle), first), 8},         // the batch begins with a run that is too short
		{repeat(nil, 200, 28), 128},                                         // small packets: the batch's limit of packets
		{repeat(repeat(nil, 10, middle), 10, 1040), 20},                     // two runs
		{repeat([]int{1056}, 70, 1040), 63},                                 // MTU 1024
		{append(repeat([]int{1056}, 62, 1040), 1056, 1040, 1040, 1040), 66}, // the next message, as far as it fits
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			b := NewTxBatch(128, 68<<10)
			b.EndWithTrain = true
			if got := runs(b, c.lens...); got != c.want {
				t.Errorf("%d packets, want %d", got, c.want)
			}
			b.Reset()
			if got := runs(b, c.lens...); got != c.want {
				t.Errorf("%d packets after Reset, want %d", got, c.want)
			}
		})
	}
	used := NewTxBatch(128, 68<<10)
	used.EndWithTrain = true
	runs(used, repeat([]int{first}, 15, middle)...)
	used.Reset()
	if got := runs(used, repeat(nil, 20, middle)...); got != 15 {
		t.Errorf("after Reset a batch takes %d packets, want 15", got)
	}
	for n, room := range map[int]bool{0: true, 14: true, 15: false} {
		b := NewTxBatch(128, 68<<10)
		b.EndWithTrain = true
		if runs(b, repeat(nil, n, middle)...); b.Room(middle) != room {
			t.Errorf("room behind %d packets: %v", n, !room)
		}
	}
	b := NewTxBatch(200, 1<<20)
	if got := runs(b, repeat(nil, 100, middle)...); got != 100 || !b.Room(middle) {
		t.Errorf("a batch that does not end with a train has taken %d packets of 100", got)
	}
}
