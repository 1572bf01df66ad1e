package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"
)

// An event is a change of the network or a device at a step of a run.
type event struct {
	at int
	do func() error
}

// plan draws the partitions and kills of a run.
func (w *world) plan() (list []event) {
	if w.near || w.calm {
		return nil
	}
	r := w.rand
	when := func(at int, do func()) {
		list = append(list, event{at, func() error { do(); return nil }})
	}
	switch r.IntN(8) {
	case 0:
		when(r.IntN(busySteps), w.partForGood)
	case 1, 2:
		for range 1 + r.IntN(3) {
			at := r.IntN(busySteps)
			when(at, w.part)
			when(at+1+r.IntN(80), w.heal)
		}
	case 3, 4:
		at, n := r.IntN(busySteps), w.nodes[r.IntN(len(w.nodes))]
		list = append(list, event{at, n.kill})
		if r.IntN(4) > 0 {
			list = append(list, event{at + r.IntN(40), n.restart})
		}
		w.tally.Faults[faultKill]++
	}
	slices.SortStableFunc(list, func(a, b event) int { return a.at - b.at })
	return list
}

// psns assigns a range of PSNs to each direction of each connection. So packets of an earlier connection of the same
// two QPs, which may still be in flight, are never mistaken for those of the present one: the specification leaves
// that to the program.
type psns struct {
	first uint32
	step  uint32 // odd: every range is used once before any is used again
	n     uint32
}

const psnRange = 1 << 17

// draw draws the first range. In half of the runs it contains the wrap-around of PSNs.
func (p *psns) draw(r *rand.Rand) {
	p.first, p.step = r.Uint32()&0xffffff, r.Uint32()|1
	if r.IntN(2) == 0 {
		p.first = 0xffffff - r.Uint32N(200)
	}
}

func (p *psns) next() uint32 {
	at := p.first + p.n*p.step%(1<<24/psnRange)*psnRange
	p.n++
	return at & 0xffffff
}

// A trace holds the latest decisions, for the report, which formats them.
type trace struct {
	notes [16]note
	n     int
}

type note struct {
	at   time.Duration
	what string
	args [3]any
}

func (w *world) note(what string, args ...any) {
	t := &w.trace
	e := &t.notes[t.n%len(t.notes)]
	*e = note{at: w.fabric.Now(), what: what}
	copy(e.args[:], args)
	t.n++
}

func (t *trace) String() string {
	var b strings.Builder
	for i := max(0, t.n-len(t.notes)); i < t.n; i++ {
		e := &t.notes[i%len(t.notes)]
		fmt.Fprintf(&b, "\n    %v %s", e.at, e.what)
		for _, a := range e.args {
			if a != nil {
				fmt.Fprintf(&b, " %v", a)
			}
		}
	}
	return b.String()
}

// guarded calls run and turns a panic into an error.
func (w *world) guarded() (err error) {
	defer func() {
		if p := recover(); p != nil {
			buf := make([]byte, 4<<10)
			err = fmt.Errorf("panic: %v\n%s", p, buf[:runtime.Stack(buf, false)])
		}
	}()
	return w.run()
}
