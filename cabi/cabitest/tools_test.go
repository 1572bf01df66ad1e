//go:build linux

package cabitest

import "testing"

// Tools that look into C programs. They are no packages that make cabi-test installs.

// With the suppressions for the stacks of goroutines valgrind reports no error.
func TestValgrindReportsNoErrorOfOurs(t *testing.T) {
	needs(t, "ibv_rc_pingpong", "valgrind")
	line := []string{"valgrind", "--error-exitcode=9", "--suppressions=../valgrind.supp", "ibv_rc_pingpong", "-d",
		"vrb_lo", "-g", "1", "-n", "20"}
	pingpong(t, inC(line...), inC(line...))
}

// gdb stops in the library and continues to the end of the program.
func TestProgramsRunInGDB(t *testing.T) {
	needs(t, "ibv_rc_pingpong", "gdb")
	line := []string{"ibv_rc_pingpong", "-d", "vrb_lo", "-g", "1", "-n", "20"}
	gdb := append([]string{"gdb", "-q", "-batch", "-return-child-result", "-ex", "set breakpoint pending on", "-ex",
		"break ibv_create_qp", "-ex", "run", "-ex", "backtrace", "-ex", "delete", "-ex", "continue", "--args"}, line...)
	pingpong(t, inC(line...), inC(gdb...))
}
