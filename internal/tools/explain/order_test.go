package explain

import (
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// madeSource is a capture of packets with the given times, each after a pause.
type madeSource struct {
	times []time.Duration
	pause func(i int)
}

func (s *madeSource) next() (data []byte, at time.Time, link layers.LinkType, comment, process string, direction int,
	err error) {
	if len(s.times) == 0 {
		return nil, at, 0, "", "", 0, io.EOF
	}
	if s.pause != nil {
		s.pause(len(s.times))
	}
	at, s.times = time.Unix(100, 0).Add(s.times[0]), s.times[1:]
	return rocePacket(), at, layers.LinkTypeRaw, "", "", 0, nil
}

// rocePacket returns an IPv4 packet with a SEND.
func rocePacket() []byte {
	f := wire.Fields{Opcode: wire.SendOnly, PKey: 0xffff, DestQPN: 5, Payload: make([]byte, 64)}
	body := append(f.Build(), 0, 0, 0, 0) // the ICRC
	n := 28 + len(body)
	head := []byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
		0xc0, 0, 0x12, 0xb7, byte((n - 20) >> 8), byte(n - 20), 0, 0}
	return append(head, body...)
}

// TestLinesInTimeOrder: the packets of two programs, which come in pieces of 10 ms, are in the order of their times.
func TestLinesInTimeOrder(t *testing.T) {
	var times []time.Duration
	for piece := range 50 {
		for range 2 { // of two programs
			for i := range 20 {
				times = append(times, time.Duration(piece)*10*time.Millisecond+time.Duration(i)*500*time.Microsecond)
			}
		}
	}
	for _, span := range []time.Duration{fileSpan, liveSpan} {
		var got []time.Duration
		others, err := each(&madeSource{times: times}, span, func(p *packet) bool {
			got = append(got, p.at.Sub(time.Unix(100, 0)))
			return true
		})
		want := slices.Sorted(slices.Values(times))
		if err != nil || others != 0 || !slices.Equal(got, want) {
			t.Errorf("span %v: %d of %d packets in order, %d others, %v", span, len(got), len(want), others, err)
		}
	}
}

// TestPacketsBeyondTheSpan: packets that come too late are passed on once, and a clock that was set back begins a new
// order.
func TestPacketsBeyondTheSpan(t *testing.T) {
	const s = time.Second
	for _, c := range []struct{ times, want []time.Duration }{
		{[]time.Duration{10 * s, 11 * s, 5 * s, 12 * s}, []time.Duration{10 * s, 11 * s, 5 * s, 12 * s}},
		{[]time.Duration{9000 * s, 9001 * s, 2 * s, s + s/2, 3 * s},
			[]time.Duration{9000 * s, 9001 * s, s + s/2, 2 * s, 3 * s}},
	} {
		var got []time.Duration
		_, _ = each(&madeSource{times: c.times}, s, func(p *packet) bool {
			got = append(got, p.at.Sub(time.Unix(100, 0)))
			return true
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.times, got, c.want)
		}
	}
}

// TestBoundedSorter: no order of the times makes a sorter hold more than its bounds, and none loses a packet.
func TestBoundedSorter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, at := range map[string]func(i int) int64{
		"one time": func(int) int64 { return 0 }, "backwards": func(i int) int64 { return int64(-i) },
		"random": func(int) int64 { return random.Int64N(1 << 40) },
	} {
		for _, size := range []int{0, 32 << 10} {
			passed := 0
			o := sorter{span: fileSpan, out: func(*packet) { passed++ }}
			const packets = 3 * mostSorted / 2
			for i := range packets {
				o.add(&packet{at: time.Unix(0, at(i)), tcp: &part{data: make([]byte, size)}})
				if len(o.held) > mostSorted || o.bytes > mostSortedBytes {
					t.Fatalf("%s: %d packets, %d bytes", name, len(o.held), o.bytes)
				}
			}
			if o.flush(); passed != packets || o.bytes != 0 {
				t.Errorf("%s: %d of %d packets, %d bytes left", name, passed, packets, o.bytes)
			}
		}
	}
}

// TestIdleSourceHoldsNothing: a live capture without new packets has passed on the packets before.
func TestIdleSourceHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		pause := func(left int) {
			if left == 1 {
				time.Sleep(time.Hour)
				synctest.Wait()
				seen = append(seen, "idle")
			}
		}
		s := &madeSource{times: []time.Duration{0, time.Millisecond, 2 * time.Millisecond}, pause: pause}
		_, _ = each(s, liveSpan, func(*packet) bool { seen = append(seen, "packet"); return true })
		if got := strings.Join(seen, " "); got != "packet packet idle packet" {
			t.Error(got)
		}
	})
}

// TestTimesThatNobodyHas: times of a damaged file, at the ends of what time.Time has, lose no packet.
func TestTimesThatNobodyHas(t *testing.T) {
	const first = 1<<63 - 62135596800 // its seconds since the year 1 wrap around
	for _, sec := range []int64{first - 1, first, first + 1, -1 << 63, 1<<63 - 1, 0} {
		n := 0
		o := &sorter{span: fileSpan, out: func(*packet) { n++ }}
		o.add(&packet{at: time.Unix(sec, 0)})
		o.add(&packet{at: time.Unix(100, 0)})
		o.add(&packet{at: time.Unix(sec, 0)})
		if o.flush(); n != 3 || o.bytes != 0 {
			t.Errorf("second %d: %d packets came out, %d bytes are left", sec, n, o.bytes)
		}
	}
}
