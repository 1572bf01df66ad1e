package soft_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestSetuidProgramsCaptureNothing checks that a setuid program does not write its captures where the user who starts
// it wants them: it could overwrite every file of its owner.
func TestSetuidProgramsCaptureNothing(t *testing.T) {
	if os.Getenv("VERBENA_TEST_SETUID") != "" {
		newEnds(t, &networks[0], 1, nil)[0].qp(verbs.QPTypeUD, nil) // the first QP starts the capture
		return
	}
	program := apart.Program(t, 0o755|os.ModeSetuid)
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	out := apart.ByOther(t, exec.Command(program, "-test.run=^TestSetuidProgramsCaptureNothing$"), "VERBENA_TEST_SETUID=1",
		"VERBENA_PCAP="+secret)
	if !strings.Contains(out, "VERBENA_PCAP: nothing is captured") {
		t.Errorf("the program does not say that it captures nothing: %s", out)
	}
	if got := string(get(os.ReadFile(secret))(t)); got != "secret" {
		t.Errorf("the file became %q", got)
	}
}
