package soft

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestCaptureFileCannotBeCreated: the error has the name of the file and the system's reason.
func TestCaptureFileCannotBeCreated(t *testing.T) {
	name := filepath.Join(t.TempDir(), "none", "x.pcapng")
	f, err := createCapture(name)
	if f != nil || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), name) {
		t.Errorf("%v, %v", f, err)
	}
}

// TestCaptureFileOfAnotherWriter checks that a capture begins with an empty file, and does not touch one that another
// process writes: its own name then has the process ID.
func TestCaptureFileOfAnotherWriter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(name, []byte("an earlier capture"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := createCapture(name) // its lock is that of the open file
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if b, err := os.ReadFile(name); err != nil || len(b) > 0 {
		t.Errorf("the new file holds %q, %v", b, err)
	}
	if _, err := first.WriteString("packets"); err != nil {
		t.Fatal(err)
	}
	second, err := createCapture(name)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if want := name[:len(name)-len(".pcapng")] + "." + strconv.Itoa(os.Getpid()) + ".pcapng"; second.Name() != want {
		t.Errorf("the second file is %s, want %s", second.Name(), want)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "packets" {
		t.Errorf("the first file holds %q, %v", b, err)
	}
}
