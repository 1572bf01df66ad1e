package main

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackagesSayWhatTheyImport checks that a package comment which says what the package imports names every package
// of this module that it does.
func TestPackagesSayWhatTheyImport(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports", module+"...")
	cmd.Env = append(os.Environ(), "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for list := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir            string
			GoFiles, CgoFiles, Imports []string
		}
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		if name == "provider/soft" { // it imports nearly everything
			continue
		}
		named := imported(comment(t, p.Dir, append(p.GoFiles, p.CgoFiles...)))
		for _, path := range p.Imports {
			if path, ours := strings.CutPrefix(path, module); ours && named != nil && !slices.Contains(named, path) {
				t.Errorf("%s: the package comment does not name the import %s", name, path)
			}
		}
	}
}

// comment returns the package comment of some files of a folder.
func comment(t *testing.T, dir string, files []string) (text string) {
	t.Helper()
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil,
			parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		text += f.Doc.Text()
	}
	return text
}

var (
	says   = regexp.MustCompile(`\bimports? `)
	braces = regexp.MustCompile(`([\w/]+/)\{([^}]*)\}`)
)

// imported returns the words after "imports" in a package comment; nil without that word. It writes a/{b,c} as a/b and
// a/c.
func imported(comment string) []string {
	at := says.FindStringIndex(comment)
	if at == nil {
		return nil
	}
	text := braces.ReplaceAllStringFunc(comment[at[1]:], func(s string) string {
		m := braces.FindStringSubmatch(s)
		var all []string
		for name := range strings.SplitSeq(m[2], ",") {
			all = append(all, m[1]+strings.TrimSpace(name))
		}
		return strings.Join(all, " ")
	})
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n,.;:()", r) })
}

func TestImported(t *testing.T) {
	got := imported("Package p has c.\nIt imports verbs, internal/{a,\nb} (for c) and x/y.\n")
	for _, want := range []string{"verbs", "internal/a", "internal/b", "x/y"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if got := imported("Package p has c."); got != nil {
		t.Errorf("%q without the word", got)
	}
}
