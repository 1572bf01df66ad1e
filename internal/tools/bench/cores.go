package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/term"
)

// Two processors of a virtual machine may be cores that share a cache now and lie far apart a second later, which changes
// every figure of two processes by as much as a factor of three. So each round begins with a look at that.

const (
	lineParts    = 20
	lineTurns    = 200
	linePatience = 50 * time.Millisecond // in case that there is only one core, after all
)

// cacheLine is how long a cache line takes from one core to another and back: the quickest of several parts. 0 if it cannot be told.
func cacheLine() time.Duration {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0
	}
	var v atomic.Int32
	defer v.Store(-1)
	go func() {
		for i := int32(1); ; i += 2 {
			for v.Load() != i {
				if v.Load() < 0 {
					return
				}
			}
			v.CompareAndSwap(i, i+1)
		}
	}()
	var best time.Duration
	begin := time.Now()
	last := begin
	for i := int32(1); i < 2*lineParts*lineTurns; i += 2 {
		v.Store(i)
		for n := 1; v.Load() == i; n++ {
			if n%1024 == 0 && time.Since(begin) > linePatience {
				return best
			}
		}
		if (i+1)%(2*lineTurns) == 0 {
			now := time.Now()
			if took := now.Sub(last) / lineTurns; best == 0 || took < best {
				best = took
			}
			last = now
		}
	}
	return best
}

// lookAtCores adds a look at the cores to what the figure has.
func (r *result) lookAtCores() {
	if d := cacheLine().Nanoseconds(); d > 0 {
		r.CacheLine = widen(r.CacheLine, [2]int64{d, d})
	}
}

// widen is the range of two ranges, of which zeros are none.
func widen(a, b [2]int64) [2]int64 {
	switch zero := [2]int64{}; {
	case a == zero:
		return b
	case b == zero:
		return a
	}
	return [2]int64{min(a[0], b[0]), max(a[1], b[1])}
}

// showCores tells what the looks at the cores have found.
func showCores(p *term.Printer, results []result) {
	var all [2]int64
	for _, r := range results {
		all = widen(all, r.CacheLine)
	}
	if all[1] > 0 {
		p.Printf("%s\n", p.Dim(fmt.Sprintf("A cache line took %d to %d ns from one core to another and back.", all[0], all[1])))
	}
}
