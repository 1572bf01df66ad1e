package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// The commands in the pages exist.
func TestPagesNameCommandsThatExist(t *testing.T) {
	known := map[string]bool{"links": true, "help": true, "manual": true, "completion": true}
	for _, t := range slices.Concat(own, tools) {
		known[t.Name] = true
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	pages = append(pages, "../../README.md", "../../examples/README.md", "../../interop/README.md")
	command := regexp.MustCompile("(?m)(?:`|\\$ |^ +|; |env |timeout \\d+ )(?:[A-Z_]+=\\S+ )*verbena ([a-z_]+)")
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			if found++; !known[m[1]] {
				t.Errorf("%s: no such command: %q", page, m[0])
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d commands found; the pattern may miss some", found)
	}
}
