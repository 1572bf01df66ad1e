package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// The units start commands that exist with options that they have, and systemd accepts them.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("%q, %v", units, err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/verbena (\S+)(.*)$`)
	for _, file := range units {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := start.FindStringSubmatch(string(b))
		if m == nil {
			t.Fatalf("%s starts nothing", file)
		}
		i := slices.IndexFunc(own, func(t tool.Tool) bool { return t.Name == m[1] })
		if i < 0 {
			t.Fatalf("%s: no command %s", file, m[1])
		}
		for _, word := range strings.Fields(m[2]) {
			if f := optionsOf(&own[i]); f != nil && strings.HasPrefix(word, "-") && !f.Has(word) {
				t.Errorf("%s: %s has no option %s", file, m[1], word)
			}
		}
		if !strings.Contains(string(b), "\nStartLimitIntervalSec=0\n") {
			t.Errorf("%s: systemd gives up after 5 starts within 10 s, so while another program has the address", file)
		}
		unit := filepath.Join(dir, filepath.Base(file))
		text := strings.Replace(string(b), "/usr/bin/verbena", exe, 1)
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, unit)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not installed: the units were not verified")
		return
	}
	if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
