package kmad

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOpenErrors opens ports in folders that lack one thing after the other.
func TestOpenErrors(t *testing.T) {
	oldClass, oldFiles := sysfs, files
	t.Cleanup(func() { sysfs, files = oldClass, oldFiles })
	sysfs, files = filepath.Join(t.TempDir(), "class"), t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(sysfs, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want syscall.Errno, text string) {
		t.Helper()
		p, err := Open("rxe0", 1)
		if p != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %v with %q", err, want, text)
		}
	}
	expect(syscall.ENOENT, "modprobe ib_umad")
	write("abi_version", "6")
	expect(syscall.EPROTO, `version "6"`)
	write("abi_version", "5")
	write("umad0/ibdev", "rxe0")
	write("umad0/port", "2")
	write("umad1/ibdev", "rxe1")
	write("umad1/port", "1")
	expect(syscall.ENOENT, "no file for port 1 of rxe0")
	write("umad7/ibdev", "rxe0")
	write("umad7/port", "1")
	expect(syscall.ENOENT, "umad7: no such file or directory: give the container")
	if err := os.Mkdir(filepath.Join(files, "umad7"), 0o700); err != nil {
		t.Fatal(err)
	}
	expect(syscall.EISDIR, "umad7")
	if os.Geteuid() != 0 {
		if err := os.Remove(filepath.Join(files, "umad7")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(files, "umad7"), nil, 0); err != nil {
			t.Fatal(err)
		}
		expect(syscall.EACCES, "the file is root's")
	}
}
