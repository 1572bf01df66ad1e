package sim

import (
	"math/rand/v2"
	"testing"
)

// TestSeedsThroughSharedMemory runs the random programs between devices that share memory. Time is real, so the order
// of events differs between runs of a seed, and no connection is broken on purpose.
func TestSeedsThroughSharedMemory(t *testing.T) {
	n := uint64(40)
	if testing.Short() || raceDetector {
		n = 10
	}
	var total Tally
	for seed := range n {
		w := &world{seed: seed, rand: rand.New(rand.NewPCG(seed, 0x5eed)), fabric: newNear(seed), near: true}
		if err := w.guarded(); err != nil {
			t.Fatalf("seed %d: %v\n  last steps: %v", seed, err, &w.trace)
		}
		total.Add(&w.tally)
	}
	t.Logf("%+v", total)
	if total.Completions < 10*n || total.Sent < total.Completions/10 {
		t.Error("too few packets went through shared memory")
	}
}
