package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
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
	fake bool // it runs on a driver that the test supplies
}

// suites lists the folders in which non-test files also name subtests.
var suites = []string{"internal/conformance"}

// own is this package. Its tests use identifiers as data.
const own = "internal/tools/conformance"

// findTests searches every package below root.
func findTests(root string) (tests []test, err error) {
	dirs := map[string][]string{} // files by folder
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
		if dir != own && (strings.HasSuffix(path, "_test.go") || slices.Contains(suites, dir)) {
			dirs[dir] = append(dirs[dir], path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		found, err := testsOf(dirs[dir], strings.TrimPrefix(dir, "internal/"))
		if err != nil {
			return nil, err
		}
		tests = append(tests, found...)
	}
	return tests, nil
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
				tests = append(tests, test{name: pkg + ".TestTranscripts/" + name, ids: ids})
			}
		}
	}
	return tests, nil
}

// testsOf parses the test files of a folder.
func testsOf(paths []string, pkg string) (tests []test, err error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	u, err := usesOf(files)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pkg, err)
	}
	for _, f := range files {
		add := func(name, decl string, ids []string) {
			if len(ids) > 0 {
				tests = append(tests, test{pkg + "." + name, ids, u.onFake(decl)})
			}
		}
		for _, d := range f.Decls {
			name := declared(d)
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTest(fn.Name.Name) {
				add(name, name, idsIn(name))
				add(name, name, marksOf(f, fn))
			}
			for _, sub := range subtestsOf(d) {
				add(sub, name, idsIn(sub))
			}
		}
	}
	slices.SortStableFunc(tests, func(a, b test) int { return cmp.Compare(a.name, b.name) })
	return tests, nil
}

// declared is the name of a declaration. A method belongs to its type.
func declared(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			return typeName(d.Recv.List[0].Type)
		}
		return d.Name.Name
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				return s.Name.Name
			case *ast.ValueSpec:
				return s.Names[0].Name
			}
		}
	}
	return ""
}

func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.Ident:
		return t.Name
	case *ast.SelectorExpr:
		return t.Sel.Name
	}
	return ""
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

// subtestsOf finds the string literals of a declaration that are names of subtests: those that begin with an
// identifier and are not part of a message.
func subtestsOf(d ast.Decl) (names []string) {
	ast.Inspect(d, func(n ast.Node) bool {
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
