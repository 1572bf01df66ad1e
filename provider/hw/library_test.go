//go:build linux && (amd64 || arm64)

package hw

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestMissingLibrary loads a library that does not exist.
func TestMissingLibrary(t *testing.T) {
	_, err := load("libibverbs-missing.so.1")
	if !errors.Is(err, verbs.ENODEV) || !strings.Contains(fmt.Sprint(err), "install rdma-core") {
		t.Errorf("%v", err)
	}
}

// TestLoaderErrorsStayInTheirThread loads missing libraries from goroutines that the scheduler moves between threads.
// The text of the loader's error belongs to the thread.
func TestLoaderErrorsStayInTheirThread(t *testing.T) {
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for range 2000 {
				if _, err := load("libibverbs-missing.so.1"); !strings.Contains(fmt.Sprint(err), "install rdma-core") {
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
}

// TestWrongLibrary loads libraries that are not libibverbs.
func TestWrongLibrary(t *testing.T) {
	if _, err := load("libc.so.6"); !errors.Is(err, syscall.ENOSYS) || !strings.Contains(err.Error(),
		"ibv_get_device_list") {
		t.Errorf("the C library: %v", err)
	}
	file := filepath.Join(t.TempDir(), "libibverbs.so.1")
	if err := os.WriteFile(file, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(file); !errors.Is(err, verbs.ENODEV) || !strings.Contains(err.Error(), file) {
		t.Errorf("a text: %v", err)
	}
}

// build compiles a library with the functions that are required, except those in without.
func build(t *testing.T, extra string, without ...string) string {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	var src strings.Builder
	for _, s := range (&library{}).symbols() {
		if !strings.Contains(strings.Join(without, " "), s.name) {
			fmt.Fprintf(&src, "int %s(void) { return 0; }\n", s.name)
		}
	}
	src.WriteString(extra)
	file := filepath.Join(t.TempDir(), "libibverbs.so.1")
	cmd := exec.Command("gcc", "-shared", "-fPIC", "-x", "c", "-o", file, "-")
	cmd.Stdin = strings.NewReader(src.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// TestLibrary loads libraries with all functions, without optional ones, without a required one, and with the mark of
// Verbena's own.
func TestLibrary(t *testing.T) {
	file := build(t, "")
	l, err := load(file)
	if err != nil || l.path != file || l.queryECE == 0 {
		t.Errorf("a good library: %v", err)
	}
	if l, err = load(build(t, "", "ibv_query_ece", "ibv_reg_dmabuf_mr")); err != nil || l.queryECE != 0 {
		t.Errorf("an old library: %v", err)
	}
	if _, err = load(build(t, "", "ibv_create_qp")); !errors.Is(err, syscall.ENOSYS) ||
		!strings.Contains(err.Error(), "ibv_create_qp") {
		t.Errorf("a library without ibv_create_qp: %v", err)
	}
	allowed := allowOwn
	defer func() { allowOwn = allowed }()
	allowOwn = false
	if _, err = load(build(t, "const char *engine = \""+ownLibrary+"\";\n")); !errors.Is(err, verbs.ENODEV) ||
		!strings.Contains(err.Error(), "Verbena's own") {
		t.Errorf("our own library: %v", err)
	}
}

// TestErrno calls functions of C that fail.
func TestErrno(t *testing.T) {
	l, err := load(build(t, `#include <errno.h>
int positive(void) { return 12; }
int negative(void) { return -12; }
int minus(void) { errno = 13; return -1; }
void *null(void) { errno = 13; return 0; }
int unset(void) { errno = 0; return -1; }
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"positive": syscall.ENOMEM, "negative": syscall.ENOMEM,
		"minus": syscall.EACCES,
		"null":  syscall.EACCES, "unset": syscall.EIO} {
		fn := symbol(t, l.path, name)
		if name == "null" {
			_, err = l.object(fn)
		} else {
			err = l.status(fn)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if err := l.status(0); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a missing function: %v", err)
	}
}

// TestSelected has VERBENA_PROVIDER select the other provider, or an unknown one.
func TestSelected(t *testing.T) {
	t.Setenv("VERBENA_PROVIDER", "soft")
	if list, err := hw.Devices(); len(list) > 0 || err != nil {
		t.Errorf("soft: %v, %v", list, err)
	}
	if err := Available(); !errors.Is(err, verbs.ENODEV) {
		t.Errorf("soft: %v", err)
	}
	t.Setenv("VERBENA_PROVIDER", "firmware")
	if _, err := hw.Devices(); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("firmware: %v", err)
	}
}

// TestExplain has the errors name what the user can do.
func TestExplain(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EPERM: "lacks the right", syscall.EIO: "gone or has failed", syscall.ENOSYS: "does not support it",
		syscall.EINVAL: "invalid argument",
	} {
		if err := explain(errno, "a thing"); !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "a thing: ") {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := explain(syscall.ENOSYS, "a thing"); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("ENOSYS: %v", err)
	}
	d := &device{file: "uverbs7"}
	for errno, want := range map[syscall.Errno]string{
		syscall.EACCES: "/dev/infiniband/uverbs7: the process lacks the right", syscall.ENOENT: "is missing",
	} {
		if err := d.openError(errno); !strings.Contains(err.Error(), want) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
