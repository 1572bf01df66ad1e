package apart

import (
	"os"
	"syscall"
	"testing"
)

// Stop stops a child process and waits until none of its threads runs: until then it may still answer.
func Stop(t testing.TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	for !status.Stopped() {
		switch _, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil); {
		case err != nil && err != syscall.EINTR:
			t.Fatal(err)
		case status.Exited(), status.Signaled():
			t.Fatalf("process %d has ended instead of stopping", p.Pid)
		}
	}
}
