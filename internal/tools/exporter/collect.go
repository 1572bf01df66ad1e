package exporter

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/tools/version"
	"github.com/verbena-rdma/verbena/verbs"
)

// Limits of a scrape. Programs of other users write their reports themselves.
const (
	mostDevices = 64    // of a program
	mostSeries  = 50000 // of a scrape; the programs of each user have an equal part
	mostLabel   = 64    // bytes of a label's value
)

// A source has the state of a host.
type source struct {
	reports func(objects bool) ([]control.Report, []control.Silent, error)
	devices func() ([]*verbs.Device, error)
}

// collector asks the programs of a host during each scrape (prometheus.Collector).
type collector struct {
	source
	qps bool // metrics of each QP too
}

// Describe sends nothing: the set of metrics is known only when the programs have answered.
func (*collector) Describe(chan<- *prometheus.Desc) {}

// scrape collects the metrics of one scrape, each once: Prometheus rejects all metrics if one is there twice.
type scrape struct {
	out     chan<- prometheus.Metric
	seen    map[string]bool
	dropped int
	part    int         // series of the programs of each user
	user    int         // of the program that is being added, or noUser
	used    map[int]int // series by user, those of subordinate ones by their owner
}

// noUser is scrape.user for series of the host.
const noUser = -1

var (
	counterType = prometheus.CounterValue
	gaugeType   = prometheus.GaugeValue
	// ofProgram labels the series of a program.
	ofProgram = []string{"device", "port", "pid", "comm"}
)

// Collect asks the programs.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := &scrape{out: out, seen: make(map[string]bool), user: noUser, used: make(map[int]int)}
	v := version.Of()
	s.add("verbena_build_info", "The exporter's version; the value is 1.", gaugeType, 1,
		[]string{"version", "commit", "goversion"}, v.Version, v.Commit, v.Go)
	s.host(c.devices())
	list, silent, err := c.reports(false)
	up := 1.0
	if err != nil {
		up = 0
	}
	s.add("verbena_up", "1 if the programs of the host could be asked.", gaugeType, up, nil)
	s.add("verbena_programs", "Programs with an open device that answered.", gaugeType, float64(len(list)), nil)
	s.add("verbena_programs_silent", "Programs that did not answer: stopped, or of another user.", gaugeType,
		float64(len(silent)), nil)
	for i := range list {
		s.used[list[i].Account] = 0
	}
	s.part = (mostSeries - len(s.seen)) / max(1, len(s.used))
	for i := range list {
		s.user = list[i].Account
		s.program(&list[i], c.qps)
	}
	s.user = noUser
	clear(s.seen) // this one has room
	s.add("verbena_series_dropped", "Series left out of this scrape: duplicates, or too many.", gaugeType,
		float64(s.dropped), nil)
}

// host adds the devices of the host, open or not.
func (s *scrape) host(devices []*verbs.Device, err error) {
	if err != nil {
		return
	}
	for _, d := range devices {
		up := 0.0
		// As for the state of the port, an interface without a carrier is down. One that is set down has no device.
		const both = net.FlagUp | net.FlagRunning
		if i, err := net.InterfaceByName(d.Interface()); err == nil && i.Flags&both == both {
			up = 1
		}
		s.add("verbena_device_up", "1 if the network interface of the device is up, with a carrier.", gaugeType, up,
			[]string{"device", "interface"}, d.Name(), d.Interface())
	}
}

// program adds the series of a program.
func (s *scrape) program(r *control.Report, qps bool) {
	for i := range r.Devices[:min(len(r.Devices), mostDevices)] {
		d := &r.Devices[i]
		of := []string{d.Name, "1", r.ID(), r.Comm}
		for _, c := range d.Counters {
			if text := control.Help(c.Name); text != "" {
				s.add("verbena_"+c.Name+"_total", text, counterType, float64(c.Value), ofProgram, of...)
			}
		}
		for _, c := range d.CM {
			s.management(c, of)
		}
		s.objects(d, of)
		if qps {
			s.queuePairs(d, of)
		}
	}
}

