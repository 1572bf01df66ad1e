//go:build linux

package cabitest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Tools that look into C programs. They are no packages that make cabi-test installs.

// With the suppressions valgrind reports no error of a program or of the C libraries. What the engine passes to system
// calls cannot be suppressed as a whole, since each argument of each call has a name: it is left out here.
func TestValgrindReportsNoErrorOfOurs(t *testing.T) {
	needs(t, "ibv_rc_pingpong", "valgrind")
	dir := t.TempDir()
	line := inC("valgrind", "--suppressions=../valgrind.supp", "--log-file="+filepath.Join(dir, "%p"), "ibv_rc_pingpong",
		"-d", "vrb_lo", "-g", "1", "-n", "20")
	pingpong(t, line, line)
	logs, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(logs) != 2 {
		t.Errorf("valgrind has written %q, must be a log of each program", logs)
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), "ERROR SUMMARY") {
			t.Errorf("%v, no summary:\n%s", err, text)
		}
		for _, at := range regexp.MustCompile(`(?m)^==\d+==    at .*`).FindAllString(string(text), -1) {
			if !strings.Contains(at, "libverbena-engine.so") {
				t.Errorf("%s\nis in the report:\n%s", at, text)
			}
		}
	}
}

// gdb stops in the library and continues to the end of the program.
func TestProgramsRunInGDB(t *testing.T) {
	needs(t, "ibv_rc_pingpong", "gdb")
	line := []string{"ibv_rc_pingpong", "-d", "vrb_lo", "-g", "1", "-n", "20"}
	gdb := append([]string{"gdb", "-q", "-batch", "-return-child-result", "-ex", "set breakpoint pending on", "-ex",
		"break ibv_create_qp", "-ex", "run", "-ex", "backtrace", "-ex", "delete", "-ex", "continue", "--args"}, line...)
	pingpong(t, inC(line...), inC(gdb...))
}
