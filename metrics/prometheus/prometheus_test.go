package prometheus_test

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/metrics/prometheus"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// pair is two connected QPs of a device with their objects.
type pair struct {
	dev  *verbs.Device
	a, b *verbs.QP
	cq   *verbs.CQ
	mr   *verbs.MR
}

func newPair(t *testing.T) *pair {
	t.Helper()
	c := soft.Config{Name: "vrb_x", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	dev, err := soft.New(softlink.On(c, softlink.Links{Open: mem.NewFabric(mem.Config{}).Open}))
	vctx := must(t, err, dev.Open)
	t.Cleanup(func() { vctx.Close() })
	pd := must(t, nil, vctx.AllocPD)
	t.Cleanup(func() { pd.Close() })
	cq, err := vctx.CreateCQ(8, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cq.Close() })
	mr, err := pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mr.Close() })
	p := &pair{dev: dev.Device, cq: cq, mr: mr}
	for _, qp := range []**verbs.QP{&p.a, &p.b} {
		*qp = must(t, nil, func() (*verbs.QP, error) {
			return pd.CreateQP(&verbs.QPInitAttr{
				Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1,
					MaxRecvSGE: 1},
			})
		})
		t.Cleanup(func() { (*qp).Close() })
	}
	return p
}

func must[T any](t *testing.T, err error, f func() (T, error)) T {
	t.Helper()
	var v T
	if err == nil {
		v, err = f()
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// talk sends n messages from a to b.
func (p *pair) talk(t *testing.T, n int) {
	t.Helper()
	for _, err := range []error{p.a.Connect(must(t, nil, p.b.LocalInfo), nil),
		p.b.Connect(must(t, nil, p.a.LocalInfo), nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		err := p.b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{p.mr.SGE(0, 32)}})
		if err == nil {
			err = p.a.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{p.mr.SGE(32, 32)}})
		}
		if err != nil {
			t.Fatal(err)
		}
		var wcs [1]verbs.WC
		for done, begin := 0, time.Now(); done < 2; {
			got, err := p.cq.Poll(wcs[:])
			if err == nil && got > 0 {
				err = wcs[0].Err()
			}
			if err != nil || time.Since(begin) > 20*time.Second {
				t.Fatalf("%d completions, %v", done, err)
			}
			done += got
		}
	}
}

// The metrics have the values of the counters, for the device and for each of its QPs. Closed QPs have no
// metrics and do not disturb others. Devices and QPs that are listed twice are exported once.
func TestValues(t *testing.T) {
	p := newPair(t)
	p.talk(t, 3)
	scrape := func() string {
		r := client.NewPedanticRegistry()
		r.MustRegister(&prometheus.Collector{Devices: []*verbs.Device{p.dev, p.dev},
			QPs: func() []*verbs.QP { return []*verbs.QP{p.a, p.b, p.a} }})
		w := httptest.NewRecorder()
		promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	text := scrape()
	device := fmt.Sprintf("verbena_tx_data_bytes_total{device=%q,port=\"1\"} 96\n", "vrb_x")
	for _, want := range []string{
		"# TYPE verbena_tx_data_bytes_total counter\n", device,
		fmt.Sprintf("verbena_qp_tx_data_bytes_total{device=%q,port=\"1\",qp=\"0x%06x\"} 96\n", "vrb_x", p.a.QPN()),
		fmt.Sprintf("verbena_qp_tx_data_bytes_total{device=%q,port=\"1\",qp=\"0x%06x\"} 0\n", "vrb_x", p.b.QPN()),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the output lacks %s:\n%s", want, text)
		}
	}
	if err := p.b.Close(); err != nil {
		t.Fatal(err)
	}
	text = scrape()
	if !strings.Contains(text, device) || !strings.Contains(text, fmt.Sprintf("qp=\"0x%06x\"", p.a.QPN())) {
		t.Errorf("after one QP was closed:\n%s", text)
	}
	if strings.Contains(text, fmt.Sprintf("qp=\"0x%06x\"", p.b.QPN())) {
		t.Errorf("a closed QP has metrics:\n%s", text)
	}
}

// The metrics exist and Prometheus' linter accepts them.
func TestMetrics(t *testing.T) {
	p := newPair(t)
	dev, qp := p.dev, p.a
	r := client.NewPedanticRegistry()
	r.MustRegister(&prometheus.Collector{Devices: []*verbs.Device{dev},
		QPs: func() []*verbs.QP { return []*verbs.QP{qp} }})
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, name := range []string{"verbena_duplicate_request_total", "verbena_sent_pkts_total",
		"verbena_qp_out_of_sequence_total"} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n != 1 {
			t.Errorf("%s: %d metrics, %v", name, n, err)
		}
	}

	w := httptest.NewRecorder()
	prometheus.Handler(dev).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if body := w.Body.String(); w.Code != 200 ||
		!strings.Contains(body, `verbena_local_ack_timeout_err_total{device="vrb_x",port="1"} 0`) {
		t.Errorf("%d %s", w.Code, body)
	}
}
