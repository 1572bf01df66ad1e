package fault

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Faults are the faults of a network. The zero value lets all packets pass.
type Faults struct {
	// Probabilities, 0 to 1, that a packet is lost, is duplicated, is held back for up to ReorderDelay so that
	// later packets arrive first, and has one to three of its bits flipped.
	Loss, Duplicate, Reorder, Corrupt float64

	// Mark is the probability that a packet which is ECN capable is marked, as by a switch whose queue is long.
	Mark float64

	// Delay holds every packet back; Jitter adds a random time from 0 to Jitter. Jitter alone reorders.
	Delay, Jitter time.Duration

	// ReorderDelay is the longest time that Reorder holds a packet back; 0 means 100 µs.
	ReorderDelay time.Duration

	// Script, if not nil, is called first for each packet. If decided is true, its verdict applies; otherwise the
	// probabilities above do. It must not keep or change p.Data.
	Script func(p Packet) (v Verdict, decided bool)
}

// Packet is the argument of a script.
type Packet struct {
	Src, Dst netip.Addr
	Data     []byte // BTH to pad
	Nth      uint64 // the packet's number at this injector, from 0
}

// Opcode is the packet's opcode.
func (p Packet) Opcode() wire.Opcode { return wire.BTH(p.Data).Opcode() }

// Verdict is the decision for one packet. The zero value lets it pass.
type Verdict struct {
	Drop  bool
	Extra int           // additional copies, undamaged
	Flip  int           // number of bits to flip, at random positions
	Delay time.Duration // time that the packet is held back
	Mark  bool          // mark it, if it is ECN capable
}

// Class returns the traffic class of the packet behind the network. tclass is that of the sender.
func (v Verdict) Class(tclass uint8) uint8 {
	if v.Mark && tclass&wire.ECNMask != 0 {
		return tclass | wire.ECNMarked
	}
	return tclass
}

// Path returns the path with that traffic class. p stays as it is.
func (v Verdict) Path(p *link.Path) *link.Path {
	class := v.Class(p.TClass)
	if class == p.TClass {
		return p
	}
	marked := *p
	marked.TClass = class
	return &marked
}

// active reports whether f injects any fault.
func (f *Faults) active() bool {
	return f.Script != nil || f.Loss > 0 || f.Duplicate > 0 || f.Reorder > 0 || f.Corrupt > 0 || f.Delay > 0 ||
		f.Jitter > 0 || f.Mark > 0
}

const defaultReorderDelay = 100 * time.Microsecond

// Injector decides about packets. It is not safe for concurrent use.
type Injector struct {
	faults Faults
	rand   *rand.Rand
	flips  *rand.Rand
	marks  *rand.Rand
	nth    uint64
}

// NewInjector makes an injector with random numbers from seed.
func NewInjector(seed uint64, f Faults) *Injector {
	stream := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	return &Injector{faults: f, rand: stream(1), flips: stream(2), marks: stream(3)}
}

// SetFaults replaces the faults for the following packets.
func (in *Injector) SetFaults(f Faults) { in.faults = f }

// Active reports whether the injector injects any fault.
func (in *Injector) Active() bool { return in.faults.active() }

// Judge decides about the next packet, BTH to pad.
func (in *Injector) Judge(src, dst netip.Addr, data []byte) Verdict {
	f := &in.faults
	nth := in.nth
	in.nth++
	// Every packet takes the same count of random numbers, whichever are used.
	loss, dup, reorder, corrupt := in.rand.Float64(), in.rand.Float64(), in.rand.Float64(), in.rand.Float64()
	how, jitter := in.rand.Float64(), in.rand.Float64()
	if f.Script != nil {
		if v, decided := f.Script(Packet{Src: src, Dst: dst, Data: data, Nth: nth}); decided {
			return v
		}
	}
	v := Verdict{Drop: loss < f.Loss, Delay: f.Delay + time.Duration(jitter*float64(f.Jitter))}
	v.Mark = f.Mark > 0 && in.marks.Float64() < f.Mark
	if dup < f.Duplicate {
		v.Extra = 1
	}
	if corrupt < f.Corrupt {
		v.Flip = 1 + int(how*3)
	}
	if reorder < f.Reorder {
		limit := f.ReorderDelay
		if limit <= 0 {
			limit = defaultReorderDelay
		}
		v.Delay += 1 + time.Duration(how*float64(limit))
	}
	return v
}

// Flip flips n different bits of b.
func (in *Injector) Flip(b []byte, n int) {
	bits := len(b) * 8
	n = min(n, bits)
	first := in.flips.IntN(max(bits, 1))
	for k := range n {
		// The bits are evenly spaced from a random start, so no bit is flipped twice.
		bit := (first + k*(bits/n)) % bits
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// Nth is a script: the n-th packet with opcode op, counted from 1, gets v; the probabilities apply to all others.
// It has a counter, so it serves one injector.
func Nth(op wire.Opcode, n int, v Verdict) func(Packet) (Verdict, bool) {
	seen := 0
	return func(p Packet) (Verdict, bool) {
		if p.Opcode() != op {
			return Verdict{}, false
		}
		seen++
		return v, seen == n
	}
}

// Scripts combines several scripts. The first that decides wins; each is called for every packet, so that all can
// count.
func Scripts(scripts ...func(Packet) (Verdict, bool)) func(Packet) (Verdict, bool) {
	return func(p Packet) (v Verdict, decided bool) {
		for _, s := range scripts {
			if w, ok := s(p); ok && !decided {
				v, decided = w, true
			}
		}
		return v, decided
	}
}
