package exporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/iwtcp"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// everything is a report with each counter that this version has.
func everything() control.Report {
	d := control.Device{Name: "vrb_a", Contexts: 1, PDs: 2, CQs: 3, MRs: 4}
	var all engine.Counters
	for i, c := range all.List() {
		d.Counters = append(d.Counters, control.Counter{Name: c.Name, Value: uint64(i)})
	}
	for _, c := range new(iwtcp.Counters).List() {
		if !slices.ContainsFunc(d.Counters, func(o control.Counter) bool { return o.Name == c.Name }) {
			d.Counters = append(d.Counters, control.Counter(c))
		}
	}
	for name := range new(rdmacm.Counters).Map() {
		if name != "ids" {
			d.CM = append(d.CM, control.Counter{Name: name, Value: 1})
		}
	}
	d.QPs = []control.QP{
		{Num: 17, Type: "RC", State: "RTS", Peer: "10.0.0.2", Counters: d.Counters[:3]},
		{Num: 18, Type: "RC", State: "RTS"}, {Num: 19, Type: "RC", State: "ERR"},
	}
	d.CMIDs = []control.CMID{{PS: "TCP", State: "LISTEN"}}
	return control.Report{PID: 7, Comm: "prog", Devices: []control.Device{d}}
}

// of returns a collector for reports.
func of(qps bool, reports ...control.Report) *collector {
	return &collector{source{
		func(bool) ([]control.Report, []control.Silent, error) { return reports, make([]control.Silent, 2), nil },
		func() ([]*verbs.Device, error) { return nil, nil },
	}, qps}
}

