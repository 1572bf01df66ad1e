package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func TestTable(t *testing.T) {
	var b bytes.Buffer
	show(term.NewPrinter(&b), []result{
		{What: "WRITE", RDMA: 3e9, Base: 4e9, BaseOf: "TCP", Unit: "bytes/s", Ratio: 0.75, Target: 0.5, OK: true},
		{What: "SEND", RDMA: 15e-6, Base: 5e-6, BaseOf: "TCP", Unit: "s", Ratio: 3, Target: 2.5, AtMost: true},
		{What: "many", RDMA: 1234567, Base: 1e6, BaseOf: "1", Unit: "messages/s", Ratio: 1.23, OK: true},
		{What: "size", RDMA: 150e6, Base: 200e6, Unit: "bytes", Ratio: 0.75, Target: 1, AtMost: true, OK: true},
	})
	const want = `
              RDMA  compared with  ratio    target
  WRITE  3.00 GB/s  TCP 4.00 GB/s   0.75     ≥ 0.5  ✓
  SEND     15.0 µs     TCP 5.0 µs   3.00     ≤ 2.5  ✗
  many 1,234,567/s  1 1,000,000/s   1.23
  size      150 MB                        ≤ 200 MB  ✓
`
	if got, want := strings.Fields(b.String()), strings.Fields(want); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got\n%s\nwant, apart from spaces,%s", b.String(), want)
	}
}

