package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `// Package verbs is a test.
package verbs

// A PD is a protection domain
// (struct ibv_pd).
type PD struct{}

// Close frees it (ibv_dealloc_pd). EBUSY while objects of it exist.
//
// See also ibv_alloc_pd.
func (pd *PD) Close() error { return nil }

// OpenDevice opens (ibv_open_device).
func OpenDevice() {}

// Own has no twin among IBV_WC_*.
func Own() {}
`

func TestTable(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "verbs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "verbs", "pd.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(root, "c-to-go.md")
	if err := run(root, page, false); err == nil {
		t.Error("a missing page passes")
	}
	if err := run(root, page, true); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := head +
		"| `ibv_dealloc_pd` | `verbs.PD.Close` |\n| `ibv_open_device` | `verbs.OpenDevice` |\n| `ibv_pd` | `verbs.PD` |\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := run(root, page, false); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(page, []byte(strings.TrimSpace(want)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(root, page, false); err == nil {
		t.Error("an outdated page passes")
	}
}
