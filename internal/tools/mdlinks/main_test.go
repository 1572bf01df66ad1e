package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write creates a folder with these files.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// complains compares the findings with the expected endings.
func complains(t *testing.T, dir string, want ...string) {
	t.Helper()
	broken, err := check(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(broken) != len(want) {
		t.Fatalf("%q", broken)
	}
	for i := range want {
		if !strings.HasSuffix(broken[i], want[i]) {
			t.Errorf("%q, not %q", broken[i], want[i])
		}
	}
}

func TestLinks(t *testing.T) {
	dir := write(t, map[string]string{
		"page.md": "[a](other.md#a-part) [b](https://example.org/x) [c](#here)\n\n" +
			"[d](missing.md) ![e](pics/none.png)\n# Here\n",
		"other.md": "[up](page.md)\n```sh\n# not a heading [x](y)\n```\n## A `part`?\n## A part\n## [Linked](page.md) part\n",
		"third.md": "[1](other.md#a-part-1) [2](other.md#linked-part) [3](other.md#not-a-heading-x) [4](#there)\n",
		"note.txt": "[x](y)",
	})
	complains(t, dir,
		"page.md:3: no such page: missing.md", "page.md:3: no such page: pics/none.png",
		"third.md:1: the page has no such heading: other.md#not-a-heading-x",
		"third.md:1: the page has no such heading: #there")
}

func TestCodeIsQuoted(t *testing.T) {
	dir := write(t, map[string]string{
		"main.go": "package main\n\nfunc main() {\n\tif true {\n\t\tprintln(1)\n\n\t\tprintln(2)\n\t}\n}\n",
		"good.md": "```go\nif true {\n\tprintln(1)\n\n\tprintln(2)\n}\n```\n```go\nprintln(1)\n```\n```sh\nls\n```\n",
		"page.md": "text\n```go\nprintln(1)\nprintln(2)\n```\n```go\nif true {\nprintln(1)\n```\n" +
			"```go\nrintln(1)\n```\n```go\n```\n",
	})
	complains(t, dir,
		"page.md:3: this code is in no Go file: quote code that is compiled",
		"page.md:7: this code is in no Go file: quote code that is compiled",
		"page.md:11: this code is in no Go file: quote code that is compiled",
		"page.md:14: this code is in no Go file: quote code that is compiled")
}

// TestThisRepository checks the project's own pages.
func TestThisRepository(t *testing.T) {
	broken, err := check("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}
