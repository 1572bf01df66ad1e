//go:build linux

package cabitest

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Tools that look into C programs. They are no packages that make cabi-test installs.

// With the suppressions valgrind reports no error of a program or of the C libraries. What the engine passes to system
// calls cannot be suppressed as a whole, since each argument of each call has a name: it is left out here.
func TestValgrindReportsNoErrorOfOurs(t *testing.T) {
	needs(t, "ibv_rc_pingpong", "valgrind")
	// Valgrind tells programs that the processor has RDTSCP, and does not run it where the processor has not.
	t.Setenv("GODEBUG", "cpu.rdtscp=off")
	dir := t.TempDir()
	line := inC("valgrind", "--suppressions=../valgrind.supp", "--xml=yes", "--xml-file="+filepath.Join(dir, "%p"),
		"ibv_rc_pingpong", "-d", "vrb_lo", "-g", "1", "-n", "20")
	pingpong(t, line, line)
	logs, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(logs) != 2 {
		t.Errorf("valgrind has written %q, must be a report of each program", logs)
	}
	for _, name := range logs {
		for _, e := range valgrindErrors(t, name) {
			if len(e.Frames) == 0 || filepath.Base(e.Frames[0].Object) != "libverbena-engine.so" {
				t.Errorf("%s reports %s %s%s at %+v", name, e.Kind, e.What, e.XWhat, e.Frames)
			}
		}
	}
}

type valgrindError struct {
	Kind   string `xml:"kind"`
	What   string `xml:"what"`
	XWhat  string `xml:"xwhat>text"`
	Frames []struct {
		Object   string `xml:"obj"`
		Function string `xml:"fn"`
	} `xml:"stack>frame"`
}

// valgrindErrors returns the errors of a report that valgrind has finished. The text form of a report does not say in
// which object a function with line numbers is, the XML form does.
func valgrindErrors(t *testing.T, name string) []valgrindError {
	t.Helper()
	var report struct {
		States []string        `xml:"status>state"`
		Errors []valgrindError `xml:"error"`
	}
	text, err := os.ReadFile(name)
	if err == nil {
		err = xml.Unmarshal(text, &report)
	}
	if err != nil || !slices.Contains(report.States, "FINISHED") {
		t.Errorf("%s: %v, states %q; must be a finished report", name, err, report.States)
	}
	return report.Errors
}

// gdb stops in the library and continues to the end of the program.
func TestProgramsRunInGDB(t *testing.T) {
	needs(t, "ibv_rc_pingpong", "gdb")
	line := []string{"ibv_rc_pingpong", "-d", "vrb_lo", "-g", "1", "-n", "20"}
	gdb := append([]string{"gdb", "-q", "-batch", "-return-child-result", "-ex", "set breakpoint pending on", "-ex",
		"break ibv_create_qp", "-ex", "run", "-ex", "backtrace", "-ex", "delete", "-ex", "continue", "--args"}, line...)
	pingpong(t, inC(line...), inC(gdb...))
}
