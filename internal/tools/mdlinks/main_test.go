package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	page := "[a](other.md#part) [b](https://example.org/x) [c](#here)\n\n[d](missing.md) ![e](pics/none.png)\n"
	for name, text := range map[string]string{"page.md": page, "other.md": "[up](page.md)", "note.txt": "[x](y)"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	broken, err := check(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(broken) != 2 || !strings.Contains(broken[0], "page.md:3: no such page: missing.md") || !strings.Contains(broken[1], "pics/none.png") {
		t.Errorf("%q", broken)
	}
}

// TestThisRepository keeps the project's own pages whole.
func TestThisRepository(t *testing.T) {
	broken, err := check("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}
