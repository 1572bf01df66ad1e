package sim

import (
	"flag"
	"runtime"
	"strings"
	"testing"
)

var (
	oneSeed = flag.Uint64("sim.seed", 0, "run this seed only")
	first   = flag.Uint64("sim.first", 1, "the first seed to run")
	seeds   = flag.Uint64("sim.seeds", 10000, "how many seeds to run")
)

// TestSeeds runs random programs over faulty networks; see the package documentation.
func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		*first, *seeds = *oneSeed, 1
	}
	n := *seeds
	if testing.Short() || raceDetector {
		n = min(n, 300)
	}
	runs := Runs{First: *first, N: n, Parallel: runtime.GOMAXPROCS(0), MostWrong: 10}
	runs.Wrong = func(_ uint64, err error) { t.Error(err) }
	total := runs.Do()
	var b strings.Builder
	total.Print(&b)
	t.Logf("%d seeds\n%s", n, b.String())
	if n >= 300 {
		complete(t, &total)
	}
}

// complete checks that every kind of event of the simulator has happened.
func complete(t *testing.T, total *Tally) {
	for name, n := range map[string]uint64{
		"lost": total.Lost, "repeated": total.Repeated, "corrupted": total.Corrupted,
		"partitions": total.Partitions, "cut off": total.Cutoff, "broken": total.Broken,
		"through windows": total.ThroughWindows, "invalidated": total.Invalidated, "reconnected": total.Reconnected,
		"drained": total.Drained, "resized": total.Resized, "notified": total.Notified, "tails": total.Tails,
	} {
		if n == 0 {
			t.Errorf("%s: never happened", name)
		}
	}
	for k, n := range total.Faults[noFault+1:] {
		if n == 0 {
			t.Errorf("%v: never happened", noFault+1+faultKind(k))
		}
	}
}

// TestSameSeedSameRun checks that two runs of a seed do the same.
func TestSameSeedSameRun(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		a, err := Run(seed)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := Run(seed); a != b {
			t.Errorf("seed %d: two runs differ:\n%+v\n%+v", seed, a, b)
		}
	}
}
