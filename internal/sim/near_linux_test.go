package sim

import (
	"math/rand/v2"
	"testing"
)

// TestSeedsThroughSharedMemory runs the random programs between devices that share memory. Time is real, so a seed gives the
// same program but not the same order of events.
func TestSeedsThroughSharedMemory(t *testing.T) {
	n := uint64(40)
	if testing.Short() || raceDetector {
		n = 10
	}
	var total Tally
	for seed := range n {
		w := &world{seed: seed, rand: rand.New(rand.NewPCG(seed, 0x5eed)), fabric: newNear(seed), near: true}
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v\n  lately: %v", seed, err, w.trace)
		}
		w.tally.Stats = w.fabric.Stats()
		total.Add(w.tally)
	}
	t.Logf("%+v", total)
	if total.Completions < 10*n || total.Sent < total.Completions/10 {
		t.Error("little has happened, or not through shared memory")
	}
}
