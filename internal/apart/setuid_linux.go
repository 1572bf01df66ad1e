package apart

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Program returns the path of a copy of the test program with a mode, which may have the setuid or setgid bit, in a
// folder that other users reach. The test is skipped for other users than root, and where setuid has no effect.
func Program(t *testing.T, mode os.FileMode) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make setuid programs for other users")
	}
	var fs unix.Statfs_t
	no, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || no != 0 || unix.Statfs(os.TempDir(), &fs) != nil || fs.Flags&unix.ST_NOSUID != 0 {
		t.Skip("setuid has no effect here")
	}
	dir, err := os.MkdirTemp("", "verbena-test-") // other users do not reach the folder of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// ByOther returns the output of a program that another user runs with further variables in the environment. The test
// is skipped if that user cannot.
func ByOther(t *testing.T, cmd *exec.Cmd, variables ...string) string {
	t.Helper()
	const user = 65534
	cmd.Dir, cmd.Env = "/", append(os.Environ(), variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("another user cannot run it: %v: %s", err, out)
	}
	return string(out)
}
