// Command soak runs random verbs programs over faulty fabrics, one for each seed, and reports what they did and which
// went wrong:
//
//	go run ./internal/tools/soak [-runs N] [-seed S] [-parallel P] [-wrong N] [-progress FILE]
//
// Package internal/sim says what a run is and what makes it wrong. A seed does the same thing each time, so each wrong
// run is reported with the command that repeats it. With -progress the sums are kept in FILE, and a later soak with the
// same seed goes on where the last one ended. Its exit status is 1 if a run was wrong.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/sim"
)

// blockRuns is how many runs are between two looks at signals and two writes of the progress file.
const blockRuns = 1000

// record is what is known of the runs so far.
type record struct {
	Commits []string // that the runs were made with
	First   uint64   // seed
	Done    uint64   // runs
	Seconds float64
	Wrong   []wrong
	Sums    sim.Tally
}

type wrong struct {
	Seed  uint64
	Error string
}

func main() {
	runs := flag.Uint64("runs", 10000, "how many seeds to run")
	seed := flag.Uint64("seed", 1, "the first seed")
	parallel := flag.Int("parallel", runtime.GOMAXPROCS(0), "runs at a time")
	most := flag.Int("wrong", 10, "end after so many wrong runs")
	progress := flag.String("progress", "", "`file` that keeps the sums, so that the same command goes on later")
	flag.Parse()
	if flag.NArg() > 0 || *parallel < 1 || *most < 1 {
		flag.Usage()
		os.Exit(2)
	}
	debug.SetGCPercent(400) // runs make much that lives for a millisecond
	r, err := load(*progress, *seed)
	if err == nil {
		err = r.run(*runs, *parallel, *most, *progress)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	r.print()
	if len(r.Wrong) > 0 {
		os.Exit(1)
	}
}

// load reads the progress file, if there is one.
func load(file string, seed uint64) (*record, error) {
	r := &record{First: seed}
	if file == "" {
		return r, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err == nil && r.First != seed {
		err = fmt.Errorf("%s is about seeds from %d on: go on with -seed %d, or name another file", file, r.First, r.First)
	}
	return r, err
}

func (r *record) save(file string) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", b, 0o666); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// run makes what is missing of so many runs, until a signal or the last wrong run ends it.
func (r *record) run(runs uint64, parallel, most int, file string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	defer signal.Stop(stop)
	r.madeWith(commit())
	told := time.Now()
	for r.Done < runs && len(r.Wrong) < most {
		start := time.Now()
		n := min(blockRuns, runs-r.Done)
		block := sim.Runs{First: r.First + r.Done, N: n, Parallel: parallel, MostWrong: most - len(r.Wrong), Wrong: r.wrong}
		sums := block.Do()
		r.Sums.Add(&sums)
		r.Done += sums.Runs
		r.Seconds += time.Since(start).Seconds()
		if err := r.save(file); err != nil {
			return err
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "soak: %d of %d runs, %d wrong\n", r.Done, runs, len(r.Wrong))
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
	return nil
}

func (r *record) wrong(seed uint64, err error) {
	fmt.Fprintln(os.Stderr, "soak: WRONG:", err)
	r.Wrong = append(r.Wrong, wrong{seed, err.Error()})
}

// madeWith notes the commit that the next runs are made with.
func (r *record) madeWith(commit string) {
	if n := len(r.Commits); n == 0 || r.Commits[n-1] != commit {
		r.Commits = append(r.Commits, commit)
	}
}

// revision is the commit of the source. The Makefile sets it.
var revision string

// commit is revision or what go build has noted.
func commit() string {
	if revision != "" {
		return revision
	}
	rev, dirty := "unknown", ""
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return rev
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = " and changes"
		}
	}
	return rev + dirty
}

func (r *record) print() {
	fmt.Printf("soak: %d runs, seeds %d to %d, %d wrong, %.0f runs/s\n",
		r.Done, r.First, r.First+r.Done-1, len(r.Wrong), float64(r.Done)/r.Seconds)
	fmt.Printf("commits: %s\n", strings.Join(r.Commits, ", "))
	r.Sums.Print(os.Stdout)
	for _, w := range r.Wrong {
		fmt.Printf("wrong: seed %d, again: go run ./internal/tools/soak -runs 1 -seed %d\n", w.Seed, w.Seed)
	}
}