// management adds a counter of connection management.
func (s *scrape) management(c control.Counter, of []string) {
	name, message, byMessage := strings.Cut(c.Name, "/")
	text := control.HelpCM(name)
	switch {
	// A name in the other form than its kind would be that of a counter of the device, which has another text.
	case text == "", byMessage != strings.HasPrefix(name, "cm_"):
	case byMessage:
		s.add("verbena_"+name+"_total", text, counterType, float64(c.Value), with(ofProgram, "message"),
			with(of, message)...)
	default:
		s.add("verbena_cm_"+name+"_total", text, counterType, float64(c.Value), ofProgram, of...)
	}
}

// objects adds the numbers of the objects of a program on a device.
func (s *scrape) objects(d *control.Device, of []string) {
	const text = "RDMA objects by kind."
	for _, o := range []struct {
		kind string
		n    int
	}{{"context", d.Contexts}, {"pd", d.PDs}, {"cq", d.CQs}, {"mr", d.MRs}, {"srq", d.SRQs}, {"qp", len(d.QPs)},
		{"cm_id", len(d.CMIDs)}} {
		s.add("verbena_objects", text, gaugeType, float64(o.n), with(ofProgram, "kind"), with(of, o.kind)...)
	}
	qps := make(map[[2]string]int)
	for _, q := range d.QPs {
		qps[[2]string{q.Type, q.State}]++
	}
	ids := make(map[[2]string]int)
	for _, id := range d.CMIDs {
		ids[[2]string{id.PS, id.State}]++
	}
	for _, k := range sorted(qps) {
		s.add("verbena_queue_pairs", "Queue pairs by type and state.", gaugeType, float64(qps[k]),
			with(ofProgram, "type", "state"), with(of, k[0], k[1])...)
	}
	for _, k := range sorted(ids) {
		s.add("verbena_cm_ids", "IDs of connection management by port space and state.", gaugeType, float64(ids[k]),
			with(ofProgram, "ps", "state"), with(of, k[0], k[1])...)
	}
}

// queuePairs adds the counters of each QP.
func (s *scrape) queuePairs(d *control.Device, of []string) {
	for _, q := range d.QPs {
		labels := with(of, fmt.Sprintf("0x%06x", q.Num), q.Peer)
		labels[1] = strconv.Itoa(max(q.Port, 1)) // 0: a program of a version without the field
		for _, c := range q.Counters {
			if text := control.Help(c.Name); text != "" {
				s.add("verbena_qp_"+c.Name+"_total", text, counterType, float64(c.Value), with(ofProgram, "qp", "peer"),
					labels...)
			}
		}
	}
}

// add adds a metric. It drops one that is there already, and those beyond mostSeries and the part of a user.
func (s *scrape) add(name, text string, kind prometheus.ValueType, value float64, labels []string, values ...string) {
	for i, v := range values {
		values[i] = label(v)
	}
	key := name + "\x00" + strings.Join(values, "\x00")
	if s.seen[key] || len(s.seen) >= mostSeries || s.user != noUser && s.used[s.user] >= s.part {
		s.dropped++
		return
	}
	s.seen[key] = true
	if s.user != noUser {
		s.used[s.user]++
	}
	s.out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, text, labels, nil), kind, value, values...)
}

// label returns the value of a label as Prometheus accepts it.
func label(v string) string {
	v = strings.ToValidUTF8(strings.ReplaceAll(v, "\x00", ""), "�")
	if len(v) <= mostLabel {
		return v
	}
	v = v[:mostLabel]
	for !utf8.ValidString(v) {
		v = v[:len(v)-1]
	}
	return v
}

// with returns a list with further elements; the list is not changed.
func with(list []string, more ...string) []string { return slices.Concat(list, more) }

// sorted returns the keys of a map in order.
func sorted(m map[[2]string]int) [][2]string {
	var keys [][2]string
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return keys
}
