package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A world is one run: a fabric in virtual time, devices and some pairs of QPs.
type world struct {
	seed   uint64
	rand   *rand.Rand
	tally  Tally
	fabric network
	near   bool // the devices share memory: there are no faults, and time is real
	calm   bool // no connection is broken on purpose
	net    conditions
	nodes  []*node
	pairs  []pair
	psns   psns
	trace  trace
}

// A network connects the devices: a fabric of rdmatest, or shared memory.
type network interface {
	Open(name string, addrs ...netip.Addr) (*verbs.Context, error)
	Advance() bool
	Now() time.Duration
	SetFaults(rdmatest.Faults)
	Stats() rdmatest.Stats
	Close() error
}

// A pair is two connected QPs.
type pair interface {
	// act does one random step: it posts, checks or breaks.
	act() error
	// quiet stops posting new requests.
	quiet()
	// done reports whether everything posted has completed.
	done() bool
	// String describes the incomplete requests.
	String() string
	// check compares memory with the expected content at the end.
	check() error
	// tail sends the messages that must arrive, over a network without faults.
	tail() error
	// lose destroys the objects of the pair on a killed node.
	lose(n *node) error
	// close destroys the remaining objects.
	close() error
}

// An end is one side of a pair, the destination of completions.
type end interface {
	completed(wc *verbs.WC) error
}

const (
	most       = 3                 // nodes
	busySteps  = 400               // random steps with faults
	endingTime = 120 * time.Second // virtual; longer than any sequence of retries
)

// Run executes the run of a seed. Its error describes the failure and how to reproduce it. A panic is an error too.
func Run(seed uint64) (Tally, error) {
	w := &world{seed: seed, rand: rand.New(rand.NewPCG(seed, 0x5eed))}
	err := w.guarded()
	if err != nil {
		const again = "go run ./internal/tools/soak -runs 1 -seed"
		return w.tally, fmt.Errorf("seed %d: %w\n  network: %v\n  last steps:%v\n  reproduce: %s %d",
			seed, err, &w.net, &w.trace, again, seed)
	}
	return w.tally, nil
}

func (w *world) run() error {
	if err := w.build(); err != nil {
		return err
	}
	events := w.plan()
	for i := range busySteps {
		for len(events) > 0 && events[0].at <= i {
			if err := events[0].do(); err != nil {
				return err
			}
			events = events[1:]
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

// finish lets posted requests complete, over a network without faults except a permanent partition.
func (w *world) finish() error {
	w.heal()
	w.fabric.SetFaults(w.net.clear())
	for _, p := range w.pairs {
		p.quiet()
	}
	if err := w.complete(); err != nil {
		return err
	}
	// Delayed packets arrive before the messages that must arrive in order.
	for limit := w.fabric.Now() + 10*time.Millisecond; !w.near && w.fabric.Now() < limit && w.fabric.Advance(); {
	}
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		if err := n.drain(); err != nil {
			return err
		}
	}
	for _, p := range w.pairs {
		if err := p.tail(); err != nil {
			return err
		}
	}
	return w.complete()
}

// complete advances time until all pairs are done.
func (w *world) complete() error {
	limit := w.fabric.Now() + endingTime
	for idle := 0; ; {
		for _, p := range w.pairs {
			if err := p.act(); err != nil {
				return err
			}
		}
		moved, err := w.poll()
		if err != nil {
			return err
		}
		missing := slices.IndexFunc(w.pairs, func(p pair) bool { return !p.done() })
		if missing < 0 && moved == 0 {
			return nil
		}
		if w.fabric.Now() > limit {
			return fmt.Errorf("not finished after %v more: %s", endingTime, w.missing())
		}
		if w.fabric.Advance() || moved > 0 {
			idle = 0
		} else if idle++; idle > 1 { // the pairs have seen the results of the last round
			return fmt.Errorf("no event is left, but requests are incomplete: %s", w.missing())
		}
	}
}

// missing describes the incomplete pairs.
func (w *world) missing() (s string) {
	for _, p := range w.pairs {
		if !p.done() {
			s += "\n    " + p.String()
		}
	}
	return s
}

// step is one random step: a pair acts, CQs are polled, or time advances.
func (w *world) step() error {
	switch w.rand.IntN(4) {
	case 0, 1:
		return w.pairs[w.rand.IntN(len(w.pairs))].act()
	case 2:
		if w.rand.IntN(32) == 0 {
			if n := w.nodes[w.rand.IntN(len(w.nodes))]; !n.dead {
				return n.resize()
			}
		}
		_, err := w.poll()
		return err
	default:
		n := 1
		if w.rand.IntN(8) == 0 {
			n += w.rand.IntN(20)
		}
		for ; n > 0 && w.fabric.Advance(); n-- {
		}
		return nil
	}
}

// poll polls some completions of the CQs.
func (w *world) poll() (took int, err error) {
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		got, err := n.poll(1 + w.rand.IntN(len(n.wcs)))
		if err != nil {
			return took, err
		}
		took += got
	}
	return took, nil
}

func (w *world) build() error {
	w.drawConditions()
	w.psns.draw(w.rand)
	w.calm = w.rand.IntN(3) == 0 || w.near
	nodes := 2
	if w.fabric == nil {
		c := rdmatest.Config{Seed: w.seed, Faults: w.net.faults, MTU: 4096 + 200, Shards: 1 + w.rand.IntN(3)}
		w.fabric = rdmatest.New(c)
		nodes += w.rand.IntN(most - 1)
	}
	for i := range nodes {
		n, err := w.newNode(i)
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, n)
	}
	for range 1 + w.rand.IntN(4) { // 2 to 8 QPs
		p, err := w.newPair()
		if err != nil {
			return err
		}
		w.pairs = append(w.pairs, p)
	}
	return nil
}

func (w *world) newPair() (pair, error) {
	a := w.rand.IntN(len(w.nodes))
	b := (a + 1 + w.rand.IntN(len(w.nodes)-1)) % len(w.nodes)
	if w.rand.IntN(10) == 0 && !w.near {
		b = a // loopback
	}
	if w.rand.IntN(4) > 0 {
		return newRCPair(w, w.nodes[a], w.nodes[b])
	}
	return newUnreliablePair(w, w.nodes[a], w.nodes[b])
}

func addrOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, byte(1 + i)}) }

func indexOf(a netip.Addr) int { b := a.As4(); return int(b[3]) - 1 }

// close checks that all objects can be destroyed in order.
func (w *world) close() error {
	w.tally.Stats = w.fabric.Stats()
	for _, p := range w.pairs {
		if err := p.close(); err != nil {
			return err
		}
	}
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		if err := n.close(); err != nil {
			return err
		}
	}
	return w.fabric.Close()
}
