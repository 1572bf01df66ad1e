package environ

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/apart"
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
			path := apart.Program(t, c.mode)
			if c.caps {
				// struct vfs_cap_data, version 2, effective: CAP_NET_RAW (13) is permitted.
				caps := "\x01\x00\x00\x02" + "\x00\x20\x00\x00" + strings.Repeat("\x00", 12)
				if err := syscall.Setxattr(path, "security.capability", []byte(caps), 0); err != nil {
					t.Skip("no capabilities of files here: ", err)
				}
			}
			out := apart.ByOther(t, exec.Command(path), variable+"=x")
			if out != c.want {
				t.Errorf("%s, want %s", out, c.want)
			}
		})
	}
}
