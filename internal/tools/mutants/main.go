// Command mutants asks whether tests would notice: it puts small faults into a package, one at a time, and runs the
// tests. A fault that no test notices survives.
//
//	go run ./internal/tools/mutants [-n 100] [-seed 1] [-only REGEXP] [-with DIR,DIR] [-log FILE] DIR...
//
// The faults are other operators, conditions that always or never hold, integers off by one, calls and assignments
// that are left out. A seed chooses a sample of them, or of those whose key matches REGEXP. The tests are those of the
// package, then those of the directories of -with. The source is not touched: the compiler gets the faulty files as an
// overlay. One build holds all faults of the sample; an environment variable chooses one. Each fault meets only the
// tests that run its line, the quickest first, until one fails. A fault in code that no test runs survives without a
// run.
//
// FILE gets a line for each fault: the outcome, the test that noticed it, and the key of the fault. After a time-out
// the test is the one that was running, with its time: a short time says that the machine was slow. Faults that FILE
// lists already are not tried again.
//
// EXPLAINED is a file with a line for each survivor that no test can notice: the key that this program prints, and the
// reason after " # ". They do not count.
//
// It imports the standard library only.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/build"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

type options struct {
	n, workers int
	log        string
	only       string // a regular expression
	seed       uint64
	with       []string
	explained  map[string]bool
	limit      time.Duration
}

func main() {
	var o options
	var with, file string
	flag.IntVar(&o.n, "n", 100, "faults for each package, 0 for all")
	flag.IntVar(&o.workers, "workers", 2, "faults that are tried at once")
	flag.Uint64Var(&o.seed, "seed", 1, "chooses the faults")
	flag.DurationVar(&o.limit, "time", time.Hour, "time for each package; faults that are left then do not count")
	flag.StringVar(&o.log, "log", "", "file for the outcome of each fault, which is continued")
	flag.StringVar(&o.only, "only", "", "tries only faults whose key matches the regular expression")
	flag.StringVar(&with, "with", "", "directories of further tests, with commas between")
	flag.StringVar(&file, "explained", "internal/tools/mutants/explained.txt", "survivors that no test can notice")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: mutants [flags] DIRECTORY...")
		os.Exit(2)
	}
	if with != "" {
		o.with = strings.Split(with, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, &o, file, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options, explained string, dirs []string) (err error) {
	if o.explained, err = readExplained(explained); err != nil {
		return err
	}
	for _, dir := range dirs {
		dir = filepath.Clean(dir)
		t, err := o.score(ctx, dir)
		if err != nil {
			return err
		}
		fmt.Printf("%s, seed %d: %v\n", dir, o.seed, t)
	}
	return nil
}

// readExplained reads the keys of survivors that do not count.
func readExplained(name string) (map[string]bool, error) {
	keys := map[string]bool{}
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return keys, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, reason, ok := strings.Cut(lines.Text(), " # "); ok && reason != "" {
			keys[key] = true
		}
	}
	return keys, lines.Err()
}

// A tally counts outcomes.
type tally struct{ killed, timedOut, survived, uncovered, broken, explained, untried int }

// score is the part of the faults that were noticed. Those that do not compile and those that are explained do not
// count.
func (t tally) score() float64 {
	return float64(t.killed+t.timedOut) / float64(max(1, t.killed+t.timedOut+t.survived+t.uncovered))
}

func (t tally) String() string {
	return fmt.Sprintf("%.1f %% noticed: %d by a failure, %d by a time-out; %d survived, %d in code that no test runs; "+
		"not counted: %d explained, %d do not compile, %d not tried", 100*t.score(), t.killed, t.timedOut, t.survived,
		t.uncovered, t.explained, t.broken, t.untried)
}

// score tries the faults of a package.
func (o *options) score(ctx context.Context, dir string) (t tally, err error) {
	all, err := faults(dir)
	if err != nil {
		return t, err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return t, err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !only.MatchString(m.key()) })
	log, err := openLog(o.log)
	if err != nil {
		return t, err
	}
	defer log.close()
	var left []*mutant
	for _, m := range sample(all, o.n, o.seed) {
		got, done := log.seen[dir+"/"+m.place()]
		switch {
		case o.explained[dir+"/"+m.key()]:
			t.explained++
		case done:
			t.count(dir, &m, got)
		default:
			left = append(left, &m)
		}
	}
	if len(left) == 0 {
		return t, nil
	}
	return t, o.tryAll(ctx, dir, left, log, &t)
}

// tryAll tries faults, and counts and logs the outcomes.
func (o *options) tryAll(ctx context.Context, dir string, left []*mutant, log *outcomes, t *tally) (err error) {
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	s := &suite{dir: dir, tests: append([]string{dir}, o.with...)}
	if s.proofs, err = covered(ctx, dir, s.tests, max(1, o.workers)); err != nil {
		return err
	}
	sch := newSchema(dir, left)
	if err := s.build(ctx, sch, tmp); err != nil {
		return err
	}
	if err := s.base(ctx); err != nil {
		return err
	}
	jobs := make(chan int)
	var mu sync.Mutex
	var group sync.WaitGroup
	for range max(1, o.workers) {
		group.Go(func() {
			for i := range jobs {
				got, by := broken, ""
				if !sch.without[left[i]] {
					got, by = s.try(ctx, left[i], i+1)
				}
				if ctx.Err() != nil {
					continue
				}
				mu.Lock()
				t.count(dir, left[i], got)
				log.add(got, by, dir+"/"+left[i].place())
				mu.Unlock()
			}
		})
	}
	end := time.Now().Add(o.limit)
	tried := 0
	for i := range left {
		if ctx.Err() != nil || time.Now().After(end) {
			break
		}
		jobs <- i
		tried++
	}
	close(jobs)
	group.Wait()
	t.untried += len(left) - tried
	return ctx.Err()
}

func report(dir string, m *mutant, what string) {
	fmt.Printf("%s/%s:%d: %s\n\t%s/%s\n", dir, m.File, m.Line, what, dir, m.key())
}

func (t *tally) count(dir string, m *mutant, o outcome) {
	switch o {
	case killed:
		t.killed++
	case timedOut:
		t.timedOut++
	case broken:
		t.broken++
	case survived:
		t.survived++
		report(dir, m, o.String())
	case uncovered:
		t.uncovered++
		report(dir, m, o.String())
	}
}

// goFiles lists the files of the package in a directory that are built here, without tests and generated files.
func goFiles(dir string) (names []string, err error) {
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	for _, name := range pkg.GoFiles {
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(src, []byte("// Code generated")) {
			names = append(names, name)
		}
	}
	return names, nil
}

// faults lists the faults of the package in a directory.
func faults(dir string) (all []mutant, err error) {
	names, err := goFiles(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		ms, err := mutants(name, src)
		if err != nil {
			return nil, err
		}
		all = append(all, ms...)
	}
	return all, nil
}

// sample chooses n of the faults, all if n is 0.
func sample(all []mutant, n int, seed uint64) []mutant {
	r := rand.New(rand.NewPCG(seed, 0))
	chosen := make([]mutant, len(all))
	for i, j := range r.Perm(len(all)) {
		chosen[i] = all[j]
	}
	if n > 0 && n < len(chosen) {
		chosen = chosen[:n]
	}
	return chosen
}
