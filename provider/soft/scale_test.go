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

// BenchmarkManyQPs: a SEND of 8 bytes on each of many QPs in turn, one request per call, 64 at a time. One goroutine
// runs both ends: it measures the processor time of a message at both ends together.
func BenchmarkManyQPs(b *testing.B) {
	for i := range networks {
		for _, n := range []int{1, 100, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", networks[i].name, n), func(b *testing.B) {
				ends := newEnds(b, &networks[i], 2, func(c *soft.Config) { c.Manual, c.Shards = true, 1 })
				manyQPs(b, ends[0], ends[1], n)
			})
		}
	}
}

func manyQPs(b *testing.B, x, y *end, n int) {
	const window = 64
	qx, qy := make([]*verbs.QP, n), make([]*verbs.QP, n)
	for i := range n {
		qx[i], qy[i] = connect(x, y, verbs.QPTypeRC, nil)
	}
	send := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: make([]byte, 8)}
	receive := recv(y, 0, 64)
	for _, qp := range qy {
		for range (window + n - 1) / n {
			check(b, qp.PostRecv(receive))
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for at := 0; at < b.N; at += window {
		for i := range window {
			check(b, qx[(at+i)%n].PostSend(send))
		}
		drain(b, y, x, window)
		for i := range window {
			check(b, qy[(at+i)%n].PostRecv(receive))
		}
		drain(b, x, y, window)
	}
}
