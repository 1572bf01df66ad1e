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
	reason         string // why there is no test
	open           bool   // the reason says what is still to be done
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

// idText is an identifier: a letter, a group for most letters, and a number.
const idText = `(?:[CRVWX]-[A-Z]+|[DT])-\d\d`

var row = regexp.MustCompile(`^\| (` + idText + `) \| (\w*) *\| (.*) \|$`)

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

// The rows of the list of statements without a test, and the title of its part for those that get one.
var (
	reasonRow = regexp.MustCompile(`^\| (` + idText + `(?:, ` + idText + `)*) \| (.+) \|$`)
	openTitle = "## Not done yet"
)

// readReasons reads why statements have no test.
func (all *statements) readReasons(text string) error {
	var errs []error
	open := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "## ") {
			open = line == openTitle
		}
		m := reasonRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for id := range strings.SplitSeq(m[1], ", ") {
			st := all.byID[id]
			switch {
			case st == nil:
				errs = append(errs, fmt.Errorf("there is no statement %s that could lack a test", id))
			case st.reason != "":
				errs = append(errs, fmt.Errorf("%s has two reasons for having no test", id))
			default:
				st.reason, st.open = m[2], open
			}
		}
	}
	return errors.Join(errs...)
}

// check finds the statements that have neither a test nor a reason, and those that have both. What is not done yet may have tests
// already.
func (all *statements) check() error {
	var errs []error
	for _, s := range all.sections {
		for _, st := range s.statements {
			switch {
			case st.missed() && st.reason == "":
				errs = append(errs, fmt.Errorf("%s has neither a test nor, in %s, a reason", st.id, reasonsFile))
			case st.held() && st.reason != "" && !st.open:
				errs = append(errs, fmt.Errorf("%s has a test, so that its reason in %s is out of date", st.id, reasonsFile))
			}
		}
	}
	return errors.Join(errs...)
}

// assign gives each statement its tests. A test of a statement that does not exist is an error.
func (all *statements) assign(tests []test) error {
	var errs []error
	for _, t := range tests {
		for _, id := range t.ids {
			st := all.byID[id]
			if st == nil && all.unlisted(id) {
				continue
			}
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

// unlisted tells whether an identifier is of a group of rsocket's that no list has yet.
func (all *statements) unlisted(id string) bool {
	group := id[:len(id)-2]
	if id[0] != 'R' && group != "W-RS-" && group != "W-DS-" {
		return false
	}
	for known := range all.byID {
		if strings.HasPrefix(known, group) {
			return false
		}
	}
	return true
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
			if st.missed() && (st.open || st.reason == "") {
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
	case st.missed() && st.open:
		return "**none yet**: " + st.reason
	case st.missed() && st.reason != "":
		return "none: " + st.reason
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
