package rstools

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Names from clients are below the server's folder or are rejected, and nothing outside changes.
func TestCopiesStayInTheFolder(t *testing.T) {
	top := t.TempDir()
	folder, other := filepath.Join(top, "in"), filepath.Join(top, "out")
	for _, d := range []string{filepath.Join(folder, "sub"), other, folder + "side"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(other, "authorized_keys")
	if err := os.WriteFile(secret, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"abs": secret, "rel": "../out/authorized_keys", "dir": "../out", "absdir": other, "inside": "sub/file",
		"dangling": "../out/new",
	} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Skip(err)
		}
	}
	c := &copyFolder{}
	if err := c.open(folder); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"file", "sub/file", "sub/../file2", filepath.Join(folder, "file3"), filepath.Join(folder, "sub", "x"), "inside",
	} {
		f, err := c.create(name, 0o600)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f.Close()
	}
	for _, name := range []string{
		secret, "/etc/verbena-test", "../out/authorized_keys", "sub/../../out/authorized_keys", "abs", "rel",
		"dir/authorized_keys",
		"absdir/new", "dangling", filepath.Join(folder, "..", "out", "authorized_keys"), folder + "side/x", "", "..",
		"/", filepath.Join(folder, "abs"),
	} {
		f, err := c.create(name, 0o600)
		if err == nil {
			f.Close()
			t.Errorf("%q was opened", name)
		} else if !errors.Is(err, syscall.EACCES) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "mine" {
		t.Errorf("the file outside: %q, %v", b, err)
	}
	if list, _ := os.ReadDir(other); len(list) != 1 {
		t.Errorf("outside there are %v", list)
	}
}

func TestCopiesAnywhere(t *testing.T) {
	c := &copyFolder{anywhere: true}
	if err := c.open("/no/such/folder"); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x")
	f, err := c.create(name, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if !strings.Contains(c.String(), "any file") {
		t.Error(c)
	}
	if err := (&copyFolder{}).open(name + "/none"); err == nil || !strings.Contains(err.Error(), "--folder") {
		t.Error(err)
	}
}
