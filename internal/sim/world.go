package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// world is one run: a fabric in virtual time, two devices and some pairs of QPs.
type world struct {
	seed   uint64
	rand   *rand.Rand
	tally  Tally
	fabric network
	near   bool // its devices share memory: there is no cable to take out
	nodes  []*node
	pairs  []pair
	trace  []string // the latest decisions, for the report
	broken bool     // the cable is out: connections must end with errors
}

// network is what connects the devices: a fabric of rdmatest, or something else that does as it does.
type network interface {
	Open(name string, addrs ...netip.Addr) (*verbs.Context, error)
	Advance() bool
	Now() time.Duration
	SetFaults(rdmatest.Faults)
	Cut(a, b netip.Addr)
	Stats() rdmatest.Stats
	Close() error
}

// Tally counts what happened, so that a test can see that the faults and everything that answers them were there.
type Tally struct {
	rdmatest.Stats
	Completions, Errors, Broken uint64
	ThroughWindows, Invalidated uint64 // requests through memory windows, SENDs that invalidated one
}

// Add adds another run's tally.
func (t *Tally) Add(o Tally) {
	t.Sent += o.Sent
	t.Lost += o.Lost
	t.Repeated += o.Repeated
	t.Corrupted += o.Corrupted
	t.Completions += o.Completions
	t.Errors += o.Errors
	t.Broken += o.Broken
	t.ThroughWindows += o.ThroughWindows
	t.Invalidated += o.Invalidated
}

// node is a device with what its QPs share.
type node struct {
	ctx *verbs.Context
	pd  *verbs.PD
	cqs []*verbs.CQ
	wcs [16]verbs.WC
	// owner finds the end that a completion belongs to.
	owner map[uint32]end
}

// pair is two QPs that work with each other.
type pair interface {
	// act does something at random: posts, checks, changes nothing else.
	act() error
	// quiet stops posting new requests.
	quiet()
	// end takes the pair to its last state when the cable stays out.
	end() error
	// done tells whether everything posted has completed, and what is missing if not.
	done() (bool, string)
	// check compares memory with what it should hold at the end.
	check() error
}

// end is one side of a pair, to which completions go.
type end interface {
	completed(wc *verbs.WC) error
}

const (
	busySteps  = 400               // random steps with faults
	endingTime = 120 * time.Second // virtual; longer than any chain of retries
)

// Run does everything that the seed says. Its error tells what went wrong and how to see it again.
func Run(seed uint64) (Tally, error) {
	w := &world{seed: seed, rand: rand.New(rand.NewPCG(seed, 0x5eed))}
	err := w.run()
	if w.fabric != nil {
		w.tally.Stats = w.fabric.Stats()
	}
	if err != nil {
		return w.tally, fmt.Errorf("seed %d: %w\n  lately: %v\n  again: go test ./internal/sim -run TestSeeds -sim.seed=%d -v", seed, err, w.trace, seed)
	}
	return w.tally, nil
}

