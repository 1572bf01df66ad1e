// Package apart runs a test in a user and network namespace of its own, in which it is root and for which it needs no
// privilege, configures its interfaces, runs programs as another user, and stops processes. It is for tests. It imports
// the standard library and golang.org/x/sys.
package apart

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// variable is set for a test that runs in a namespace.
const variable = "VERBENA_TEST_APART"

// Run returns true in the namespace. Elsewhere it runs the calling test again in one, takes over the result, and
// returns false. The test is skipped where a process cannot have namespaces.
func Run(t *testing.T) bool {
	t.Helper()
	if os.Getenv(variable) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil && cmd.ProcessState == nil:
		t.Skipf("no network namespace for this process: %v", err)
	case err != nil || !strings.Contains(string(out), "PASS"):
		t.Errorf("in the namespace: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("in the namespace:\n%s", out)
	default:
		t.Logf("in the namespace:\n%s", out)
	}
	return false
}

// NeedsIP skips the test where the command ip is missing.
func NeedsIP(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("the test needs the command ip: %v", err)
	}
}

// IP runs the command ip with a line of arguments, and returns what it prints. The test ends if it fails.
func IP(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", line, err, out)
	}
	return string(out)
}
