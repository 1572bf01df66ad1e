package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// statement is a row of a list.
type statement struct {
	id, kind, text string
	tests          []string
}

// section is a table of a list.
type section struct {
	title      string
	statements []*statement
}

// statements are all lists together.
type statements struct {
	sections []*section
	byID     map[string]*statement
}

var row = regexp.MustCompile(`^\| ((?:[VX]-[A-Z]+|D)-\d\d) \| (\w*) *\| (.*) \|$`)

// readStatements reads the lists of a folder.
func readStatements(dir string) (*statements, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*-ids.md"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("there is no list of statements in %s (%v)", dir, err)
	}
	all := &statements{byID: map[string]*statement{}}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if err := all.read(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	return all, nil
}

func (all *statements) read(text string) error {
	var s *section
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			s = &section{title: title}
			all.sections = append(all.sections, s)
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if s == nil || all.byID[m[1]] != nil {
			return fmt.Errorf("%s is there twice, or outside a section", m[1])
		}
		st := &statement{id: m[1], kind: m[2], text: m[3]}
		s.statements = append(s.statements, st)
		all.byID[st.id] = st
	}
	return nil
}

// assign gives each statement its tests. A test of a statement that does not exist is an error.
func (all *statements) assign(tests []test) error {
	var errs []error
	for _, t := range tests {
		for _, id := range t.ids {
			st := all.byID[id]
			if st == nil {
				errs = append(errs, fmt.Errorf("%s: there is no statement %s", t.name, id))
				continue
			}
			if !slices.Contains(st.tests, t.name) {
				st.tests = append(st.tests, t.name)
			}
		}
	}
	return errors.Join(errs...)
}

// held tells whether there is a test; missed, whether there ought to be one.
func (st *statement) held() bool   { return len(st.tests) > 0 }
func (st *statement) missed() bool { return !st.held() && st.kind == "" }

func (all *statements) render() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "| Section | Statements | With a test | Without |\n|---|---|---|---|\n")
	var sum [3]int
	for _, s := range all.sections {
		n := [3]int{len(s.statements)}
		for _, st := range s.statements {
			if st.held() {
				n[1]++
			}
			if st.missed() {
				n[2]++
			}
		}
		for i := range n {
			sum[i] += n[i]
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", s.title, n[0], n[1], n[2])
	}
	fmt.Fprintf(&b, "| **All** | **%d** | **%d** | **%d** |\n", sum[0], sum[1], sum[2])
	for _, s := range all.sections {
		fmt.Fprintf(&b, "\n### %s\n\n| ID | Statement | Tests |\n|---|---|---|\n", s.title)
		for _, st := range s.statements {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", st.id, st.text, st.listed())
		}
	}
	return b.Bytes()
}

// listed is the last cell of a statement's row.
func (st *statement) listed() string {
	switch {
	case st.held():
		slices.Sort(st.tests)
		return "`" + strings.Join(st.tests, "` `") + "`"
	case st.missed():
		return "**none**"
	}
	return "none needed: " + st.kind
}

// The marks around what is written.
const (
	beginMark = "<!-- statements: written by make docs -->\n"
	endMark   = "<!-- end of statements -->\n"
)

// replace puts text between the marks of a page.
func replace(page, text []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(beginMark))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return nil, fmt.Errorf("the marks %q and %q are missing", beginMark, endMark)
	}
	return slices.Concat(before, []byte(beginMark), []byte("\n"), text, []byte("\n"), []byte(endMark), after), nil
}
