package soft_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// BenchmarkPosters: goroutines post WRITEs of 8 bytes one by one, and poll the CQ that all have, to one QP or to two.
func BenchmarkPosters(b *testing.B) {
	for _, shape := range []struct{ qps, posters int }{{1, 1}, {1, 2}, {1, 4}, {2, 2}, {2, 4}} {
		b.Run(fmt.Sprintf("%d to %d QPs", shape.posters, shape.qps), func(b *testing.B) {
			ends := newEnds(b, &networks[0], 2, func(c *soft.Config) { c.Manual, c.Shards = true, 1 })
			x, y := ends[0], ends[1]
			qps := make([]*verbs.QP, shape.qps)
			for i := range qps {
				qps[i], _ = connect(x, y, verbs.QPTypeRC, nil)
			}
			write := rdma(x, y, verbs.WRRDMAWrite, 8)
			var posted, done atomic.Int64
			const window = 32 // fits into one queue
			b.ReportAllocs()
			b.ResetTimer()
			var posters sync.WaitGroup
			for i := range shape.posters {
				posters.Go(func() {
					qp := qps[i%len(qps)]
					var wcs [16]verbs.WC
					for n := posted.Add(1); n <= int64(b.N); n = posted.Add(1) {
						for n-done.Load() > window {
							y.dev.Step()
							k, _ := x.cq.Poll(wcs[:])
							done.Add(int64(k))
						}
						if err := qp.PostSend(write); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			posters.Wait()
		})
	}
}

// BenchmarkPosterAndPoller: one goroutine posts WRITEs of 8 bytes, and another one polls all the time.
func BenchmarkPosterAndPoller(b *testing.B) {
	for i := range networks {
		b.Run(networks[i].name, func(b *testing.B) {
			ends := newEnds(b, &networks[i], 2, func(c *soft.Config) { c.Manual, c.Shards = true, 1 })
			x, y := ends[0], ends[1]
			qp, _ := connect(x, y, verbs.QPTypeRC, nil)
			write := rdma(x, y, verbs.WRRDMAWrite, 8)
			var done atomic.Int64
			end := int64(b.N)
			var poller sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			poller.Go(func() {
				var wcs [16]verbs.WC
				for done.Load() < end {
					n, err := x.cq.Poll(wcs[:])
					if err != nil {
						b.Error(err)
						return
					}
					done.Add(int64(n))
					y.dev.Step()
				}
			})
			for n := range end {
				for n-done.Load() >= 32 {
					runtime.Gosched()
				}
				check(b, qp.PostSend(write))
			}
			poller.Wait()
		})
	}
}
