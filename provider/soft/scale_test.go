package soft_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/softlink"
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

// resident returns the resident memory of this process in MB.
func resident(tb testing.TB) float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		tb.Skip("no /proc/self/statm on this system")
	}
	var size, rss int
	if _, err := fmt.Sscan(strings.TrimSpace(string(b)), &size, &rss); err != nil {
		tb.Fatal(err)
	}
	return float64(rss*os.Getpagesize()) / 1e6
}

// scaleRun is the environment variable that marks the measured process of TestTenThousandQPs.
const scaleRun = "VERBENA_TEST_SCALE"

// TestTenThousandQPs: a process with 10,000 connected RC QPs, each of which has sent and received, has at most 200 MB
// of resident memory.
func TestTenThousandQPs(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's own memory would be measured")
	}
	if os.Getenv(scaleRun) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTenThousandQPs$", "-test.v")
		cmd.Env = append(os.Environ(), scaleRun+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	dev := get(soft.New(softlink.On(soft.Config{Addrs: []netip.Addr{loopback(0)}}, softlink.Links{Open: testUDP})))(t)
	e := newEnd(t, dev)
	qps := many(t, e, 10000)
	sr, rr := send(e, 64), recv(e, 1, 64)
	for i := 0; i < len(qps); i += 50 {
		part := qps[i : i+50]
		for j := range part {
			must(t, part[j].PostRecv(rr))
			must(t, part[j^1].PostSend(sr))
		}
		e.good(2 * len(part))
	}
	mb := resident(t)
	t.Logf("%.0f MB resident", mb)
	if mb > 200 {
		t.Errorf("%.0f MB resident, want at most 200", mb)
	}
}

// BenchmarkManyQPs: messages over 10,000 QPs must be at least half as fast as over one.
func BenchmarkManyQPs(b *testing.B) {
	for _, n := range []int{2, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dev := get(soft.New(softlink.On(soft.Config{Addrs: []netip.Addr{loopback(0)}}, softlink.Links{Open: testUDP})))(b)
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
