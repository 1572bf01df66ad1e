package prometheus_test

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/metrics/prometheus"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// The metrics are there and Prometheus' linter has no complaint.
func TestMetrics(t *testing.T) {
	dev, err := soft.New(soft.Config{Name: "vrb_x", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Link: mem.NewFabric(mem.Config{}).Open})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := dev.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	pd, err := ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	cq, err := ctx.CreateCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer qp.Close()

	r := client.NewPedanticRegistry()
	r.MustRegister(&prometheus.Collector{Devices: []*verbs.Device{dev.Device}, QPs: func() []*verbs.QP { return []*verbs.QP{qp} }})
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, name := range []string{"verbena_duplicate_request_total", "verbena_sent_pkts_total", "verbena_qp_out_of_sequence_total"} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n != 1 {
			t.Errorf("%s: %d metrics, %v", name, n, err)
		}
	}

	w := httptest.NewRecorder()
	prometheus.Handler(dev.Device).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if body := w.Body.String(); w.Code != 200 || !strings.Contains(body, `verbena_local_ack_timeout_err_total{device="vrb_x",port="1"} 0`) {
		t.Errorf("%d %s", w.Code, body)
	}
}
