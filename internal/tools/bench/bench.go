// Package bench is "verbena bench": it measures speed and size of the software device as ratios to plain
// TCP, alternating both in one run, between two processes over loopback. It imports verbs, rdmacm, rsocket,
// internal/tools/{chart,duo,endpoint,term,tool} and gonum.org/v1/plot.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/chart"
	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "bench", Short: "measure speed and size, as ratios to TCP", Run: run}
}

// A result is one figure.
type result struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	RDMA   float64 `json:"rdma"`          // median, in Unit
	Base   float64 `json:"base"`          // median of the comparison, in Unit
	BaseOf string  `json:"base_of"`       // the comparison's name
	Unit   string  `json:"unit"`          // bytes/s, s, messages/s, connections/s, bytes, small bytes, cores
	Ratio  float64 `json:"ratio"`         // RDMA/Base: the median of the rounds' ratios
	Target float64 `json:"target"`        // for Ratio; 0: none
	AtMost bool    `json:"at_most"`       // Ratio must not exceed Target; otherwise it must reach it
	OK     bool    `json:"ok"`            // Target is met
	Low    float64 `json:"low,omitempty"` // lowest and highest ratio of all rounds
	High   float64 `json:"high,omitempty"`
	Before float64 `json:"before,omitempty"` // Ratio of an earlier run
	// CacheLine is the shortest and the longest time in nanoseconds of a cache line's round trip between
	// two cores, measured before each round.
	CacheLine [2]int64 `json:"cache_line_ns,omitzero"`
}

type config struct {
	rounds int
	each   time.Duration
	qps    int
	only   []string
	peer   string // ucx, or empty
	json   bool
	check  bool
	// against is the file with the results of an earlier run; empty: none.
	against string
	// record is the file for the results with date, machine, load and commit; note is a remark for it. plot is the
	// picture to draw: of the records in files or, without files, of this run.
	record, note, plot string
	files              []string
	// measuring shows the user what is measured now.
	measuring func(what string)
}

// benches lists the figures by the names that --only takes.
var benches = []struct {
	name string
	run  func(*config) ([]result, error)
}{
	{"shm", near},
	{"throughput", throughput},
	{"latency", latency},
	{"rate", rate},
	{"loss", loss},
	{"processor", processorTime},
	{"scale", scale},
	{"connections", connections},
	{"rsocket", rsockets},
	{"iwarp", iwarp},
	{"processes", processes},
	{"peer", peer},
}

func run(env *tool.Env, args []string) int {
	c, status, ok := parse(env, args)
	if !ok {
		return status
	}
	if len(c.files) > 0 {
		if err := plotFiles(c.plot, c.files); err != nil {
			return env.Failf("%v", err)
		}
		return 0
	}
	p := term.NewPrinter(env.Stdout)
	rec := newRecord(args, c.note)
	c.measuring = progress(env.Stderr)
	var results []result
	for _, b := range benches {
		if len(c.only) > 0 && !slices.Contains(c.only, b.name) {
			continue
		}
		c.measuring(b.name)
		more, err := b.run(c)
		if err != nil {
			return env.Failf("%s: %v", b.name, err)
		}
		results = append(results, more...)
	}
	c.measuring("")
	if c.against != "" {
		if err := compare(c.against, results); err != nil {
			return env.Failf("%v", err)
		}
	}
	if err := c.save(rec, results); err != nil {
		return env.Failf("%v", err)
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

// progress returns a function that shows what is measured: on a terminal one line, which the empty text removes, and in
// a log a line for each, with the time.
func progress(w io.Writer) func(what string) {
	p := term.NewPrinter(w)
	if !term.IsTerminal(w) {
		return func(what string) {
			if what != "" {
				p.Printf("%s measuring %s\n", time.Now().Format(time.TimeOnly), what)
			}
		}
	}
	return func(what string) {
		p.Printf("\r%s\r", strings.Repeat(" ", progressWidth))
		if what != "" {
			p.Printf("%s", p.Dim(fmt.Sprintf("measuring %.*s ...", progressWidth-len("measuring  ..."), what)))
		}
	}
}

// progressWidth is the longest line of progress, in characters.
const progressWidth = 79

// save writes the files of --record and --plot.
func (c *config) save(rec *record, results []result) error {
	rec.Results = results
	if c.record != "" {
		if err := rec.write(c.record); err != nil {
			return err
		}
	}
	if c.plot != "" {
		return drawRecords([]*record{rec}, c.plot)
	}
	return nil
}

// figureNames returns the names for --only.
func figureNames() string {
	var names []string
	for _, b := range benches {
		names = append(names, b.name)
	}
	return strings.Join(names, ", ")
}

func parse(env *tool.Env, args []string) (c *config, status int, ok bool) {
	c = &config{}
	f := tool.NewFlags(env, "[options] [RECORD ...]")
	f.IntVar(&c.rounds, "rounds", 5, "number of rounds; the result is their median")
	f.DurationVar(&c.each, "time", 400*time.Millisecond, "time for each side of each round")
	f.IntVar(&c.qps, "qps", 10000, "largest number of QPs for scale, and of connections kept open")
	f.StringSliceVar(&c.only, "only", nil,
		"only these figures: "+figureNames())
	f.StringVar(&c.peer, "peer", "", "measure this other `program` too, in the same rounds: ucx, for ucx_perftest of UCX")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.StringVar(&c.against, "against", "",
		"compare the ratios with those of an earlier run in this `file`; ratios that it lacks are appended")
	f.StringVar(&c.record, "record", "", "write the results to this `file`, with date, machine, load and commit")
	f.StringVar(&c.note, "note", "", "remark for --record, such as other work on the machine")
	f.StringVar(&c.plot, "plot", "",
		"draw the figures relative to TCP in this `file` (.svg or .png); with arguments, draw these files of --record")
	f.BoolVar(&c.check, "check", false,
		"exit with status 1 if a target is missed or a ratio is more than 20 % worse than before")
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
			return nil, f.Misused(fmt.Sprintf("unknown figure %q: must be of %s", name, figureNames())), false
		}
	}
	c.files = f.Args()
	switch {
	case c.plot != "" && chart.Format(c.plot) == "":
		return nil, f.Misused(fmt.Sprintf("--plot %s: the name must end in .svg or .png", c.plot)), false
	case f.NArg() > 0 && c.plot == "":
		return nil, f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args())), false
	case c.peer != "" && c.peer != "ucx":
		return nil, f.Misused(fmt.Sprintf("--peer %s: must be ucx", c.peer)), false
	case c.peer == "" && slices.Contains(c.only, "peer"):
		return nil, f.Misused("--only peer requires --peer ucx"), false
	case c.rounds < 1 || c.each <= 0 || c.qps < 1:
		return nil, f.Misused("rounds, time and qps must be positive"), false
	}
	return c, 0, true
}

// show prints the table of results.
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

// goal returns the target as text.
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

// rounds measures rdma and base alternately, so that a disturbance of the machine affects both, and sets
// the medians.
func (r *result) rounds(c *config, rdma, base func() (float64, error)) error {
	var a, b, ratios []float64
	c.measuring(r.What)
	for range c.rounds {
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

// constant is rounds for a figure whose comparison is the constant Base.
func (r *result) constant(c *config, rdma func() (float64, error)) error {
	base := r.Base
	return r.rounds(c, rdma, func() (float64, error) { return base, nil })
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
