// Ctable writes the table from the names of the C libraries to those of the public packages. Its source is
// the docstrings: each exported symbol names its C twin in its first paragraph, in parentheses.
//
//	ctable FILE      fails if FILE is not up to date
//	ctable -w FILE   writes it
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// packages lists the public packages.
var packages = []string{"verbs", "umad", "rdmacm", "rsocket", "rsocket/socket"}

func main() {
	write := flag.Bool("w", false, "write the file")
	flag.Parse()
	if err := run(".", flag.Arg(0), *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root, file string, write bool) error {
	var rows []row
	for _, name := range packages {
		more, err := collect(filepath.Join(root, name), name)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	page := render(rows)
	if write {
		return os.WriteFile(file, page, 0o644)
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(old, page) {
		return fmt.Errorf("%s is not up to date: run make docs", file)
	}
	return nil
}

// A row maps a C name to a Go name.
type row struct{ c, goName string }

// cName matches functions, types and constants of the C libraries as docstrings name them: "(ibv_open_device)".
var cName = regexp.MustCompile(`\b(?:struct |enum |union )?(` + strings.Join([]string{
	`(?:ibv|rdma|umad|mad|ucma)_[a-z0-9_]+`,
	`(?:mult|mbps)_to_ibv_rate`,
	`(?:IBV|RDMA)_[A-Z0-9_]+`,
	`r(?:socket|bind|listen|accept|connect|shutdown|close|recv|recvfrom|recvmsg|read|readv|send|sendto|sendmsg|write|` +
		`writev|poll|select|getpeername|getsockname|setsockopt|getsockopt|fcntl|iomap|iounmap|iowrite)\b`,
}, "|") + `)`)

// collect reads one package. A package that does not exist has no rows.
func collect(dir, name string) ([]row, error) {
	fset := token.NewFileSet()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, err
	}
	var parsed []*ast.File
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		a, err := parser.ParseFile(fset, f, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, a)
	}
	p, err := doc.NewFromFiles(fset, parsed, "github.com/verbena-rdma/verbena/"+name)
	if err != nil {
		return nil, err
	}
	var rows []row
	add := func(goName, text string) {
		first, _, _ := strings.Cut(text, "\n\n")
		for _, m := range cName.FindAllStringSubmatch(strings.ReplaceAll(first, "\n", " "), -1) {
			if !strings.HasSuffix(m[1], "_") { // a prefix, such as IBV_WC_
				rows = append(rows, row{m[1], path.Base(name) + "." + goName})
			}
		}
	}
	for _, f := range p.Funcs {
		add(f.Name, f.Doc)
	}
	for _, t := range p.Types {
		add(t.Name, t.Doc)
		fields(t.Decl, func(field, text string) { add(t.Name+"."+field, text) })
		for _, f := range t.Funcs {
			add(f.Name, f.Doc)
		}
		for _, m := range t.Methods {
			add(t.Name+"."+m.Name, m.Doc)
		}
	}
	return rows, nil
}

// fields calls add for the fields of the structures that a declaration has, with their comments.
func fields(decl *ast.GenDecl, add func(field, text string)) {
	for _, spec := range decl.Specs {
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		s, ok := t.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range s.Fields.List {
			for _, name := range f.Names {
				if name.IsExported() {
					add(name.Name, f.Comment.Text())
				}
			}
		}
	}
}

const head = `# From C to Go

Written by ` + "`make docs`" + ` from the docstrings; ` + "`go doc`" + ` describes the Go name.

| C | Go |
|---|---|
`

func render(rows []row) []byte {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.c), strings.ToLower(b.c)), cmp.Compare(a.goName, b.goName))
	})
	rows = slices.Compact(rows)
	var b bytes.Buffer
	b.WriteString(head)
	for _, r := range rows {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", r.c, r.goName)
	}
	return b.Bytes()
}
