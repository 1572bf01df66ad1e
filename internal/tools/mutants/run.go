package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// An outcome is what the tests make of a mutant.
type outcome int

const (
	killed    outcome = iota // a test failed
	timedOut                 // the tests did not end, which counts as killed
	survived                 // all tests passed
	broken                   // it does not compile, which says nothing
	uncovered                // no test runs it
)

func (o outcome) String() string {
	return [...]string{"killed", "timed out", "survived", "does not compile", "no test runs it"}[o]
}

// memory bounds the address space of a test: a faulty loop may allocate without end. KiB.
const memory = 64 << 20

// A testRun is a run of a test binary.
type testRun struct {
	cmd   *exec.Cmd
	ctx   context.Context
	limit time.Duration
}

// runTests prepares a run of a test binary in the directory of its package.
func runTests(ctx context.Context, bin, dir string, limit time.Duration, env []string, args ...string) testRun {
	// The shell sets the limit of memory.
	shell := fmt.Sprintf("ulimit -v %d; exec \"$0\" \"$@\"", memory)
	args = append([]string{"-c", shell, bin, "-test.short", "-test.timeout=" + limit.String()}, args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	ownGroup(cmd)
	return testRun{cmd, ctx, limit}
}

func (r testRun) output() ([]byte, error) {
	var out bytes.Buffer
	r.cmd.Stdout, r.cmd.Stderr = &out, &out
	err := r.cmd.Run()
	return out.Bytes(), err
}

// A suite is the tests that must notice a fault in a package: its own, then those of other packages.
type suite struct {
	dir    string            // of the package
	tests  []string          // directories of packages
	proofs []*proof          // the quickest first
	bins   map[string]string // binaries of the schema, by directory
}

// build builds the tests with a schema. Mutants that do not compile are dropped from it.
func (s *suite) build(ctx context.Context, sch *schema, tmp string) error {
	s.bins = map[string]string{}
	for i, dir := range s.tests {
		bin := filepath.Join(tmp, fmt.Sprintf("mutants%d", i))
		for {
			overlay, err := sch.write(tmp)
			if err != nil {
				return err
			}
			args := []string{"test", "-c", "-vet=off", "-gcflags=./" + s.dir + "=-e", "-overlay", overlay, "-o", bin, "./" + dir}
			text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
			if err == nil {
				break
			}
			if ctx.Err() != nil || !sch.drop(text) {
				return fmt.Errorf("%s: %w\n%s", dir, err, text)
			}
		}
		s.bins[dir] = bin
	}
	return nil
}

// base runs all tests without a fault.
func (s *suite) base(ctx context.Context) error {
	for _, dir := range s.tests {
		text, err := runTests(ctx, s.bins[dir], dir, 20*time.Minute, nil).output()
		if err != nil {
			return fmt.Errorf("%s: the tests fail without a fault: %w\n%s", dir, err, text)
		}
	}
	return nil
}

// A batch is tests of one package that run in one process.
type batch struct {
	dir   string
	names []string
	took  time.Duration
}

// batches groups the tests that run a line. The quick ones come first: most faults are noticed by many tests.
func (s *suite) batches(m *mutant) (all []batch) {
	open := map[string]int{} // directory to index of the batch that takes more
	for _, p := range s.proofs {
		if !inside(p.spans[m.File], m.Run) {
			continue
		}
		i, ok := open[p.dir]
		if !ok || all[i].took+p.took > 3*time.Second {
			i = len(all)
			open[p.dir] = i
			all = append(all, batch{dir: p.dir})
		}
		all[i].names = append(all[i].names, p.name)
		all[i].took += p.took
	}
	return all
}

// failed matches the line of a failed test.
var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// running matches the test that ran when the time was over, and its time.
var running = regexp.MustCompile(`running tests:\n\s*(\S+ \(\S+\))`)

// firstMatch returns the first group of the first match, "" without one.
func firstMatch(r *regexp.Regexp, text []byte) string {
	if m := r.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// try runs the tests with mutant number n of the schema, until one fails. It names what noticed the fault.
func (s *suite) try(ctx context.Context, m *mutant, n int) (outcome, string) {
	all := s.batches(m)
	if len(all) == 0 {
		return uncovered, ""
	}
	env := []string{fmt.Sprintf("%s=%d", chooser, n)}
	for _, b := range all {
		limit := 5*b.took + 15*time.Second
		within, cancel := context.WithTimeout(ctx, limit+5*time.Second)
		text, err := runTests(within, s.bins[b.dir], b.dir, limit, env, "-test.failfast",
			"-test.run=^("+strings.Join(b.names, "|")+")$").output()
		late := errors.Is(within.Err(), context.DeadlineExceeded) || bytes.Contains(text, []byte("panic: test timed out"))
		cancel()
		switch {
		case late:
			return timedOut, firstMatch(running, text)
		case err != nil:
			return killed, firstMatch(failed, text)
		}
	}
	return survived, ""
}
