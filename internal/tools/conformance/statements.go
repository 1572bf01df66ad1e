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
	reason         string // why the statement has no test
	open           bool   // the reason lists work still to be done
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

// reasonRow matches a row of the list of reasons; openTitle begins the part for work still to be done.
var (
	reasonRow = regexp.MustCompile(`^\| (` + idText + `(?:, ` + idText + `)*) \| (.+) \|$`)
	openTitle = "## Not done yet"
)

// readReasons reads the reasons for statements without a test.
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
				errs = append(errs, fmt.Errorf("unknown statement %s", id))
			case st.reason != "":
				errs = append(errs, fmt.Errorf("%s has two reasons for lacking a test", id))
			default:
				st.reason, st.open = m[2], open
			}
		}
	}
	return errors.Join(errs...)
}

// check finds the statements that have neither a test nor a reason, and those that have both. Statements of
// the open part may have tests already.
func (all *statements) check() error {
	var errs []error
	for _, s := range all.sections {
		for _, st := range s.statements {
			switch {
			case st.missed() && st.reason == "":
				errs = append(errs, fmt.Errorf("%s has neither a test nor a reason in %s", st.id, reasonsFile))
			case st.held() && st.reason != "" && !st.open:
				errs = append(errs, fmt.Errorf("%s has a test; remove its reason from %s", st.id, reasonsFile))
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
			if !slices.Contains(st.tests, t.name) {
				st.tests = append(st.tests, t.name)
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

// held reports whether the statement has a test; missed reports whether it needs one and has none.
func (st *statement) held() bool   { return len(st.tests) > 0 }
func (st *statement) missed() bool { return !st.held() && st.kind == "" }

// count returns the number of a section's statements, of those with a test, and of those that lack one.
func (s *section) count() (n [3]int) {
	n[0] = len(s.statements)
	for _, st := range s.statements {
		if st.held() {
			n[1]++
		}
		if st.missed() && (st.open || st.reason == "") {
			n[2]++
		}
	}
	return n
}

// summary returns the table of sections, with links to their pages in dir.
func (all *statements) summary(dir string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "| Section | Statements | With a test | Without |\n|---|---|---|---|\n")
	var sum [3]int
	for _, s := range all.sections {
		n := s.count()
		for i := range n {
			sum[i] += n[i]
		}
		fmt.Fprintf(&b, "| [%s](%s/%s) | %d | %d | %d |\n", s.title, dir, s.page, n[0], n[1], n[2])
	}
	fmt.Fprintf(&b, "| **All** | **%d** | **%d** | **%d** |\n", sum[0], sum[1], sum[2])
	return b.Bytes()
}

// render returns the page of a section; index is the name of the page with the summary.
func (s *section) render(index string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\nWritten by `make docs`; ", s.title)
	fmt.Fprintf(&b, "see [the summary](../%s#statements-and-their-tests).\n\n", index)
	fmt.Fprintf(&b, "| ID | Statement | Tests |\n|---|---|---|\n")
	for _, st := range s.statements {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", st.id, st.text, st.listed())
	}
	return b.Bytes()
}

// listed returns the last cell of a statement's row.
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
