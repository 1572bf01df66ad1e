package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A tally counts the results of runs.
type tally struct {
	ran     int // results
	ok      int
	failed  map[string]int            // by test
	lossy   map[string]int            // by test: failures that a lost packet explains
	skipped map[string]map[string]int // by reason, then by test
}

func newTally() *tally {
	return &tally{failed: map[string]int{}, lossy: map[string]int{}, skipped: map[string]map[string]int{}}
}

var (
	name   = regexp.MustCompile(`^(test_\w+) \(([\w.]+)\)`)
	result = regexp.MustCompile(`(ok|ERROR|FAIL|expected failure|unexpected success|skipped (.*))$`)
)

// read counts what Python's unittest printed. A result stands on the line of its test or, after text that the test
// printed or its description, on a later one.
func read(out string) *tally {
	t := newTally()
	current := ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "=====") || strings.HasPrefix(line, "-----") {
			break // the details follow
		}
		if m := name.FindStringSubmatch(line); m != nil {
			current = m[1]
			if parts := strings.Split(m[2], "."); len(parts) > 2 {
				current = parts[len(parts)-3] + "." + m[1]
			}
		}
		m := result.FindStringSubmatch(line)
		if m == nil || current == "" || !strings.Contains(line, "... ") && m[0] != line {
			continue
		}
		t.count(current, m[1], m[2])
		current = ""
	}
	return t
}

func (t *tally) count(test, what, reason string) {
	t.ran++
	switch {
	case what == "ok" || what == "expected failure":
		t.ok++
	case strings.HasPrefix(what, "skipped"):
		reason = strings.Trim(reason, `'"`)
		if t.skipped[reason] == nil {
			t.skipped[reason] = map[string]int{}
		}
		t.skipped[reason][test]++
	default:
		t.failed[test]++
	}
}

// forgive counts the failures of tests with these names as those of lost packets.
func (t *tally) forgive(tests *regexp.Regexp) {
	for test, n := range t.failed {
		if tests.MatchString(test) {
			t.lossy[test] += n
			delete(t.failed, test)
		}
	}
}

// add adds another tally.
func (t *tally) add(o *tally) {
	t.ran += o.ran
	t.ok += o.ok
	for test, n := range o.failed {
		t.failed[test] += n
	}
	for test, n := range o.lossy {
		t.lossy[test] += n
	}
	for reason, tests := range o.skipped {
		if t.skipped[reason] == nil {
			t.skipped[reason] = map[string]int{}
		}
		for test, n := range tests {
			t.skipped[reason][test] += n
		}
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// line returns the counts in one line.
func (t *tally) line() string {
	skipped := 0
	for _, tests := range t.skipped {
		skipped += sum(tests)
	}
	line := fmt.Sprintf("%d ok, %d failed, %d skipped", t.ok, sum(t.failed), skipped)
	if n := sum(t.lossy); n > 0 {
		line += fmt.Sprintf(", %d lost the packet that they wait for", n)
	}
	return line
}

// report returns the sums, the failed tests and the reasons of skips.
func (t *tally) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nsum: %s\n", t.line())
	for _, test := range slices.Sorted(maps.Keys(t.failed)) {
		fmt.Fprintf(&b, "FAILED %d times: %s\n", t.failed[test], test)
	}
	for _, test := range slices.Sorted(maps.Keys(t.lossy)) {
		fmt.Fprintf(&b, "a packet lost %d times: %s\n", t.lossy[test], test)
	}
	for _, reason := range slices.Sorted(maps.Keys(t.skipped)) {
		tests := slices.Sorted(maps.Keys(t.skipped[reason]))
		fmt.Fprintf(&b, "skipped %d times: %s\n", sum(t.skipped[reason]), reason)
		if len(tests) <= 12 {
			fmt.Fprintf(&b, "  %s\n", strings.Join(tests, "\n  "))
		} else {
			fmt.Fprintf(&b, "  %d tests of %s\n", len(tests), strings.Join(files(tests), ", "))
		}
	}
	return b.String()
}

// files returns the files of tests, once each.
func files(tests []string) []string {
	var list []string
	for _, t := range tests {
		f, _, _ := strings.Cut(t, ".")
		list = append(list, f)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// details returns the tracebacks in what the suite printed.
func details(out string) string {
	_, text, _ := strings.Cut(out, "\n=====")
	return text
}
