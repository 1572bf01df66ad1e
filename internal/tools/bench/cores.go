package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/term"
)

// On a virtual machine, two processors may share a cache at one moment and not at the next, which changes
// every figure that involves two processes by up to a factor of three. Each round therefore measures the
// cache line latency first.

const (
	lineParts   = 20
	lineTurns   = 200
	lineTimeout = 50 * time.Millisecond // with a single core no reply may come
)

// cacheLine returns the round-trip time of a cache line between two cores: the shortest of lineParts
// measurements, 0 if there is none.
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
			if n%1024 == 0 && time.Since(begin) > lineTimeout {
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

// lookAtCores measures the cache line latency and adds it to the result.
func (r *result) lookAtCores() {
	if d := cacheLine().Nanoseconds(); d > 0 {
		r.CacheLine = widen(r.CacheLine, [2]int64{d, d})
	}
}

// widen returns the smallest range that covers both. The zero range is empty.
func widen(a, b [2]int64) [2]int64 {
	switch zero := [2]int64{}; {
	case a == zero:
		return b
	case b == zero:
		return a
	}
	return [2]int64{min(a[0], b[0]), max(a[1], b[1])}
}

// showCores prints the range of all cache line measurements.
func showCores(p *term.Printer, results []result) {
	var all [2]int64
	for _, r := range results {
		all = widen(all, r.CacheLine)
	}
	if all[1] > 0 {
		p.Printf("%s\n",
			p.Dim(fmt.Sprintf("A cache line took %d to %d ns from one core to another and back.", all[0], all[1])))
	}
}
