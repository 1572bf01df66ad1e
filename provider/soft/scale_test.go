package soft_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// many makes n QPs of a device, connected in pairs, with queues of 64 entries of 1 SGE.
func many(tb testing.TB, e *end, n int) []*verbs.QP {
	qps := make([]*verbs.QP, n)
	for i := range qps {
		qps[i] = e.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) {
			init.Cap = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}
		})
	}
	for i := 0; i < n; i += 2 {
		join(tb, qps[i], qps[i+1], nil)
	}
	return qps
}

// resident is the memory of this process that is in RAM, MiB.
func resident(tb testing.TB) float64 {
	b := get(os.ReadFile("/proc/self/statm"))(tb)
	var size, rss int
	if _, err := fmt.Sscan(strings.TrimSpace(string(b)), &size, &rss); err != nil {
		tb.Fatal(err)
	}
	return float64(rss*os.Getpagesize()) / (1 << 20)
}

// Messages over 10,000 QPs must be at least half as fast as over one.
func BenchmarkManyQPs(b *testing.B) {
	for _, n := range []int{2, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dev := get(soft.New(soft.Config{Addrs: []netip.Addr{loopback(0)}, Link: testUDP}))(b)
			e := newEnd(b, dev)
			qps := many(b, e, n)
			for _, q := range qps {
				for range 32 {
					check(b, q.PostRecv(recv(e, 1, 64)))
				}
			}
			wr, rr := send(e, 64), recv(e, 1, 64)
			var wcs [64]verbs.WC
			b.ReportAllocs()
			b.ResetTimer()
			const depth = 32
			for posted, done := 0, 0; done < 2*b.N; {
				for posted < b.N && posted-done/2 < depth {
					check(b, qps[posted%len(qps)].PostSend(wr))
					check(b, qps[posted%len(qps)^1].PostRecv(rr))
					posted++
				}
				k, err := e.cq.Poll(wcs[:])
				check(b, err)
				for i := range wcs[:k] {
					check(b, wcs[i].Err())
				}
				done += k
			}
		})
	}
}
