package sim

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Runs executes a range of seeds.
type Runs struct {
	First, N  uint64
	Parallel  int                          // runs at a time
	MostWrong int                          // number of wrong runs after which Do stops; 0: it does not stop
	Wrong     func(seed uint64, err error) // called for each wrong run, one at a time
}

// longest is how long a run may take, which takes a millisecond or two: a loop without an end is found, and its seed.
const longest = time.Minute

// Do runs the seeds and returns the sum of their tallies.
func (r *Runs) Do() Tally {
	var (
		mu    sync.Mutex
		total Tally
		wrong int
		next  = r.First
		wg    sync.WaitGroup
	)
	// claim returns the next few seeds, which are reported together.
	claim := func() (from, to uint64) {
		mu.Lock()
		defer mu.Unlock()
		if r.MostWrong > 0 && wrong >= r.MostWrong {
			return 0, 0
		}
		from, to = next, min(next+20, r.First+r.N)
		next = to
		return from, to
	}
	report := func(seed uint64, t *Tally, err error) {
		mu.Lock()
		defer mu.Unlock()
		total.Add(t)
		total.Runs++
		if err != nil {
			wrong++
			r.Wrong(seed, err)
		}
	}
	for range max(1, r.Parallel) {
		wg.Go(func() {
			for {
				from, to := claim()
				if from == to {
					return
				}
				for seed := from; seed < to; seed++ {
					watch := time.AfterFunc(longest, func() { giveUp(seed) })
					t, err := Run(seed)
					watch.Stop()
					report(seed, &t, err)
				}
			}
		})
	}
	wg.Wait()
	return total
}

// giveUp ends the program with the stacks of all goroutines.
func giveUp(seed uint64) {
	debug.SetTraceback("all")
	panic(fmt.Sprintf("seed %d has not ended after %v", seed, longest))
}
