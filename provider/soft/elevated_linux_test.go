package soft_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestSetuidProgramsCaptureNothing checks that a setuid program does not write its captures where the user who starts
// it wants them: it could overwrite every file of its owner.
func TestSetuidProgramsCaptureNothing(t *testing.T) {
	if os.Getenv("VERBENA_TEST_SETUID") != "" {
		newEnds(t, &networks[0], 1, nil)[0].qp(verbs.QPTypeUD, nil) // the first QP starts the capture
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can make setuid programs for other users")
	}
	dir, err := os.MkdirTemp("", "verbena-test-") // other users do not reach the folder of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, secret := filepath.Join(dir, "program"), filepath.Join(t.TempDir(), "secret")
	must(t, os.Chmod(dir, 0o755))
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	must(t, os.WriteFile(program, get(os.ReadFile(os.Args[0]))(t), 0o755))
	must(t, os.Chmod(program, 0o755|os.ModeSetuid))
	cmd := exec.Command(program, "-test.run=^TestSetuidProgramsCaptureNothing$")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "VERBENA_TEST_SETUID=1", "VERBENA_PCAP="+secret)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("another user cannot run it: %v: %s", err, out)
	}
	if !strings.Contains(string(out), "VERBENA_PCAP: nothing is captured") {
		t.Errorf("the program does not say that it captures nothing: %s", out)
	}
	if got := string(get(os.ReadFile(secret))(t)); got != "secret" {
		t.Errorf("the file became %q", got)
	}
}
