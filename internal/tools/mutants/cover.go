package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A span is code that a test runs, in lines of a file.
type span struct{ first, last int }

// A proof is a test function, example or fuzz target, with what it runs of the package.
type proof struct {
	dir   string // of its package
	name  string
	took  time.Duration
	spans map[string][]span // by file
}

// covered runs each test of the directories alone, with coverage of the package in dir. The quickest comes first.
func covered(ctx context.Context, dir string, tests []string, workers int) (all []*proof, err error) {
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	for i, from := range tests {
		bin := filepath.Join(tmp, fmt.Sprintf("tests%d", i))
		args := []string{"test", "-c", "-vet=off", "-cover", "-coverpkg=./" + dir, "-o", bin, "./" + from}
		if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", from, err, text)
		}
		list, err := runTests(ctx, bin, from, time.Minute, nil, "-test.list=.").output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", from, err, list)
		}
		for name := range bytes.FieldsSeq(list) {
			for _, kind := range []string{"Test", "Example", "Fuzz"} {
				if bytes.HasPrefix(name, []byte(kind)) {
					all = append(all, &proof{dir: from, name: string(name)})
				}
			}
		}
		if err := measure(ctx, bin, from, all, workers); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b *proof) int { return cmp.Compare(a.took, b.took) })
	return all, nil
}

// measure runs each test of one directory.
func measure(ctx context.Context, bin, dir string, all []*proof, workers int) error {
	jobs := make(chan *proof)
	errs := make(chan error, len(all))
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for p := range jobs {
				errs <- p.run(ctx, bin)
			}
		})
	}
	for _, p := range all {
		if p.dir == dir {
			jobs <- p
		}
	}
	close(jobs)
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *proof) run(ctx context.Context, bin string) error {
	profile := bin + "." + p.name
	start := time.Now()
	text, err := runTests(ctx, bin, p.dir, 20*time.Minute, nil,
		"-test.run=^"+p.name+"$", "-test.coverprofile="+profile).output()
	p.took = time.Since(start)
	if err != nil {
		return fmt.Errorf("%s: %s fails without a fault: %w\n%s", p.dir, p.name, err, text)
	}
	p.spans, err = readProfile(profile)
	return err
}

// readProfile returns what a profile of coverage says was run, by file.
func readProfile(name string) (map[string][]span, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	spans := map[string][]span{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// module/path/file.go:12.34,15.2 3 1
		at := strings.LastIndexByte(lines.Text(), ':')
		if at < 0 {
			continue
		}
		file := path.Base(lines.Text()[:at])
		var a, b span
		var statements, count int
		if n, _ := fmt.Sscanf(lines.Text()[at+1:], "%d.%d,%d.%d %d %d", &a.first, &a.last, &b.first, &b.last, &statements,
			&count); n == 6 && count > 0 {
			spans[file] = append(spans[file], span{a.first, b.first})
		}
	}
	return spans, lines.Err()
}

func inside(spans []span, line int) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.first <= line && line <= s.last })
}
