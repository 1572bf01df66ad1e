// Package bench is "verbena bench": speed and size of the software device as ratios to plain TCP, measured in turns in one
// run between two processes over loopback.
package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool is the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "bench", Short: "measure speed and size, as ratios to TCP", Run: run}
}

// A result is one figure.
type result struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	RDMA   float64 `json:"rdma"`          // median, in Unit
	Base   float64 `json:"base"`          // median of what it is compared with, in Unit
	BaseOf string  `json:"base_of"`       // what that is
	Unit   string  `json:"unit"`          // bytes/s, s, messages/s, connections/s, bytes, small bytes, cores
	Ratio  float64 `json:"ratio"`         // RDMA/Base: the median of the rounds' ratios
	Target float64 `json:"target"`        // of the ratio; 0: none
	AtMost bool    `json:"at_most"`       // the ratio shall not exceed the target; else it shall reach it
	OK     bool    `json:"ok"`            // the target is met
	Low    float64 `json:"low,omitempty"` // lowest and highest ratio of a round
	High   float64 `json:"high,omitempty"`
	Before float64 `json:"before,omitempty"` // the ratio of an earlier run
	// CacheLine is how many nanoseconds a cache line took between two cores and back, at the beginning of rounds: the shortest and the longest time.
	CacheLine [2]int64 `json:"cache_line_ns,omitzero"`
}

type config struct {
	rounds int
	each   time.Duration
	qps    int
	only   []string
	json   bool
	check  bool
	// against is the file with an earlier run's results; empty: none.
	against string
}

// benches are the figures, by the name that --only takes.
var benches = []struct {
	name string
	run  func(*config) ([]result, error)
}{
	{"shm", near},
	{"throughput", throughput},
	{"latency", latency},
	{"rate", rate},
	{"loss", loss},
	{"scale", scale},
	{"connections", connections},
	{"rsocket", rsockets},
	{"processes", processes},
}

func run(env *tool.Env, args []string) int {
	c, status, ok := parse(env, args)
	if !ok {
		return status
	}
	p := term.NewPrinter(env.Stdout)
	progress := term.NewPrinter(env.Stderr)
	var results []result
	for _, b := range benches {
		if len(c.only) > 0 && !slices.Contains(c.only, b.name) {
			continue
		}
		if term.IsTerminal(env.Stderr) {
			progress.Printf("\r%s", progress.Dim("measuring "+b.name+" ...   "))
		}
		more, err := b.run(c)
		if err != nil {
			return env.Failf("%s: %v", b.name, err)
		}
		results = append(results, more...)
	}
	if term.IsTerminal(env.Stderr) {
		progress.Printf("\r%s\r", strings.Repeat(" ", 40))
	}
	if c.against != "" {
		if err := compare(c.against, results); err != nil {
			return env.Failf("%v", err)
		}
	}
	if c.json {
		e := json.NewEncoder(env.Stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(results); err != nil {
			return env.Failf("%v", err)
		}
	} else {
		show(p, results)
	}
	if c.check && slices.ContainsFunc(results, func(r result) bool { return !r.OK || r.regressed() }) {
		return 1
	}
	return 0
}

func parse(env *tool.Env, args []string) (c *config, status int, ok bool) {
	c = &config{}
	f := tool.NewFlags(env, "[options]")
	f.IntVar(&c.rounds, "rounds", 5, "rounds, of which the median counts")
	f.DurationVar(&c.each, "time", 400*time.Millisecond, "how long each round measures each side")
	f.IntVar(&c.qps, "qps", 10000, "most QPs of the figure scale, and connections that are kept")
	f.StringSliceVar(&c.only, "only", nil, "only these figures: shm, throughput, latency, rate, loss, scale, connections, rsocket, processes")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.StringVar(&c.against, "against", "", "compare the ratios with those in this `file` of an earlier run; what is not in it is added")
	f.BoolVar(&c.check, "check", false, "exit with status 1 if a target is missed, or a ratio is worse than before by more than 20 %")
	if status, ok := f.Parse(args); !ok {
		return nil, status, false
	}
	for _, name := range c.only {
		if !slices.ContainsFunc(benches, func(b struct {
			name string
			run  func(*config) ([]result, error)
		}) bool {
			return b.name == name
		}) {
			return nil, f.Misused(fmt.Sprintf("there is no figure %q", name)), false
		}
	}
	switch {
	case f.NArg() > 0:
		return nil, f.Misused("there are no arguments"), false
	case c.rounds < 1 || c.each <= 0 || c.qps < 1:
		return nil, f.Misused("rounds, time and qps must be positive"), false
	}
	return c, 0, true
}

// show prints the table.
func show(p *term.Printer, results []result) {
	var rows [][]string
	header := []string{"", "RDMA", "compared with", "ratio", "target", " "}
	if slices.ContainsFunc(results, func(r result) bool { return r.Before > 0 }) {
		header = append(header, "before", "since")
	}
	for _, r := range results {
		row := make([]string, len(header))
		row[0], row[1] = r.What, r.format(r.RDMA)
		if r.BaseOf != "" {
			row[2], row[3] = r.BaseOf+" "+r.format(r.Base), fmt.Sprintf("%.2f", r.Ratio)
		}
		if r.Target != 0 {
			row[4], row[5] = r.goal(), p.Green("✓")
			if !r.OK {
				row[5] = p.Red("✗")
			}
		}
		if r.Before > 0 {
			row[6], row[7] = fmt.Sprintf("%.2f", r.Before), r.since(p)
		}
		rows = append(rows, row)
	}
	p.Table(header, rows)
	showCores(p, results)
}

// goal is the target as text.
func (r *result) goal() string {
	sign, target := "≥", fmt.Sprintf("%.1f", r.Target)
	if r.AtMost {
		sign = "≤"
	}
	if r.BaseOf == "" {
		target = r.format(r.Base)
	}
	return sign + " " + target
}

func (r *result) format(v float64) string {
	switch r.Unit {
	case "s":
		return term.Micros(time.Duration(v * float64(time.Second)))
	case "bytes/s":
		return term.PerSecond(v)
	case "small bytes":
		return fmt.Sprintf("%.1f KiB", v/1024)
	case "cores":
		return fmt.Sprintf("%.2f %%", 100*v)
	case "messages/s", "connections/s":
		return term.Count(uint64(v)) + "/s"
	}
	return megabytes(v)
}

func megabytes(v float64) string { return fmt.Sprintf("%.0f MB", v/1e6) }

// rounds measures two things in turns, so that what disturbs the machine disturbs both, and fills in the medians.
func (r *result) rounds(n int, rdma, base func() (float64, error)) error {
	var a, b, ratios []float64
	for range n {
		r.lookAtCores()
		x, err := rdma()
		if err != nil {
			return err
		}
		y, err := base()
		if err != nil {
			return err
		}
		a, b, ratios = append(a, x), append(b, y), append(ratios, x/y)
	}
	r.RDMA, r.Base, r.Ratio = median(a), median(b), median(ratios)
	r.Low, r.High = slices.Min(ratios), slices.Max(ratios)
	r.judge()
	return nil
}

// constant is rounds for a figure that is compared with a constant, Base.
func (r *result) constant(n int, rdma func() (float64, error)) error {
	base := r.Base
	return r.rounds(n, rdma, func() (float64, error) { return base, nil })
}

func (r *result) judge() {
	r.OK = r.Ratio >= r.Target
	if r.AtMost {
		r.OK = r.Ratio <= r.Target
	}
}

func median[T float64 | time.Duration](v []T) T {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
