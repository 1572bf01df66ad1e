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

// statement is a row of a list. It is in one class.
type statement struct {
	id, kind, text string
	tests          []string // on our devices, on a real peer, or of what needs no device
	fakes          []string // tests on a fake driver
	refused        string   // why the call answers an error, EOPNOTSUPP for most
	notApplicable  string   // why there is nothing to do
}

// class is a column of the pages.
type class int

const (
	proven class = iota
	provenOnFake
	refused
	notApplicable
	classes
)

// class returns the statement's class.
func (st *statement) class() class {
	switch {
	case st.refused != "":
		return refused
	case st.notApplicable != "":
		return notApplicable
	case len(st.tests) > 0:
		return proven
	case len(st.fakes) > 0:
		return provenOnFake
	}
	return classes
}

// section is a table of a list.
type section struct {
	title      string
	page       string // file name of its page
	statements []*statement
}

// statements holds all lists.
type statements struct {
	sections []*section
	byID     map[string]*statement
}

// idText matches an identifier: a letter, for most letters a group, and a number.
const idText = `(?:[CIRVWX]-[A-Z]+|[DT])-\d\d`

var row = regexp.MustCompile(`^\| (` + idText + `) \| (\w*) *\| (.*) \|$`)

// readStatements reads the lists in a folder.
func readStatements(dir string) (*statements, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*-ids.md"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no list of statements in %s (%v)", dir, err)
	}
	all := &statements{byID: map[string]*statement{}}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		list := strings.TrimSuffix(filepath.Base(f), "-ids.md")
		if err := all.read(list, string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	return all, nil
}

// number matches the number of a section in its title: "CM 13. rdma_connect", "21. Completion queue".
var number = regexp.MustCompile(`^(?:[A-Za-z]+ )?(\d+)\. `)

// read reads a list. Its name begins the names of its pages: verbs-21.md.
func (all *statements) read(list, text string) error {
	var s *section
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			m := number.FindStringSubmatch(title)
			if m == nil {
				return fmt.Errorf("section %q has no number", title)
			}
			s = &section{title: title, page: fmt.Sprintf("%s-%02s.md", list, m[1])}
			all.sections = append(all.sections, s)
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if s == nil || all.byID[m[1]] != nil {
			return fmt.Errorf("%s is listed twice, or outside a section", m[1])
		}
		st := &statement{id: m[1], kind: m[2], text: m[3]}
		s.statements = append(s.statements, st)
		all.byID[st.id] = st
	}
	return nil
}

// reasonRow matches a row of a list of reasons.
var reasonRow = regexp.MustCompile(`^\| (` + idText + `(?:, ` + idText + `)*) \| (.+) \|$`)

// readReasons reads the reasons of refused statements, or of those that are not applicable.
func (all *statements) readReasons(name, text string, field func(*statement) *string) error {
	var errs []error
	for line := range strings.Lines(text) {
		m := reasonRow.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		for id := range strings.SplitSeq(m[1], ", ") {
			st := all.byID[id]
			switch {
			case st == nil:
				errs = append(errs, fmt.Errorf("%s: unknown statement %s", name, id))
			case st.refused+st.notApplicable != "":
				errs = append(errs, fmt.Errorf("%s: %s has two reasons", name, id))
			default:
				*field(st) = m[2]
			}
		}
	}
	return errors.Join(errs...)
}

// check finds the statements that are in no class, and contradictions.
func (all *statements) check() error {
	var errs []error
	for _, s := range all.sections {
		for _, st := range s.statements {
			tests := len(st.tests) + len(st.fakes)
			switch c := st.class(); {
			case c == classes:
				errs = append(errs, fmt.Errorf("%s has no test, and stands neither in %s nor in %s", st.id, refusedFile,
					notApplicableFile))
			case c == notApplicable && tests > 0:
				errs = append(errs, fmt.Errorf("%s has a test; remove it from %s", st.id, notApplicableFile))
			case strings.HasSuffix(st.text, "…"):
				errs = append(errs, fmt.Errorf("%s is cut short", st.id))
			}
		}
	}
	return errors.Join(errs...)
}

// assign adds the tests to their statements. An identifier without a statement is an error.
func (all *statements) assign(tests []test) error {
	var errs []error
	for _, t := range tests {
		for _, id := range t.ids {
			st := all.byID[id]
			if st == nil && all.unlisted(id) {
				continue
			}
			if st == nil {
				errs = append(errs, fmt.Errorf("%s: unknown statement %s", t.name, id))
				continue
			}
			list := &st.tests
			if t.fake {
				list = &st.fakes
			}
			if !slices.Contains(*list, t.name) {
				*list = append(*list, t.name)
			}
		}
	}
	return errors.Join(errs...)
}

// unlisted reports whether an identifier is of a group of rsocket's that no list has yet.
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

// count returns the number of a section's statements in each class.
func (s *section) count() (n [classes]int) {
	for _, st := range s.statements {
		n[st.class()]++
	}
	return n
}

// summary returns the table of sections, with links to their pages in dir.
func (all *statements) summary(dir string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "| Section | Statements | Proven | Proven on a fake driver only | Refused | Not applicable |\n")
	fmt.Fprintf(&b, "|---|---|---|---|---|---|\n")
	var sum [classes]int
	for _, s := range all.sections {
		n := s.count()
		for i := range n {
			sum[i] += n[i]
		}
		fmt.Fprintf(&b, "| [%s](%s/%s) | %d |%s\n", s.title, dir, s.page, len(s.statements), cells("", n))
	}
	fmt.Fprintf(&b, "| **All** | **%d** |%s\n", len(all.byID), cells("**", sum))
	return b.Bytes()
}

func cells(mark string, n [classes]int) string {
	var b strings.Builder
	for _, v := range n {
		fmt.Fprintf(&b, " %s%d%s |", mark, v, mark)
	}
	return b.String()
}

// render returns the page of a section; index is the name of the page with the summary.
func (s *section) render(index string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\nWritten by `make docs`; ", s.title)
	fmt.Fprintf(&b, "see [the summary](../%s#statements-and-their-tests).\n\n", index)
	fmt.Fprintf(&b, "| ID | Statement | Proven by | On a fake driver | Refused | Not applicable |\n")
	fmt.Fprintf(&b, "|---|---|---|---|---|---|\n")
	for _, st := range s.statements {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", st.id, st.text, listed(st.tests), listed(st.fakes),
			st.refused, st.notApplicable)
	}
	return b.Bytes()
}

// listed returns a cell with tests.
func listed(tests []string) string {
	if len(tests) == 0 {
		return ""
	}
	slices.Sort(tests)
	return "`" + strings.Join(tests, "` `") + "`"
}

// The marks enclose the generated text.
const (
	beginMark = "<!-- statements: written by make docs -->\n"
	endMark   = "<!-- end of statements -->\n"
)

// replace replaces the text between the marks of a page.
func replace(page, text []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(beginMark))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return nil, fmt.Errorf("the page lacks the marks %q and %q", beginMark, endMark)
	}
	return slices.Concat(before, []byte(beginMark), []byte("\n"), text, []byte("\n"), []byte(endMark), after), nil
}
