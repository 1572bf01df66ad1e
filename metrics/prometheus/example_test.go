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

// The counters of a device, as a scrape sees them. A program gives the devices of verbs.Devices and says
// http.Handle("/metrics", prometheus.Handler(devices...)).
func ExampleHandler() {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	ctx := open(f)

	w := httptest.NewRecorder()
	prometheus.Handler(ctx.Device()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "local_ack_timeout_err") {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// # HELP verbena_local_ack_timeout_err_total Counter local ack timeout err of the device.
	// # TYPE verbena_local_ack_timeout_err_total counter
	// verbena_local_ack_timeout_err_total{device="vrb_a",port="1"} 0
}

// In a registry of the program's own, with the counters of its queue pairs.
func ExampleCollector() {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	ctx := open(f)

	r := client.NewRegistry()
	err := r.Register(&prometheus.Collector{
		Devices: []*verbs.Device{ctx.Device()},
		QPs:     func() []*verbs.QP { return nil }, // those that exist now
	})
	fmt.Println(err)
	// Output: <nil>
}

// open opens a device, for only those that somebody has open are counted.
func open(f *rdmatest.Fabric) *verbs.Context {
	ctx, err := f.Open("vrb_a")
	if err != nil {
		log.Fatal(err)
	}
	return ctx
}