// text is a scrape, which must succeed.
func text(t *testing.T, c *collector) string {
	t.Helper()
	var out bytes.Buffer
	if err := printOnce(&tool.Env{Stdout: &out}, c); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Each counter of devices, QPs and connection management has a metric with a text of its own, which Prometheus' linter
// accepts.
func TestEveryCounterHasAMetric(t *testing.T) {
	r := everything()
	c := of(true, r)
	out := text(t, c)
	for _, v := range r.Devices[0].Counters {
		if !strings.Contains(out, fmt.Sprintf("\nverbena_%s_total{comm=\"prog\",device=\"vrb_a\",pid=\"7\",port=\"1\"} %d\n",
			v.Name, v.Value)) {
			t.Errorf("%s is missing", v.Name)
		}
	}
	for _, v := range r.Devices[0].CM {
		name, message, found := strings.Cut(v.Name, "/")
		line := "\nverbena_cm_" + name + "_total{"
		if found {
			line = "\nverbena_" + name + `_total{comm="prog",device="vrb_a",message="` + message + `"`
		}
		if !strings.Contains(out, line) {
			t.Errorf("%s is missing", v.Name)
		}
	}
	texts := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^# HELP verbena_(qp_)?(\S+) (.*)$`).FindAllStringSubmatch(out, -1) {
		if other, twice := texts[m[3]]; twice && other != m[2] {
			t.Errorf("%s and %s have the same text", other, m[2])
		}
		texts[m[3]] = m[2]
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{
		`verbena_queue_pairs{comm="prog",device="vrb_a",pid="7",port="1",state="RTS",type="RC"} 2`,
		`verbena_objects{comm="prog",device="vrb_a",kind="mr",pid="7",port="1"} 4`,
		`verbena_cm_ids{comm="prog",device="vrb_a",pid="7",port="1",ps="TCP",state="LISTEN"} 1`,
		"verbena_programs 1", "verbena_programs_silent 2", "verbena_up 1", "verbena_series_dropped 0",
		`peer="10.0.0.2",pid="7",port="1",qp="0x000011"} 0`,
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text(t, of(false, r)), "verbena_qp_") {
		t.Error("metrics of QPs without --qps")
	}
}

// Programs of several containers of a pod, each of which has the process number 1, have series of their own.
func TestProgramsOfOtherPIDNamespaces(t *testing.T) {
	one, two := everything(), everything()
	one.PID, one.Elsewhere = 1, "65534/1"
	two.PID, two.Elsewhere = 1, "65534/1.1"
	out := text(t, of(true, one, two))
	for _, want := range []string{`pid="65534/1",port="1"} 0`, `pid="65534/1.1",port="1"} 0`, "verbena_series_dropped 0"} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// The series of a QP have the port of the QP.
func TestPortOfQP(t *testing.T) {
	r := everything()
	r.Devices[0].QPs[0].Port = 2
	if out := text(t, of(true, r)); !strings.Contains(out, `port="2",qp="0x000011"`) {
		t.Errorf("%.3000s", out)
	}
}

// What a program writes about itself cannot make a scrape fail, nor grow it without limit.
func TestHostileReports(t *testing.T) {
	bad := everything()
	bad.Comm = "a\xffb\n\"" + strings.Repeat("é", 100)
	bad.Devices[0].Name = "x\x00y"
	bad.Devices[0].Counters = append(bad.Devices[0].Counters, control.Counter{Name: "a b{}\n", Value: 1},
		control.Counter{Name: "tx_bytes", Value: 9}, control.Counter{Name: "", Value: 1})
	bad.Devices[0].CM = append(bad.Devices[0].CM, control.Counter{Name: "cm_tx_msgs/\xff\xfe"}, control.Counter{Name: "/"},
		control.Counter{Name: "rx_malformed/x"}, control.Counter{Name: "cm_tx_msgs"})
	for range 1000 {
		bad.Devices = append(bad.Devices, bad.Devices[0])
	}
	out := text(t, of(true, everything(), bad, everything()))
	if !strings.Contains(out, `verbena_tx_bytes_total{comm="prog"`) ||
		!strings.Contains(out, `comm="a�b\n\"éé`) || strings.Contains(out, "verbena_series_dropped 0\n") {
		t.Errorf("%.3000s", out)
	}
	if n := strings.Count(out, "\n"); n > 2000 {
		t.Errorf("%d lines", n)
	}
	var many []control.Report
	for i := range 500 {
		r := everything()
		r.PID = i
		many = append(many, r)
	}
	out = text(t, of(true, many...))
	if n := strings.Count(out, "\n"); n > mostSeries+1000 {
		t.Errorf("%d lines for 500 programs", n)
	}
	if m := regexp.MustCompile(`\nverbena_series_dropped [1-9]`); !m.MatchString(out) {
		t.Error("the series left out are not counted")
	}
}

// The programs of one user cannot take the series of another one, by whatever they write about themselves.
func TestSeriesOfUsers(t *testing.T) {
	bad, good := everything(), everything()
	for i := range mostSeries {
		bad.Devices[0].CM = append(bad.Devices[0].CM, control.Counter{Name: fmt.Sprint("cm_tx_msgs/", i)})
	}
	bad.Account, good.Account, good.PID, good.Comm = 1, 2, 8, "good"
	out := text(t, of(true, bad, good))
	for _, c := range good.Devices[0].Counters {
		if !strings.Contains(out, fmt.Sprintf("\nverbena_%s_total{comm=\"good\"", c.Name)) {
			t.Errorf("%s of the other user is missing", c.Name)
		}
	}
	if n := strings.Count(out, "\n"); n > mostSeries/2+1000 {
		t.Errorf("%d lines", n)
	}
	if strings.Contains(out, "verbena_series_dropped 0\n") {
		t.Error("the series left out are not counted")
	}
}

// A host whose programs cannot be asked has verbena_up 0.
func TestUp(t *testing.T) {
	c := of(false)
	c.reports = func(bool) ([]control.Report, []control.Silent, error) { return nil, nil, errors.New("x") }
	if out := text(t, c); !strings.Contains(out, "\nverbena_up 0\n") {
		t.Errorf("%s", out)
	}
}

// announced is an Env's output that passes each line on.
type announced chan string

func (a announced) Write(b []byte) (int, error) {
	a <- string(b)
	return len(b), nil
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	lines, ended := make(announced, 1), make(chan error, 1)
	go func() { ended <- serve(ctx, &tool.Env{Stdout: lines}, "127.0.0.1:0", of(false, everything())) }()
	url := strings.TrimSpace(strings.TrimPrefix(<-lines, "metrics at "))
	get := func(url string) (int, string) {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if code, body := get(url); code != 200 || !strings.Contains(body, "\nverbena_programs 1\n") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get(strings.TrimSuffix(url, "metrics")); code != 200 {
		t.Errorf("/: %d", code)
	}
	if code, _ := get(strings.TrimSuffix(url, "metrics") + "x"); code != 404 {
		t.Errorf("/x: %d", code)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"--listen", "nonsense"}, {"--listen", "127.0.0.1:99999"}} {
		var errs bytes.Buffer
		if status := run(&tool.Env{Argv0: "exporter", Stdout: io.Discard, Stderr: &errs}, args); status != 1 ||
			errs.Len() == 0 {
			t.Errorf("%q: status %d, %s", args, status, &errs)
		}
	}
}

// If the port is taken the error names the option.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var errs bytes.Buffer
	status := run(&tool.Env{Argv0: "exporter", Stdout: io.Discard, Stderr: &errs}, []string{"--listen", l.Addr().String()})
	if status != 1 || !strings.Contains(errs.String(), "--listen "+l.Addr().String()+": another program uses the port") {
		t.Errorf("status %d, %s", status, &errs)
	}
}

// expressions collects the values of the keys "expr" and "query" of JSON.
func expressions(v any) (list []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if s, ok := e.(string); ok && (k == "expr" || k == "query") {
				list = append(list, s)
			}
			list = append(list, expressions(e)...)
		}
	case []any:
		for _, e := range v {
			list = append(list, expressions(e)...)
		}
	}
	return list
}

