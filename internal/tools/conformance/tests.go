package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// test is a test or subtest whose name contains identifiers.
type test struct {
	name string
	ids  []string
}

// suites lists the folders in which non-test files also name subtests.
var suites = []string{"internal/conformance"}

// own is this package. Its tests use identifiers as data.
const own = "internal/tools/conformance"

// findTests searches every package below root.
func findTests(root string) (tests []test, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")):
			if name == "testdata" {
				found, err := transcriptsOf(path, root)
				if tests = append(tests, found...); err != nil {
					return err
				}
			}
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		if dir == own || !strings.HasSuffix(path, "_test.go") && !slices.Contains(suites, dir) {
			return nil
		}
		found, err := testsOf(path, strings.TrimPrefix(dir, "internal/"))
		tests = append(tests, found...)
		return err
	})
	return tests, err
}

// transcript matches the line that begins a case of a transcript. TestTranscripts of its package runs the cases.
var transcript = regexp.MustCompile(`(?m)^case (\w+)$`)

// transcriptsOf finds the cases of the transcripts in a testdata folder.
func transcriptsOf(dir, root string) (tests []test, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	pkg, err := filepath.Rel(root, filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	pkg = strings.TrimPrefix(filepath.ToSlash(pkg), "internal/")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for _, m := range transcript.FindAllSubmatch(text, -1) {
			name := strings.TrimSuffix(filepath.Base(f), ".txt") + "/" + string(m[1])
			if ids := idsIn(string(m[1])); len(ids) > 0 {
				tests = append(tests, test{pkg + ".TestTranscripts/" + name, ids})
			}
		}
	}
	return tests, nil
}

// testsOf parses one file of a package.
func testsOf(path, pkg string) (tests []test, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	add := func(name string) {
		if ids := idsIn(name); len(ids) > 0 {
			tests = append(tests, test{pkg + "." + name, ids})
		}
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTest(fn.Name.Name) {
			add(fn.Name.Name)
			if ids := marksOf(f, fn); len(ids) > 0 {
				tests = append(tests, test{pkg + "." + fn.Name.Name, ids})
			}
		}
	}
	for _, name := range subtestsOf(f) {
		add(name)
	}
	return tests, nil
}

// mark matches the beginning of a comment that names the statements which the line proves.
var mark = regexp.MustCompile(`^// ?` + idText + `(?:, ` + idText + `)*(?:[:. ]|$)`)

// marksOf finds the identifiers in those comments of a test that begin with an identifier.
func marksOf(f *ast.File, fn *ast.FuncDecl) (ids []string) {
	for _, group := range f.Comments {
		if group.Pos() < fn.Pos() || group.End() > fn.End() {
			continue
		}
		for _, c := range group.List {
			for _, id := range anID.FindAllString(mark.FindString(c.Text), -1) {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
		}
	}
	return ids
}

var anID = regexp.MustCompile(idText)

func isTest(name string) bool {
	for _, kind := range []string{"Test", "Fuzz", "Example"} {
		if strings.HasPrefix(name, kind) {
			return true
		}
	}
	return false
}

// subtest matches the beginning of a subtest's name.
var subtest = regexp.MustCompile(`^(?:[CIRVWX][_-][A-Z]+|[DT])[_-]\d\d[_ ]`)

// verb matches a formatting verb of fmt.
var verb = regexp.MustCompile(`%[a-z]`)

// subtestsOf finds the string literals of a file that are names of subtests: those that begin with an
// identifier and are not part of a message.
func subtestsOf(f *ast.File) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok {
				switch s.Sel.Name {
				case "Error", "Errorf", "Fatal", "Fatalf", "Log", "Logf":
					return false
				}
			}
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && subtest.MatchString(text) {
				text = verb.ReplaceAllString(text, "*")
				names = append(names, strings.NewReplacer(" ", "_", "`", "", "|", "").Replace(text))
			}
		}
		return true
	})
	return names
}

// idsIn finds the identifiers in a test's name: V_QPS_04 and V-QPS-04 are V-QPS-04, D_09 is D-09. Further
// numbers belong to the same group: C_QP_02_04 is C-QP-02 and C-QP-04.
func idsIn(name string) (ids []string) {
	words := strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '-' || r == ' ' })
	group := ""
	for i, w := range words {
		for _, kind := range []string{"Test", "Fuzz", "Example"} {
			w = strings.TrimPrefix(w, kind)
		}
		switch {
		case len(w) == 1 && strings.Contains("CIRVWX", w) && i+2 < len(words) && isUpper(words[i+1]) && isNumber(words[i+2]):
			group = w + "-" + words[i+1] + "-"
		case (w == "D" || w == "T") && i+1 < len(words) && isNumber(words[i+1]):
			group = w + "-"
		case group != "" && isNumber(w):
			ids = append(ids, group+w)
		case group != "" && !strings.HasSuffix(group, "-"+w+"-"):
			group = ""
		}
	}
	return ids
}

func isUpper(w string) bool {
	return strings.Trim(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func isNumber(w string) bool {
	return len(w) == 2 && strings.Trim(w, "0123456789") == ""
}
