package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A schema is a package that holds all mutants at once. Each mutant is a copy of its function with the fault, and the
// function begins with a choice among its copies. The environment variable chooser selects the mutant. One build
// serves for all mutants.
type schema struct {
	dir     string
	mutants []*mutant        // number i+1 is mutants[i]
	without map[*mutant]bool // do not compile
	lines   map[string][]copied
}

// chooser names the environment variable with the number of the mutant.
const chooser = "MUTANT_CHOSEN"

// chooserFile is added to the package. The functions read its variable.
const chooserFile = "mutant_chosen_.go"

const chooserText = `package %s

import (
	"os"
	"strconv"
)

var mutantChosen_ = func() int { n, _ := strconv.Atoi(os.Getenv(%q)); return n }()
`

// A copied is the place of a mutant's copy in a file, in lines.
type copied struct {
	first, last int
	m           *mutant
}

func newSchema(dir string, ms []*mutant) *schema {
	return &schema{dir: dir, mutants: ms, without: map[*mutant]bool{}}
}

// write writes the files of the schema and the overlay that puts them in place of those of the package. It returns
// the overlay's name.
func (s *schema) write(tmp string) (string, error) {
	byFile := map[string][]int{}
	for i, m := range s.mutants {
		if !s.without[m] {
			byFile[m.File] = append(byFile[m.File], i)
		}
	}
	replace := map[string]string{}
	put := func(name string, text []byte) error {
		abs, err := filepath.Abs(filepath.Join(s.dir, name))
		if err != nil {
			return err
		}
		replace[abs] = filepath.Join(tmp, name)
		return os.WriteFile(replace[abs], text, 0o600)
	}
	s.lines = map[string][]copied{}
	pkg := ""
	for name, numbers := range byFile {
		src, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return "", err
		}
		var text []byte
		if text, s.lines[name], pkg, err = s.file(name, src, numbers); err != nil {
			return "", err
		}
		if err := put(name, text); err != nil {
			return "", err
		}
	}
	if pkg != "" {
		if err := put(chooserFile, fmt.Appendf(nil, chooserText, pkg, chooser)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(tmp, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// file returns a file with the copies of the mutants of these numbers, and where they are.
func (s *schema) file(name string, src []byte, numbers []int) (_ []byte, at []copied, pkg string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, "", err
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var edits []edit
	var copies bytes.Buffer
	type place struct{ first, last int }
	places := map[int]place{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		var choices strings.Builder
		for _, i := range numbers {
			m := s.mutants[i]
			if m.Offset < offset(fn.Body.Pos()) || m.Offset >= offset(fn.Body.End()) {
				continue
			}
			text := string(m.apply(src)[offset(fn.Pos()) : offset(fn.End())+len(m.To)-len(m.From)])
			start := offset(fn.Name.Pos()) - offset(fn.Pos())
			copyName := fmt.Sprintf("%s_m%d", fn.Name.Name, i+1)
			copies.WriteString("\n")
			first := bytes.Count(copies.Bytes(), []byte("\n"))
			copies.WriteString(text[:start] + copyName + text[start+len(fn.Name.Name):] + "\n")
			places[i] = place{first, bytes.Count(copies.Bytes(), []byte("\n"))}
			fmt.Fprintf(&choices, " case %d: %s;", i+1, call(fn, copyName, offset, src))
		}
		if choices.Len() == 0 {
			continue
		}
		edits = append(edits, named(fn, offset)...)
		edits = append(edits, edit{offset(fn.Body.Lbrace) + 1, 0,
			"if mutantChosen_ != 0 { switch mutantChosen_ {" + choices.String() + " } };"})
	}
	out := apply(src, edits)
	before := bytes.Count(out, []byte("\n"))
	for i, p := range places {
		at = append(at, copied{before + p.first + 1, before + p.last + 1, s.mutants[i]})
	}
	return append(out, copies.Bytes()...), at, f.Name.Name, nil
}

// An edit replaces n bytes at an offset.
type edit struct {
	at, n int
	text  string
}

func apply(src []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.at - b.at })
	var out []byte
	done := 0
	for _, e := range edits {
		out = append(append(out, src[done:e.at]...), e.text...)
		done = e.at + e.n
	}
	return append(out, src[done:]...)
}

// eachParameter calls f for the receiver and the parameters with the names that they have in the schema, and the place
// of a name that has to be written, or nil.
func eachParameter(fn *ast.FuncDecl, f func(field *ast.Field, id *ast.Ident, name string)) {
	n := 0
	for _, list := range []*ast.FieldList{fn.Recv, fn.Type.Params} {
		if list == nil {
			continue
		}
		for _, field := range list.List {
			if len(field.Names) == 0 {
				n++
				f(field, nil, fmt.Sprintf("p%d_", n))
			}
			for _, id := range field.Names {
				n++
				name := id.Name
				if name == "_" {
					name = fmt.Sprintf("p%d_", n)
				}
				f(field, id, name)
			}
		}
	}
}

// named gives a name to each parameter without one.
func named(fn *ast.FuncDecl, offset func(token.Pos) int) (edits []edit) {
	eachParameter(fn, func(field *ast.Field, id *ast.Ident, name string) {
		switch {
		case id == nil:
			edits = append(edits, edit{offset(field.Type.Pos()), 0, name + " "})
		case id.Name == "_":
			edits = append(edits, edit{offset(id.Pos()), 1, name})
		}
	})
	return edits
}

// call calls a copy of the function in its place.
func call(fn *ast.FuncDecl, name string, offset func(token.Pos) int, src []byte) string {
	var args []string
	recv := ""
	eachParameter(fn, func(field *ast.Field, _ *ast.Ident, arg string) {
		if fn.Recv != nil && recv == "" {
			recv = arg + "."
			return
		}
		if _, ok := field.Type.(*ast.Ellipsis); ok {
			arg += "..."
		}
		args = append(args, arg)
	})
	if t := fn.Type.TypeParams; t != nil {
		var names []string
		for _, field := range t.List {
			for _, id := range field.Names {
				names = append(names, string(src[offset(id.Pos()):offset(id.End())]))
			}
		}
		name += "[" + strings.Join(names, ", ") + "]"
	}
	text := fmt.Sprintf("%s%s(%s)", recv, name, strings.Join(args, ", "))
	if r := fn.Type.Results; r != nil && len(r.List) > 0 {
		return "return " + text
	}
	return text + "; return"
}

// message matches a message of the compiler.
var message = regexp.MustCompile(`(?m)^(?:\./)?([^\s:]+\.go):(\d+):`)

// drop excludes the mutants to which the compiler's messages point. It reports whether it found any.
func (s *schema) drop(text []byte) bool {
	found := map[*mutant]bool{}
	for _, m := range message.FindAllSubmatch(text, -1) {
		line, _ := strconv.Atoi(string(m[2]))
		for _, c := range s.lines[filepath.Base(string(m[1]))] {
			if c.first <= line && line <= c.last {
				found[c.m] = true
			}
		}
	}
	maps.Copy(s.without, found)
	return len(found) > 0
}

// recovers reports whether a function calls recover outside of function literals. Then a copy behaves differently.
func recovers(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "recover" {
				found = true
			}
		}
		return true
	})
	return found
}
