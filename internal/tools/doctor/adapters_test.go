package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdapters(t *testing.T) {
	defer func(f func() (string, error)) { Adapters = f }(Adapters)
	none, class, dev := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(class, "mlx5_0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dev, "uverbs0"), 0o700); err != nil { // cannot be opened for writing
		t.Fatal(err)
	}
	works := func() (string, error) { return "/lib/libibverbs.so.1", nil }
	fails := func() (string, error) { return "", errors.New("no library") }
	for _, c := range []struct {
		name     string
		adapters func() (string, error)
		class    string
		level    level
		want     string // empty: nothing is reported
	}{
		{"only software, no device", nil, none, "", ""},
		{"only software", nil, class, note, "mlx5_0; this binary has only the software device"},
		{"no library, no device", fails, none, note, "no library"},
		{"no library", fails, class, bad, "the kernel has mlx5_0, but no library"},
		{"good", works, class, good, "the kernel has mlx5_0, by /lib/libibverbs.so.1"},
	} {
		Adapters = c.adapters
		var r report
		r.adapters(c.class, none)
		switch {
		case c.want == "" && len(r.all) > 0:
			t.Errorf("%s: %v", c.name, r.all)
		case c.want != "" && (len(r.all) == 0 || r.all[0].Level != c.level || !strings.Contains(r.all[0].Found, c.want)):
			t.Errorf("%s: %v, want %s %q", c.name, r.all, c.level, c.want)
		}
	}
	var r report
	r.adapters(class, dev)
	if r.problems() != 1 {
		t.Errorf("a device that cannot be opened: %v", r.all)
	}
}
