package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// An outcome is what the tests make of a mutant.
type outcome int

const (
	killed   outcome = iota // a test failed
	timedOut                // the tests did not end, which counts as killed
	survived                // all tests passed
	broken                  // it does not compile, which says nothing
)

func (o outcome) String() string {
	return [...]string{"killed", "timed out", "SURVIVED", "does not compile"}[o]
}

// A suite is the tests that must notice a fault in a package: its own, then those of other packages.
type suite struct {
	dir   string          // of the package
	tests []string        // directories of packages
	slow  []time.Duration // what each takes
}

// memory bounds the address space of a test: a faulty loop may allocate without end. KiB.
const memory = 64 << 20

// base runs the tests without a fault, and notes how long they take.
func (s *suite) base(ctx context.Context) error {
	for _, dir := range s.tests {
		start := time.Now()
		o, text := s.one(ctx, dir, nil, 20*time.Minute)
		if o != survived {
			return fmt.Errorf("%s: the tests fail without a fault (%v):\n%s", dir, o, text)
		}
		s.slow = append(s.slow, time.Since(start))
	}
	return nil
}

// try runs the tests with a mutant, until one fails.
func (s *suite) try(ctx context.Context, m *mutant) (outcome, error) {
	path := filepath.Join(s.dir, m.File)
	src, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	tmp, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp)
	faulty := filepath.Join(tmp, m.File)
	if err := os.WriteFile(faulty, m.apply(src), 0o600); err != nil {
		return 0, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return 0, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {abs: faulty}})
	if err != nil {
		return 0, err
	}
	list := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return 0, err
	}
	for i, dir := range s.tests {
		if o, _ := s.one(ctx, dir, []string{"-overlay", list}, 3*s.slow[i]+20*time.Second); o != survived {
			return o, ctx.Err()
		}
	}
	return survived, ctx.Err()
}

// one builds and runs the tests of one package.
func (s *suite) one(ctx context.Context, dir string, args []string, limit time.Duration) (outcome, string) {
	bin, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return broken, err.Error()
	}
	defer os.RemoveAll(bin)
	test := filepath.Join(bin, "tests")
	args = append(append([]string{"test", "-c", "-vet=off", "-o", test}, args...), "./"+dir)
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return broken, string(text)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// -test.failfast ends with the first failure. The shell sets the limit of memory.
	shell := fmt.Sprintf("ulimit -v %d; exec \"$0\" \"$@\"", memory)
	cmd := exec.CommandContext(ctx, "sh", "-c", shell, test, "-test.failfast", "-test.short",
		"-test.timeout="+limit.String())
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ownGroup(cmd)
	err = cmd.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), strings.Contains(out.String(), "panic: test timed out"):
		return timedOut, out.String()
	case err != nil:
		return killed, out.String()
	}
	return survived, out.String()
}
