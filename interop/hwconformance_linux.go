package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// conformanceTable has the expected result of each case of the conformance suite on rxe0.
//
//go:embed hwconformance.txt
var conformanceTable string

// expectedResults reads the table for a release of Linux, such as 6.12.94+deb13-amd64: pass, skip or fail by the name
// of the case.
func expectedResults(release string) map[string]string {
	want := map[string]string{}
	for line := range strings.Lines(conformanceTable) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] == "#" {
			continue
		}
		old, newer, _ := strings.Cut(f[0], ",")
		if result, changed := strings.CutPrefix(newer, newRelease+":"); changed && isNew(release) {
			old = result
		}
		want[f[1]] = old
	}
	return want
}

// newRelease is the release of Linux that has other results than 6.1, the one before it in the table.
const newRelease = "6.12"

// isNew reports whether a release is newRelease or a later one.
func isNew(release string) bool {
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 12)
}

var resultLine = regexp.MustCompile(`(?m)^ {8}--- (PASS|SKIP|FAIL): TestConformance/rxe0/(\S+) \(`)

// resultsOf reads the results from the output of the tests.
func resultsOf(out string) map[string]string {
	got := map[string]string{}
	for _, m := range resultLine.FindAllStringSubmatch(out, -1) {
		if !strings.Contains(m[2], "/") {
			got[m[2]] = strings.ToLower(m[1])
		}
	}
	return got
}

// hwConformance runs the conformance suite on the guest's rxe0 and compares the result of each case with the table. A
// case that differs runs again alone: the guest is slow, and the suite's time limits are not.
func hwConformance(env *caseEnv, _, p *place) error {
	return env.lab.provoking(p.id, func() error { return compareConformance(env, p) })
}

func compareConformance(env *caseEnv, p *place) error {
	guest, err := env.lab.withHW(p)
	if err != nil {
		return err
	}
	run := func(tests string) (map[string]string, string) {
		// The program fails if any case does; the table decides.
		out, _ := runCmd(guest.sh("env VERBENA_TEST_DEVICE=rxe0 "+hwFolder+"hw.test -test.v -test.timeout 40m -test.run '"+
			tests+"'", env.left()), env.left())
		return resultsOf(out), out
	}
	got, out := run("^TestConformance$")
	env.log("suite", out)
	release, err := env.lab.guest(p.id, "uname -r")
	if err != nil {
		return err
	}
	var bad []string
	want := expectedResults(release)
	for name, w := range want {
		if got[name] == w {
			continue
		}
		again, out := run("^TestConformance$/^rxe0$/^" + name + "$")
		env.log("again", out)
		if again[name] != w {
			bad = append(bad, fmt.Sprintf("%s: %q and %q, want %s", name, got[name], again[name], w))
		}
	}
	for name, g := range got {
		if want[name] == "" {
			bad = append(bad, fmt.Sprintf("%s: %s, and is not in hwconformance.txt", name, g))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d cases:\n%s", len(bad), len(want), strings.Join(bad, "\n"))
	}
	return nil
}
