// Mdlinks checks the Markdown pages below a folder: relative links must lead to a file, those with a
// fragment to a heading in it, and each block of Go code must occur in a Go file of the project, so that it
// is compiled and tested.
//
//	mdlinks [FOLDER]
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	broken, err := check(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, b)
	}
	if len(broken) > 0 {
		os.Exit(1)
	}
}

// A page is a Markdown file.
type page struct {
	path  string
	lines []string // without those of code blocks
	code  []block
}

// check returns one line for each broken link and each block of Go code that occurs in no Go file.
func check(root string) (broken []string, err error) {
	var pages []page
	var source [][]string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		ext := filepath.Ext(path)
		if d.IsDir() || ext != ".md" && ext != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		lines := strings.Split(string(text), "\n")
		if ext == ".go" {
			source = append(source, lines)
		} else {
			prose, code := split(lines)
			pages = append(pages, page{path, prose, code})
		}
		return err
	})
	for _, p := range pages {
		broken = append(broken, p.links()...)
		for _, b := range p.code {
			if !b.quoted(source) {
				broken = append(broken, fmt.Sprintf("%s:%d: this code is in no Go file: quote code that is compiled", p.path,
					b.line))
			}
		}
	}
	return broken, err
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// links returns one line for each broken link of a page.
func (p page) links() (broken []string) {
	for i, line := range p.lines {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			name, fragment, _ := strings.Cut(m[1], "#")
			target := p.path
			if name != "" {
				target = filepath.Join(filepath.Dir(p.path), name)
			}
			if _, err := os.Stat(target); err != nil {
				broken = append(broken, fmt.Sprintf("%s:%d: no such page: %s", p.path, i+1, m[1]))
			} else if fragment != "" && filepath.Ext(target) == ".md" && !hasHeading(target, fragment) {
				broken = append(broken, fmt.Sprintf("%s:%d: the page has no such heading: %s", p.path, i+1, m[1]))
			}
		}
	}
	return broken
}

var (
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// hasHeading reports whether a page has a heading to which GitHub assigns this fragment.
func hasHeading(path, fragment string) bool {
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	prose, _ := split(strings.Split(string(text), "\n"))
	seen := make(map[string]int)
	for _, line := range prose {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		slug := dropped.ReplaceAllString(linked.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "$1"), "")
		slug = strings.ReplaceAll(slug, " ", "-")
		n := seen[slug]
		if seen[slug]++; n > 0 {
			slug = fmt.Sprintf("%s-%d", slug, n)
		}
		if slug == fragment {
			return true
		}
	}
	return false
}
