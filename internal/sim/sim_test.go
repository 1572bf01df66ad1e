package sim

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	oneSeed = flag.Uint64("sim.seed", 0, "run this seed only")
	first   = flag.Uint64("sim.first", 1, "the first seed to run")
	seeds   = flag.Uint64("sim.seeds", 2000, "how many seeds to run")
)

// TestSeeds runs random programs over faulty networks; see the package's documentation.
func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		tally, err := run(*oneSeed)
		t.Logf("%+v", tally)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	n := *seeds
	if testing.Short() || raceDetector {
		n = min(n, 200)
	}
	var total Tally
	var mu sync.Mutex
	var next atomic.Uint64
	next.Store(*first)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= *first+n || t.Failed() {
					return
				}
				tally, err := run(seed)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				total.Add(tally)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds: %+v", n, total)
	if n >= 200 && (total.Lost == 0 || total.Repeated == 0 || total.Corrupted == 0 || total.Broken == 0 || total.Errors == 0 || total.Invalidated == 0 || total.ThroughWindows == 0 || total.Completions < 10*n) {
		t.Error("some of what the simulator is there for did not happen")
	}
}

// run turns a panic into an error that names the seed.
func run(seed uint64) (tally Tally, err error) {
	defer func() {
		if p := recover(); p != nil {
			buf := make([]byte, 4<<10)
			err = fmt.Errorf("seed %d: panic: %v\n%s", seed, p, buf[:runtime.Stack(buf, false)])
		}
	}()
	return Run(seed)
}