// The dashboard and the alerts use metrics that exist. No panel covers another.
func TestDashboardAndAlerts(t *testing.T) {
	out := text(t, of(false, everything()))
	exists := func(name string) bool {
		return name == "verbena_device_up" || strings.Contains(out, "\n# TYPE "+name+" ")
	}
	b, err := os.ReadFile("../../../deploy/grafana/verbena.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID    string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }

			FieldConfig struct {
				Defaults struct {
					Unit       string
					Color      struct{ Mode string }
					Thresholds struct{ Steps []struct{ Color string } }
				}
			}
			Options struct {
				Legend struct{ DisplayMode, SortBy string }
			}
		}
	}
	var whole any
	if err := errors.Join(json.Unmarshal(b, &dashboard), json.Unmarshal(b, &whole)); err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile("../../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	all := append(expressions(whole), string(alerts))
	names := regexp.MustCompile(`verbena_[a-z0-9_]+`).FindAllString(strings.Join(all, "\n"), -1)
	if len(names) < 20 {
		t.Errorf("only %d metrics in use", len(names))
	}
	for _, n := range names {
		if !exists(n) {
			t.Errorf("no such metric: %s", n)
		}
	}
	for i, p := range dashboard.Panels {
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is too wide", p.Title)
		}
		// Grafana's own thresholds make each number from 80 on red, and those below green.
		if f := p.FieldConfig.Defaults; p.Type == "stat" && f.Color.Mode != "fixed" && len(f.Thresholds.Steps) < 2 {
			t.Errorf("%s has neither a color nor thresholds", p.Title)
		}
		for _, s := range p.FieldConfig.Defaults.Thresholds.Steps {
			if s.Color == "green" { // and the others are red or orange
				t.Errorf("%s has colors that not everybody can tell apart", p.Title)
			}
		}
		// A list of more series than fit hides the largest ones, since most counters of faults are 0.
		if l := p.Options.Legend; p.Type == "timeseries" && (l.DisplayMode != "table" || l.SortBy != "Max") {
			t.Errorf("%s: the legend is not a table with the largest series first", p.Title)
		}
		if p.FieldConfig.Defaults.Unit == "pps" { // 0.02 packets per second are 20 mp/s
			t.Errorf("%s has milli-packets", p.Title)
		}
		for _, q := range dashboard.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if p.ID == q.ID || a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s covers %s", p.Title, q.Title)
			}
		}
	}
}

// The page has the meaning of each counter.
func TestPageHasCounters(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	r := everything()
	var missing []string
	row := func(name, text string) {
		line := fmt.Sprintf("| `%s` | %s |", name, text)
		if !strings.Contains(string(page), line+"\n") && !slices.Contains(missing, line) {
			missing = append(missing, line)
		}
	}
	for _, c := range r.Devices[0].Counters {
		row(c.Name, control.Help(c.Name))
	}
	for _, c := range r.Devices[0].CM {
		name, _, _ := strings.Cut(c.Name, "/")
		row(name, control.HelpCM(name))
	}
	if len(missing) > 0 {
		t.Errorf("docs/operations.md lacks\n%s", strings.Join(missing, "\n"))
	}
}

// A collector is safe for concurrent scrapes, as Prometheus requires.
func TestConcurrentScrapes(t *testing.T) {
	c := of(true, everything())
	want := text(t, c)
	got := make(chan string)
	for range 4 {
		go func() {
			var out bytes.Buffer
			_ = printOnce(&tool.Env{Stdout: &out}, c)
			got <- out.String()
		}()
	}
	for range 4 {
		if s := <-got; !reflect.DeepEqual(s, want) {
			t.Error("another output")
		}
	}
}
