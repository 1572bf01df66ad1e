package prometheus_test

import (
	"bufio"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/verbena-rdma/verbena/metrics/prometheus"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// The counters of a device in the output of a scrape. A program passes the devices of verbs.Devices and
// calls http.Handle("/metrics", prometheus.Handler(devices...)).
func ExampleHandler() {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	vctx := open(f)

	w := httptest.NewRecorder()
	prometheus.Handler(vctx.Device()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "local_ack_timeout_err") {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// # HELP verbena_local_ack_timeout_err_total ACK timeouts: no answer came in time, and the requests were sent again.
	// # TYPE verbena_local_ack_timeout_err_total counter
	// verbena_local_ack_timeout_err_total{device="vrb_a",port="1"} 0
}

// A collector in the program's own registry, with the counters of its queue pairs.
func ExampleCollector() {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	vctx := open(f)

	r := client.NewRegistry()
	err := r.Register(&prometheus.Collector{
		Devices: []*verbs.Device{vctx.Device()},
		QPs:     func() []*verbs.QP { return nil }, // the QPs that exist now
	})
	fmt.Println(err)
	// Output: <nil>
}

// open opens a device: only open devices have counters.
func open(f *rdmatest.Fabric) *verbs.Context {
	vctx, err := f.Open("vrb_a")
	if err != nil {
		log.Fatal(err)
	}
	return vctx
}
