// Conformance writes pages that list the tests of each statement of the specification. It derives them from
// the names of the tests. For PAGE.md it writes a summary into PAGE.md, and a page for each section of the
// lists into the folder PAGE, which holds nothing else.
//
//	conformance PAGE.md      fails if a page is not up to date
//	conformance -w PAGE.md   writes them
//
// The statements are the rows of the tables in docs/spec/*-ids.md. A test proves a statement if its name,
// or that of a subtest or of a case in a transcript, contains the statement's identifier:
// TestV_QPS_04_PostingByState proves V-QPS-04. A test that proves many statements names them in comments:
// "// C-QP-04, C-QP-09". In PAGE.md only the text between the two marks is replaced.
//
// A test that runs on a driver which the test itself supplies is counted apart: see fakes.go. Each statement is in one
// of four classes: proven, proven on a fake driver only, refused (docs/spec/refused.md says why; the tests
// of such a statement show the refusal, or the part that is not refused),
// not applicable (docs/spec/not-applicable.md says why, and there is no test). The program fails if a statement is in
// none.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	write := flag.Bool("w", false, "write the page")
	flag.Parse()
	if err := run(".", flag.Arg(0), *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// These files have the reasons for statements that are not proven.
const (
	refusedFile       = "docs/spec/refused.md"
	notApplicableFile = "docs/spec/not-applicable.md"
)

func run(root, page string, write bool) error {
	list, err := readStatements(filepath.Join(root, "docs", "spec"))
	if err != nil {
		return err
	}
	tests, err := findTests(root)
	if err != nil {
		return err
	}
	if err := list.assign(tests); err != nil {
		return err
	}
	for name, field := range map[string]func(*statement) *string{
		refusedFile:       func(st *statement) *string { return &st.refused },
		notApplicableFile: func(st *statement) *string { return &st.notApplicable },
	} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := list.readReasons(name, string(text), field); err != nil {
			return err
		}
	}
	if err := list.check(); err != nil {
		return err
	}
	file := filepath.Join(root, filepath.FromSlash(page))
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	dir := strings.TrimSuffix(file, ".md")
	text, err := replace(old, list.summary(filepath.Base(dir)))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	pages := map[string][]byte{file: text}
	for _, s := range list.sections {
		pages[filepath.Join(dir, s.page)] = s.render(filepath.Base(file))
	}
	if write {
		return writePages(dir, pages)
	}
	return checkPages(dir, pages)
}

// checkPages returns an error if a page differs from its text, or if dir has further pages.
func checkPages(dir string, pages map[string][]byte) error {
	for name, text := range pages {
		if old, err := os.ReadFile(name); err != nil || !bytes.Equal(old, text) {
			return fmt.Errorf("%s is not up to date: run make docs", name)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, name := range files {
		if pages[name] == nil {
			return fmt.Errorf("%s belongs to no section: run make docs", name)
		}
	}
	return err
}

// writePages writes all pages, and removes what else is in dir.
func writePages(dir string, pages map[string][]byte) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
