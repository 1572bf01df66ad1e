package environ

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const variable = "VERBENA_TEST_ENVIRON"

func TestMain(m *testing.M) {
	if os.Getenv(variable) != "" {
		fmt.Printf("<%s>", Path(variable))
		return
	}
	os.Exit(m.Run())
}

// TestSetuidProgramsIgnorePaths checks that a setuid program, a setgid program and one with a capability of its file
// ignore the variable that another user has set, and that an ordinary program does not.
func TestSetuidProgramsIgnorePaths(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make setuid programs for other users")
	}
	var fs unix.Statfs_t
	no, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || no != 0 || unix.Statfs(os.TempDir(), &fs) != nil || fs.Flags&unix.ST_NOSUID != 0 {
		t.Skip("setuid has no effect here")
	}
	const user = 65534
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
	for _, c := range []struct {
		name string
		mode os.FileMode
		caps bool
		want string
	}{
		{"ordinary", 0o755, false, "<x>"},
		{"setuid", 0o755 | os.ModeSetuid, false, "<>"},
		{"setgid", 0o755 | os.ModeSetgid, false, "<>"},
		{"capability", 0o755, true, "<>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.name)
			if err := os.WriteFile(path, program, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			if c.caps {
				// struct vfs_cap_data, version 2, effective: CAP_NET_RAW (13) is permitted.
				caps := "\x01\x00\x00\x02" + "\x00\x20\x00\x00" + strings.Repeat("\x00", 12)
				if err := syscall.Setxattr(path, "security.capability", []byte(caps), 0); err != nil {
					t.Skip("no capabilities of files here: ", err)
				}
			}
			cmd := exec.Command(path)
			cmd.Dir, cmd.Env = "/", append(os.Environ(), variable+"=x")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Skipf("another user cannot run it: %v: %s", err, out)
			}
			if string(out) != c.want {
				t.Errorf("%s, want %s", out, c.want)
			}
		})
	}
}
