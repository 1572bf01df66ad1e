package fault

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
)

func ack() []byte {
	b := make([]byte, 16)
	wire.BTH(b).Put(wire.RC|wire.Ack, 0, 0xFFFF, 1, 1, 0)
	return b
}

func TestQueue(t *testing.T) {
	var q Queue[int]
	r := rand.New(rand.NewPCG(1, 1))
	type entry struct {
		at int64
		v  int
	}
	var want []entry
	for i := range 1000 {
		at := r.Int64N(100)
		q.Push(at, i)
		want = append(want, entry{at, i})
	}
	slices.SortStableFunc(want, func(a, b entry) int { return int(a.at - b.at) })
	if _, ok := q.Pop(-1); ok {
		t.Fatal("a value left before its time")
	}
	for i, w := range want {
		if at, ok := q.Next(); !ok || at != w.at {
			t.Fatalf("value %d: Next is %d, %v, want %d", i, at, ok, w.at)
		}
		if _, ok := q.Pop(w.at - 1); ok {
			t.Fatalf("value %d left before its time", i)
		}
		if v, ok := q.Pop(w.at); !ok || v != w.v {
			t.Fatalf("value %d is %d, %v, want %d", i, v, ok, w.v)
		}
	}
	if _, ok := q.Next(); ok || q.Len() != 0 {
		t.Error("the queue is not empty at the end")
	}
}

func TestProbabilities(t *testing.T) {
	in := NewInjector(
		7,
		Faults{Loss: 0.1, Duplicate: 0.2, Reorder: 0.3, Corrupt: 0.4, Delay: 1000, Jitter: 500, ReorderDelay: 100000},
	)
	const n = 100000
	var lost, dup, flipped, held int
	for range n {
		v := in.Judge(addrA, addrB, ack())
		if v.Drop {
			lost++
		}
		dup += v.Extra
		if v.Flip > 0 {
			flipped++
		}
		if v.Flip > 3 {
			t.Fatalf("%d bits flipped, want at most 3", v.Flip)
		}
		if v.Delay > 1500 {
			held++
		}
		if v.Delay < 1000 || v.Delay > 1500+100001 {
			t.Fatalf("delay %v", v.Delay)
		}
	}
	for _, c := range []struct {
		what string
		got  int
		want float64
	}{{"lost", lost, 0.1}, {"doubled", dup, 0.2}, {"held back", held, 0.3}, {"damaged", flipped, 0.4}} {
		if got := float64(c.got) / n; math.Abs(got-c.want) > 0.01 {
			t.Errorf("%.3f of the packets were %s, want %.1f", got, c.what, c.want)
		}
	}
	if in.SetFaults(Faults{}); in.Active() || in.Judge(addrA, addrB, ack()) != (Verdict{}) {
		t.Error("no faults, but not everything passes")
	}
}

// TestIndependentDice checks that the outcome of one fault does not depend on the probabilities of the others.
func TestIndependentDice(t *testing.T) {
	one := NewInjector(3, Faults{Loss: 0.5})
	other := NewInjector(3, Faults{Loss: 0.5, Duplicate: 0.5, Reorder: 0.5, Corrupt: 0.5, Jitter: time.Second})
	pkt := ack()
	for i := range 1000 {
		a, b := one.Judge(addrA, addrB, pkt), other.Judge(addrA, addrB, pkt)
		if a.Drop != b.Drop {
			t.Fatalf("packet %d: lost %v alone, %v together with other faults", i, a.Drop, b.Drop)
		}
		other.Flip(pkt[12:], b.Flip)
	}
}

func TestFlip(t *testing.T) {
	in := NewInjector(1, Faults{})
	for n := range 9 {
		for _, size := range []int{1, 2, 16, 5000} {
			for range 50 {
				b := make([]byte, size)
				in.Flip(b, n)
				set := 0
				for _, c := range b {
					set += bits.OnesCount8(c)
				}
				if set != n {
					t.Fatalf("%d of %d bits were flipped, want %d", set, 8*size, n)
				}
			}
		}
	}
	in.Flip(nil, 3)
}

func TestScripts(t *testing.T) {
	drop, twice := Verdict{Drop: true}, Verdict{Extra: 1}
	in := NewInjector(1, Faults{Loss: 1, Script: Scripts(
		Nth(wire.RC|wire.Ack, 2, twice),
		Nth(wire.RC|wire.Ack, 3, drop),
		func(p Packet) (Verdict, bool) { return Verdict{}, p.Nth == 0 && p.Src == addrA && p.Dst == addrB },
	)})
	want := []Verdict{{}, twice, drop, drop} // the last by chance
	for i, w := range want {
		if got := in.Judge(addrA, addrB, ack()); got != w {
			t.Errorf("packet %d: %+v, want %+v", i, got, w)
		}
	}
}
