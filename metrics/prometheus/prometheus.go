// Package prometheus makes the counters of RDMA devices metrics for Prometheus. No C library does this; the counters are the
// kernel's hw_counters, under their names.
//
//	http.Handle("/metrics", prometheus.Handler(device))
//
// Each counter of a device is verbena_NAME_total with the labels device and port. With QPs there is also
// verbena_qp_NAME_total with the label qp, for the QPs that exist now. The package owns nothing
// and starts no goroutine: it reads when it is asked. It imports verbs, provider/soft and Prometheus' client.
package prometheus

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// Collector reads the counters of devices whenever it is asked (prometheus.Collector). It is safe for concurrent use. The fields are not
// changed once it is registered.
type Collector struct {
	// Devices are those to read. Those of other providers than provider/soft, and those that nobody has open, have no metrics.
	Devices []*verbs.Device
	// QPs are queue pairs to read as well; nil for none. It is called for each scrape, so it may list those that exist now. Closed ones have no
	// metrics.
	QPs func() []*verbs.QP
}

// Handler answers scrapes of devices.
func Handler(devices ...*verbs.Device) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(&Collector{Devices: devices})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Describe announces nothing: what counters there are is known when they are read.
func (*Collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counters.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	seen := make(map[any]bool) // Prometheus refuses a whole scrape in which something is twice
	for _, d := range c.Devices {
		if seen[d.Driver()] {
			continue
		}
		seen[d.Driver()] = true
		for _, v := range soft.Counters(d) {
			desc := prometheus.NewDesc("verbena_"+metric(v.Name), help(v.Name)+" of the device.", []string{"device", "port"}, nil)
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v.Value), d.Name(), "1")
		}
	}
	if c.QPs == nil {
		return
	}
	for _, q := range c.QPs() {
		if _, _, err := q.Query(verbs.QPAttrState); err != nil || seen[q] { // closed; another QP may have its number by now
			continue
		}
		seen[q] = true
		for _, v := range soft.QPCounters(q) {
			desc := prometheus.NewDesc("verbena_qp_"+metric(v.Name), help(v.Name)+" of the queue pair.", []string{"device", "port", "qp"}, nil)
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v.Value), q.Context().Device().Name(), "1", qpn(q))
		}
	}
}

func metric(name string) string { return name + "_total" }

func help(name string) string { return "Counter " + strings.ReplaceAll(name, "_", " ") }

// qpn is a QP number as the tools print it.
func qpn(q *verbs.QP) string {
	const digits = "0123456789abcdef"
	b := []byte("0x000000")
	for i, n := len(b)-1, q.QPN(); n > 0; i, n = i-1, n>>4 {
		b[i] = digits[n&15]
	}
	return string(b)
}
