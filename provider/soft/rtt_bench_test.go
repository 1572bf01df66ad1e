package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// BenchmarkRoundTrip is a SEND of 8 bytes and the answer to it, one at a time, both ends in one goroutine: the processor time that lies between a
// program's message and its answer.
func BenchmarkRoundTrip(b *testing.B) {
	for i := range networks {
		b.Run(networks[i].name, func(b *testing.B) {
			ends := newEnds(b, &networks[i], 2, func(c *soft.Config) { c.Manual, c.Shards = true, 1 })
			roundTrip(b, ends[0], ends[1])
		})
	}
}

func roundTrip(b *testing.B, x, y *end) {
	qx, qy := connect(x, y, verbs.QPTypeRC, nil)
	wr := []verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: make([]byte, 8)}}
	recvs := []verbs.RecvWR{{SGList: []verbs.SGE{y.mr.SGE(0, 64)}}}
	recvsX := []verbs.RecvWR{{SGList: []verbs.SGE{x.mr.SGE(0, 64)}}}
	var wcs [4]verbs.WC
	wait := func(e *end) {
		for {
			k, err := e.cq.Poll(wcs[:])
			check(b, err)
			if k == 0 {
				x.dev.Step()
				y.dev.Step()
			}
			for j := range wcs[:k] {
				check(b, wcs[j].Err())
				if wcs[j].Opcode == verbs.WCRecv {
					return
				}
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		check(b, qy.PostRecv(recvs...))
		check(b, qx.PostSend(wr...))
		wait(y)
		check(b, qx.PostRecv(recvsX...))
		check(b, qy.PostSend(wr...))
		wait(x)
	}
}
