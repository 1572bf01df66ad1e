// Conformance writes which test holds which statement of the specification, out of the names of the tests, into the page
// that tells of it.
//
//	conformance PAGE      fails if the page is not up to date
//	conformance -w PAGE   writes it
//
// The statements are the rows of the tables in docs/spec/*-ids.md. A test holds a statement if its name, or that of a
// subtest or a case of a transcript, has its identifier: TestV_QPS_04_PostingByState holds V-QPS-04. A test that proves many says so
// in comments where it does: "// C-QP-04, C-QP-09". What stands between the two marks of the page is written, the rest
// is left.
//
// A statement without a test needs a reason in docs/spec/untested.md, else the program fails. So it does for a reason
// that a test has overtaken.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	write := flag.Bool("w", false, "write the page")
	flag.Parse()
	if err := run(".", flag.Arg(0), *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// reasonsFile says why statements have no test.
const reasonsFile = "docs/spec/untested.md"

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
	reasons, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(reasonsFile)))
	if err != nil {
		return err
	}
	if err := errors.Join(list.readReasons(string(reasons)), list.check()); err != nil {
		return err
	}
	old, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return err
	}
	text, err := replace(old, list.render())
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if write {
		return os.WriteFile(filepath.Join(root, page), text, 0o644)
	}
	if !bytes.Equal(old, text) {
		return fmt.Errorf("%s is not up to date: run make docs", page)
	}
	return nil
}
