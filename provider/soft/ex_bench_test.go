package soft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// BenchmarkExtendedAgainstPlain: the extended calls compared with the plain ones: the same WRITEs, posted one by one
// or in batches, acknowledged and polled by one goroutine. Rounds of the two alternate, so that the machine's load
// affects both. ex/plain is the ratio of their fastest rounds: about 1 one by one, less in batches, which need one
// lock and one doorbell.
func BenchmarkExtendedAgainstPlain(b *testing.B) {
	for _, batch := range []int{1, 16} {
		b.Run(fmt.Sprintf("batch%d", batch), func(b *testing.B) {
			ends := newEnds(b, &networks[0], 3, func(c *soft.Config) { c.Manual = true })
			plain, ext, y := ends[0], ends[1], ends[2]
			cq := ext.withCQ(256, verbs.CQOptions{WCFlags: verbs.WCStandardFlags, Flags: verbs.CreateCQSingleThreaded})
			qp, _ := connect(plain, y, verbs.QPTypeRC, nil)
			qx, _ := connectEx(ext, y)
			best := [2]time.Duration{time.Hour, time.Hour}
			b.ReportAllocs()
			for b.Loop() {
				for i, round := range []func(){func() { plainRound(b, plain, qp, y) },
					func() { exRound(b, ext, cq, qx, y, batch) }} {
					begin := time.Now()
					for range 20 {
						round()
					}
					best[i] = min(best[i], time.Since(begin))
				}
			}
			b.ReportMetric(float64(best[0].Nanoseconds())/(20*perRound), "plain-ns/msg")
			b.ReportMetric(float64(best[1].Nanoseconds())/(20*perRound), "ex-ns/msg")
			b.ReportMetric(float64(best[1])/float64(best[0]), "ex/plain")
		})
	}
}

// perRound is the number of outstanding WRITEs.
const perRound = 32

func plainRound(b *testing.B, x *end, qp *verbs.QP, y *end) {
	sge := []verbs.SGE{x.mr.SGE(0, 8)}
	for range perRound {
		check(b, qp.PostSend(verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: sge, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
		}))
	}
	var wcs [perRound]verbs.WC
	for done := 0; done < perRound; {
		_, err := y.cq.Poll(wcs[:]) // runs y, which acknowledges
		check(b, err)
		n, err := x.cq.Poll(wcs[:])
		check(b, err)
		for i := range wcs[:n] {
			check(b, wcs[i].Err())
		}
		done += n
	}
}

func exRound(b *testing.B, x *end, cq *stepper, qx *verbs.QPEx, y *end, batch int) {
	sge := x.mr.SGE(0, 8)
	qx.WRFlags = verbs.SendSignaled
	for range perRound / batch {
		qx.Start()
		for range batch {
			qx.RDMAWrite(y.mr.RKey(), y.mr.Addr())
			qx.SetSGE(sge)
		}
		check(b, qx.Complete())
	}
	var wcs [1]verbs.WC
	for done := 0; done < perRound; {
		_, err := y.cq.Poll(wcs[:])
		check(b, err)
		if err = cq.StartPoll(&cq.WC); err != nil {
			continue
		}
		for ; err == nil; err = cq.NextPoll(&cq.WC) {
			check(b, cq.Err())
			done++
		}
		cq.EndPoll()
	}
}

// BenchmarkWriteRateEx: WRITEs of 8 bytes as in BenchmarkWriteRate, posted one by one and in batches.
func BenchmarkWriteRateEx(b *testing.B) {
	for _, depth := range []struct {
		name string
		n    int
	}{{"single", 1}, {"batch16", 16}} {
		b.Run(depth.name, func(b *testing.B) {
			benchEach(b, func(b *testing.B, x, y *end) {
				cq := x.withCQ(256, verbs.CQOptions{WCFlags: verbs.WCStandardFlags, Flags: verbs.CreateCQSingleThreaded})
				qx, _ := connectEx(x, y)
				b.ReportAllocs()
				b.ResetTimer()
				writesEx(b, x, cq, qx, y, b.N, depth.n)
			})
		})
	}
}

func writesEx(b *testing.B, x *end, cq *stepper, qx *verbs.QPEx, y *end, n, batch int) {
	sge := x.mr.SGE(0, 8)
	addr, rkey := y.mr.Addr(), y.mr.RKey()
	qx.WRFlags = verbs.SendSignaled
	for posted, done := 0, 0; done < n; {
		for posted < n && posted-done+batch <= 64 {
			qx.Start()
			for range batch {
				qx.RDMAWrite(rkey, addr)
				qx.SetSGE(sge)
			}
			check(b, qx.Complete())
			posted += batch
		}
		err := cq.StartPoll(&cq.WC)
		if err != nil {
			continue
		}
		for ; err == nil; err = cq.NextPoll(&cq.WC) {
			check(b, cq.Err())
			done++
		}
		cq.EndPoll()
	}
}