func (w *world) run() error {
	if err := w.build(); err != nil {
		return err
	}
	cutAt := -1
	if w.rand.IntN(8) == 0 && !w.near {
		cutAt = w.rand.IntN(busySteps)
	}
	for i := range busySteps {
		if i == cutAt {
			w.cut()
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	if err := w.finish(); err != nil {
		return err
	}
	for _, p := range w.pairs {
		if err := p.check(); err != nil {
			return err
		}
	}
	return w.close()
}

// cut takes the cable out for good.
func (w *world) cut() {
	w.note("cut")
	w.broken = true
	w.tally.Broken++
	w.fabric.Cut(addrOf(0), addrOf(1))
}

// finish lets what was posted come to its end, over a network that is good again or gone for ever.
func (w *world) finish() error {
	w.fabric.SetFaults(rdmatest.Faults{})
	for _, p := range w.pairs {
		p.quiet()
	}
	if err := w.settle(); err != nil || !w.broken {
		return err
	}
	for _, p := range w.pairs {
		if err := p.end(); err != nil {
			return err
		}
	}
	return w.settle()
}

// settle lets time pass until all pairs are done.
func (w *world) settle() error {
	limit := w.fabric.Now() + endingTime
	for {
		missing := ""
		for _, p := range w.pairs {
			if err := p.act(); err != nil {
				return err
			}
			if ok, what := p.done(); !ok {
				missing = what
			}
		}
		before := w.tally.Completions
		if err := w.poll(); err != nil {
			return err
		}
		moved := w.tally.Completions != before
		if missing == "" {
			return nil
		}
		if w.fabric.Now() > limit {
			return fmt.Errorf("not finished after %v more: %s", endingTime, missing)
		}
		if !w.fabric.Advance() && !moved {
			return fmt.Errorf("nothing will happen any more, but not all is done: %s", missing)
		}
	}
}

// step is one random thing: a pair acts, a CQ is polled, or time goes on.
func (w *world) step() error {
	switch w.rand.IntN(4) {
	case 0, 1:
		return w.pairs[w.rand.IntN(len(w.pairs))].act()
	case 2:
		return w.poll()
	default:
		w.fabric.Advance()
		return nil
	}
}

// poll takes some of what the CQs hold.
func (w *world) poll() error {
	for _, n := range w.nodes {
		for _, cq := range n.cqs {
			got, err := cq.Poll(n.wcs[:1+w.rand.IntN(len(n.wcs))])
			if err != nil {
				return err
			}
			for i := range got {
				wc := &n.wcs[i]
				e := n.owner[wc.QPNum]
				w.tally.Completions++
				if e == nil {
					return fmt.Errorf("a completion for QP %#x, which nobody made", wc.QPNum)
				}
				if err := e.completed(wc); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *world) build() error {
	if faults := w.faults(); w.fabric == nil {
		w.fabric = rdmatest.New(rdmatest.Config{Seed: w.seed, Faults: faults, MTU: 4096 + 200})
	}
	for i := range 2 {
		ctx, err := w.fabric.Open(fmt.Sprintf("sim%d", i), addrOf(i))
		if err != nil {
			return err
		}
		n := &node{ctx: ctx, owner: map[uint32]end{}}
		if n.pd, err = ctx.AllocPD(); err != nil {
			return err
		}
		for range 1 + w.rand.IntN(2) {
			cq, err := ctx.CreateCQ(4096, nil)
			if err != nil {
				return err
			}
			n.cqs = append(n.cqs, cq)
		}
		w.nodes = append(w.nodes, n)
	}
	for range 1 + w.rand.IntN(4) { // 2 to 8 QPs
		var p pair
		var err error
		if w.rand.IntN(4) > 0 {
			p, err = newRCPair(w)
		} else {
			p, err = newUnreliablePair(w)
		}
		if err != nil {
			return err
		}
		w.pairs = append(w.pairs, p)
	}
	return nil
}

// faults draws a network. Together loss and damage stay below 5 %, so that eight failures in a row, which end a
// connection by right, do not happen within the seeds that anybody runs.
func (w *world) faults() rdmatest.Faults {
	some := func(most float64) float64 {
		if w.rand.IntN(3) == 0 {
			return 0
		}
		return w.rand.Float64() * most
	}
	return rdmatest.Faults{
		Loss: some(0.03), Duplicate: some(0.05), Reorder: some(0.05), Corrupt: some(0.015),
		Delay: time.Duration(w.rand.IntN(20)) * time.Microsecond, Jitter: time.Duration(w.rand.IntN(5)) * time.Microsecond,
	}
}

func addrOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, byte(1 + i)}) }

func (w *world) cq(n *node) *verbs.CQ { return n.cqs[w.rand.IntN(len(n.cqs))] }

func (w *world) note(format string, args ...any) {
	if len(w.trace) == 12 {
		w.trace = w.trace[1:]
	}
	w.trace = append(w.trace, fmt.Sprintf("\n    %v ", w.fabric.Now())+fmt.Sprintf(format, args...))
}

// close checks that everything can be taken down in order.
func (w *world) close() error {
	for _, n := range w.nodes {
		for _, e := range n.owner {
			if c, ok := e.(interface{ close() error }); ok {
				if err := c.close(); err != nil {
					return err
				}
			}
		}
		for _, cq := range n.cqs {
			if err := cq.Close(); err != nil {
				return err
			}
		}
		if err := n.pd.Close(); err != nil {
			return err
		}
	}
	return w.fabric.Close()
}
