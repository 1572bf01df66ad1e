// Package prometheus exports the counters of RDMA devices to Prometheus. It has no C twin; the counters have
// the names of the kernel's hw_counters where the kernel has them.
//
//	http.Handle("/metrics", prometheus.Handler(device))
//
// A device's counter NAME is exported as verbena_NAME_total with the labels device and port, and with
// Collector.QPs a queue pair's counter as verbena_qp_NAME_total with the additional label qp. The package
// owns nothing and starts no goroutine: it reads the counters during each scrape. It imports
// internal/control, internal/driver, verbs, provider/soft and Prometheus' client.
package prometheus

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// Collector reads the counters of devices during each scrape (prometheus.Collector). It is safe for
// concurrent use. The fields must not be changed after it was registered.
type Collector struct {
	// Devices lists the devices to read. A device of another provider than provider/soft or
	// provider/iwarp has no metrics, nor has a device that is not open.
	Devices []*verbs.Device
	// QPs returns the queue pairs to read as well; nil for none. It is called for each scrape, possibly
	// concurrently, so it may return the QPs that exist at that time. Closed QPs have no metrics.
	QPs func() []*verbs.QP
}

// Handler returns an HTTP handler that serves the metrics of devices.
func Handler(devices ...*verbs.Device) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(&Collector{Devices: devices})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Describe sends nothing: the set of counters is known only when they are read.
func (*Collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counters.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	seen := make(map[any]bool) // Prometheus rejects a scrape with duplicates
	for _, d := range c.Devices {
		if seen[driver.Of[verbs.DriverDevice](d)] {
			continue
		}
		seen[driver.Of[verbs.DriverDevice](d)] = true
		for _, v := range soft.Counters(d) {
			desc := prometheus.NewDesc("verbena_"+metric(v.Name), help(v.Name), []string{"device", "port"},
				nil)
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v.Value), d.Name(), "1")
		}
	}
	if c.QPs == nil {
		return
	}
	for _, q := range c.QPs() {
		if _, _, err := q.Query(verbs.QPAttrState); err != nil || seen[q] { // closed; a new QP may have the same number
			continue
		}
		seen[q] = true
		for _, v := range soft.QPCounters(q) {
			desc := prometheus.NewDesc("verbena_qp_"+metric(v.Name), help(v.Name),
				[]string{"device", "port", "qp"}, nil)
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v.Value), q.Context().Device().Name(),
				"1", qpn(q))
		}
	}
}

func metric(name string) string { return name + "_total" }

func help(name string) string {
	if text := control.Help(name); text != "" {
		return text
	}
	return "Counter " + strings.ReplaceAll(name, "_", " ") + "."
}

// qpn formats a QP number as the tools do.
func qpn(q *verbs.QP) string {
	const digits = "0123456789abcdef"
	b := []byte("0x000000")
	for i, n := len(b)-1, q.QPN(); n > 0; i, n = i-1, n>>4 {
		b[i] = digits[n&15]
	}
	return string(b)
}
