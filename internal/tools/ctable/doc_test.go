package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// public lists the packages that programs import.
var public = []string{"verbs", "rdmacm", "rsocket", "rsocket/socket", "umad", "rdmatest", "metrics/prometheus",
	"provider/soft"}

// Every exported symbol has a comment. The comment of its group serves for a constant or variable, and that
// of its type for a method of an interface or a field.
func TestExportedSymbolsHaveComments(t *testing.T) {
	for _, dir := range public {
		for _, missing := range undocumented(t, filepath.Join("../../..", dir)) {
			t.Errorf("%s: no comment on %s", dir, missing)
		}
	}
}

// undocumented finds exactly the symbols without a comment.
func TestUndocumented(t *testing.T) {
	want := []string{"package", "func F", "type T", "method (T) M", "const A", "var V"}
	if got := undocumented(t, "testdata/undocumented"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// undocumented lists the exported symbols of a package that have no comment.
func undocumented(t *testing.T, dir string) (missing []string) {
	t.Helper()
	p := parse(t, dir)
	need := func(what, name, comment string) {
		if ast.IsExported(name[strings.LastIndex(name, " ")+1:]) && strings.TrimSpace(comment) == "" {
			missing = append(missing, what+" "+name)
		}
	}
	if strings.TrimSpace(p.Doc) == "" {
		missing = append(missing, "package")
	}
	values := func(what string, list []*doc.Value) {
		for _, v := range list {
			group := v.Doc
			for _, spec := range v.Decl.Specs {
				group += spec.(*ast.ValueSpec).Doc.Text()
			}
			for _, spec := range v.Decl.Specs {
				s := spec.(*ast.ValueSpec)
				for _, name := range s.Names {
					if !strings.Contains(group, name.Name) { // one comment may name several
						need(what, name.Name, v.Doc+s.Doc.Text()+s.Comment.Text())
					}
				}
			}
		}
	}
	for _, f := range p.Funcs {
		need("func", f.Name, f.Doc)
	}
	for _, typ := range p.Types {
		need("type", typ.Name, typ.Doc)
		for _, f := range typ.Funcs {
			need("func", f.Name, f.Doc)
		}
		for _, m := range typ.Methods {
			need("method", fmt.Sprintf("(%s) %s", m.Recv, m.Name), m.Doc)
		}
		values("const", typ.Consts)
		values("var", typ.Vars)
	}
	values("const", p.Consts)
	values("var", p.Vars)
	return missing
}

func parse(t *testing.T, dir string) *doc.Package {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(paths), err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