// A ratio that is more than 20 % worse than before is marked in the table and fails --check.
func TestAgainst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "before.json")
	first := []result{
		{Name: "a", What: "write", Unit: "bytes/s", RDMA: 1e9, Base: 1e9, BaseOf: "TCP", Ratio: 1},
		{Name: "b", What: "send", Unit: "s", RDMA: 1e-6, Base: 1e-5, BaseOf: "TCP", Ratio: 0.1, AtMost: true},
	}
	if err := compare(file, first); err != nil || first[0].Before != 0 {
		t.Fatalf("the first run: %+v, %v", first, err)
	}
	for _, c := range []struct {
		name   string
		atMost bool
		ratio  float64
		want   string
		worse  bool
	}{
		{"a", false, 0.81, "-19 %", false}, {"a", false, 0.79, "21 % worse", true}, {"a", false, 1.15, "+15 %", false},
		{"a", false, 1.5, "50 % better", false},
		{"b", true, 0.12, "-17 %", false}, {"b", true, 0.2, "50 % worse", true}, {"b", true, 0.05, "100 % better", false},
		{"c", false, 7, "", false},
	} {
		now := []result{{Name: c.name, Ratio: c.ratio, AtMost: c.atMost, Unit: "bytes/s"}}
		if err := compare(file, now); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if got := now[0].since(term.NewPrinter(&b)); got != c.want || now[0].regressed() != c.worse {
			t.Errorf("%s: %v: %q, worse: %v; want %q, %v", c.name, c.ratio, got, now[0].regressed(), c.want, c.worse)
		}
		show(term.NewPrinter(&b), now)
		if !strings.Contains(b.String(), c.want) || strings.Contains(b.String(), "since") != (c.want != "") {
			t.Errorf("%s: %v: the table is\n%s", c.name, c.ratio, b.String())
		}
	}
	again := []result{{Name: "c", Ratio: 3.5}, {Name: "a", Ratio: 1}}
	if err := compare(file, again); err != nil || again[0].Before != 7 || again[1].Before != 1 {
		t.Errorf("appended and earlier figures: %+v, %v", again, err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := compare(file, again); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestCores(t *testing.T) {
	r := &result{}
	r.lookAtCores()
	if d := r.CacheLine; d[0] > d[1] || d[0] < 0 || d[1] > int64(lineTimeout) || runtime.GOMAXPROCS(0) < 2 && d[1] != 0 {
		t.Errorf("a cache line takes %v ns", d)
	}
	var b bytes.Buffer
	showCores(term.NewPrinter(&b), []result{{CacheLine: [2]int64{90, 100}}, {}, {CacheLine: [2]int64{80, 95}}})
	if got := b.String(); !strings.Contains(got, " 80 to 100 ns ") {
		t.Errorf("%q", got)
	}
	b.Reset()
	if showCores(term.NewPrinter(&b), []result{{}}); b.Len() > 0 {
		t.Errorf("%q without a measurement", b.String())
	}
}

func TestRoundsAreMedians(t *testing.T) {
	r := result{What: "a thing", Target: 0.5}
	var log bytes.Buffer
	i, j := -1, -1
	a, b := []float64{10, 90, 20}, []float64{20, 30, 25}
	err := r.rounds(&config{rounds: 3, measuring: progress(&log)}, func() (float64, error) { i++; return a[i], nil },
		func() (float64, error) { j++; return b[j], nil })
	if err != nil || r.RDMA != 20 || r.Base != 25 || r.Ratio != 0.8 || r.Low != 0.5 || r.High != 3 || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, " measuring a thing\n") {
		t.Errorf("progress is %q", got)
	}
	r.Target = 0.9
	if r.judge(); r.OK {
		t.Error("0.8 reaches 0.9")
	}
	r.AtMost = true
	if r.judge(); !r.OK {
		t.Error("0.8 exceeds 0.9")
	}
}

// A record that was written is read and drawn; "at most" figures are inverted, so that more is always faster.
func TestRecordAndPlot(t *testing.T) {
	dir := t.TempDir()
	rec := newRecord([]string{"--note", "busy", "--rounds", "3", "--record=x"}, "busy")
	rec.Results = []result{
		{Name: "a", What: "write", Unit: "bytes/s", BaseOf: "TCP", Ratio: 2, Low: 1.5, High: 2.5},
		{Name: "b", What: "send", Unit: "s", BaseOf: "TCP", Ratio: 0.1, Low: 0.05, High: 0.2, AtMost: true},
		{Name: "c", What: "rate", Unit: "messages/s", Ratio: 3},
	}
	file, other := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	if err := rec.write(file); err != nil {
		t.Fatal(err)
	}
	rec.Machine, rec.Results = "Other", rec.Results[:1]
	if err := rec.write(other); err != nil {
		t.Fatal(err)
	}
	back, err := readRecords([]string{file, other})
	if err != nil || back[0].Note != "busy" || back[0].Command != "verbena bench --rounds 3" || len(back[0].Date) != 10 {
		t.Fatalf("%+v, %v", back, err)
	}
	if v, low, high := back[0].Results[1].speed(); v != 10 || low != 5 || high != 20 {
		t.Errorf("a ratio of 0.1 (0.05 to 0.2) of TCP's time is %v (%v to %v) times as fast", v, low, high)
	}
	if f := figures(back); len(f) != 2 || f[0].results[1] == nil || f[1].results[1] != nil {
		t.Errorf("figures %+v", f)
	}
	svg := filepath.Join(dir, "x.svg")
	if err := plotFiles(svg, []string{file, other}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(svg)
	if err != nil || !strings.Contains(string(text), "Other, ") || !strings.Contains(string(text), ">send<") ||
		!strings.Contains(string(text), "Sans") {
		t.Errorf("%v, %d bytes", err, len(text))
	}
	if err := os.WriteFile(file, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plotFiles(svg, []string{file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file of --json: %v", err)
	}
}

func TestParse(t *testing.T) {
	for args, ok := range map[string]bool{
		"": true, "--only rate,scale --rounds 3 --time 1s --qps 5 --json --check": true, "--only speed": false,
		"--rounds 0": false, "x": false, "--plot a.svg x.json": true, "--plot a.pdf": false,
		"--record r.json --note busy --plot p.png": true, "--peer ucx --only peer": true, "--peer tcp": false,
		"--only peer": false,
	} {
		var out bytes.Buffer
		c, status, got := parse(&tool.Env{Argv0: "bench", Stdout: &out, Stderr: &out}, strings.Fields(args))
		if got != ok || !ok && status != 1 {
			t.Errorf("%q: %+v, %d, %v: %s", args, c, status, got, out.String())
		}
		if strings.HasPrefix(args, "--only rate") && (len(c.only) != 2 || c.rounds != 3 || c.each != time.Second ||
			c.qps != 5 || !c.json || !c.check) {
			t.Errorf("%+v", c)
		}
	}
}
