package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// A span is code that the tests run, in lines of a file.
type span struct{ first, last int }

// covered runs the tests with coverage of the package. It returns what they run, by file.
func (s *suite) covered(ctx context.Context) (map[string][]span, error) {
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	profile := filepath.Join(tmp, "profile")
	args := []string{"test", "-short", "-vet=off", "-coverpkg=./" + s.dir, "-coverprofile=" + profile}
	for _, dir := range s.tests {
		args = append(args, "./"+dir)
	}
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the tests fail without a fault: %w\n%s", err, text)
	}
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	spans := map[string][]span{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var name string
		var a, b span
		var statements, count int
		// module/path/file.go:12.34,15.2 3 1
		at := lastColon(lines.Text())
		if at < 0 {
			continue
		}
		name = path.Base(lines.Text()[:at])
		if n, _ := fmt.Sscanf(lines.Text()[at+1:], "%d.%d,%d.%d %d %d", &a.first, &a.last, &b.first, &b.last, &statements,
			&count); n == 6 && count > 0 {
			spans[name] = append(spans[name], span{a.first, b.first})
		}
	}
	return spans, lines.Err()
}

func lastColon(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == ':' {
			return i
		}
	}
	return -1
}

func inside(spans []span, line int) bool {
	for _, s := range spans {
		if s.first <= line && line <= s.last {
			return true
		}
	}
	return false
}
