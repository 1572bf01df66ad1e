package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/big"
	"slices"
	"strings"
)

// A mutant is one small fault in one file: the bytes from Offset on that are equal to From become To.
type mutant struct {
	File   string // base name
	Line   int
	Run    int    // the line that coverage reports when the code runs
	Func   string // the function or method that holds it, "" outside of functions
	Offset int
	From   string
	To     string
}

// key names the mutant in a way that survives changes elsewhere in the file.
func (m *mutant) key() string {
	return fmt.Sprintf("%s %s: %s -> %s", m.File, m.Func, oneLine(m.From), oneLine(m.To))
}

// place is the key with the line and the byte: it tells apart faults with equal keys.
func (m *mutant) place() string { return fmt.Sprintf("%s @%d:%d", m.key(), m.Line, m.Offset) }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// apply returns the source with the fault.
func (m *mutant) apply(src []byte) []byte {
	out := bytes.Clone(src[:m.Offset])
	out = append(out, m.To...)
	return append(out, src[m.Offset+len(m.From):]...)
}

// swaps are the faults of binary operators and of assignments with an operator.
var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ}, token.LEQ: {token.LSS}, token.GTR: {token.GEQ}, token.GEQ: {token.GTR},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL}, token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.REM: {token.QUO}, token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.AND_NOT:    {token.AND},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN}, token.OR_ASSIGN: {token.AND_NOT_ASSIGN},
	token.AND_NOT_ASSIGN: {token.OR_ASSIGN}, token.AND_ASSIGN: {token.OR_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC}, token.BREAK: {token.CONTINUE}, token.CONTINUE: {token.BREAK},
}

// mutants lists the faults of a file, in the order of the source.
func mutants(name string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	w := &walker{name: name, src: src, file: fset.File(file.Pos())}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || recovers(f.Body) || f.Name.Name == "_" {
			continue
		}
		w.fn = f.Name.Name
		if f.Recv != nil {
			w.fn = receiver(f.Recv.List[0].Type) + "." + w.fn
		}
		ast.Inspect(f.Body, w.visit)
	}
	slices.SortStableFunc(w.out, func(a, b mutant) int { return cmp.Compare(a.Offset, b.Offset) })
	return w.out, nil
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

type walker struct {
	name  string
	src   []byte
	file  *token.File
	fn    string
	cases []caseList // so far
	out   []mutant
}

// A caseList is the expressions of a case. Coverage counts them as part of the code before the braces of the switch:
// what it reports for their own line is whether the case was chosen.
type caseList struct {
	from, to token.Pos
	line     int // of the left brace
}

func (w *walker) add(pos token.Pos, from, to string) {
	line := w.file.Line(pos)
	m := mutant{w.name, line, line, w.fn, w.file.Offset(pos), from, to}
	for _, c := range w.cases {
		if c.from <= pos && pos < c.to {
			m.Run = c.line
		}
	}
	w.out = append(w.out, m)
}

// caseLists notes the cases of a switch.
func (w *walker) caseLists(s *ast.SwitchStmt) {
	for _, c := range s.Body.List {
		c := c.(*ast.CaseClause)
		w.cases = append(w.cases, caseList{c.Case, c.Colon, w.file.Line(s.Body.Lbrace)})
	}
}

// text is the source of a node.
func (w *walker) text(n ast.Node) string {
	return string(w.src[w.file.Offset(n.Pos()):w.file.Offset(n.End())])
}

func (w *walker) swap(pos token.Pos, op token.Token) {
	for _, to := range swaps[op] {
		w.add(pos, op.String(), to.String())
	}
}

// visit adds the faults of a node. It reports whether to go on with its children.
func (w *walker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		return !silent(n)
	case *ast.SwitchStmt:
		w.caseLists(n)
	case *ast.BinaryExpr:
		w.swap(n.OpPos, n.Op)
	case *ast.IncDecStmt:
		w.swap(n.TokPos, n.Tok)
	case *ast.BranchStmt:
		if n.Label == nil {
			w.swap(n.TokPos, n.Tok)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			w.add(n.OpPos, "!", "")
		}
	case *ast.IfStmt:
		w.add(n.Cond.Pos(), w.text(n.Cond), "("+w.text(n.Cond)+") && false")
		w.add(n.Cond.Pos(), w.text(n.Cond), "("+w.text(n.Cond)+") || true")
	case *ast.AssignStmt:
		w.assignment(n)
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !silent(call) {
			w.add(n.Pos(), w.text(n), "")
		}
	case *ast.BasicLit:
		w.literal(n)
	case *ast.Ident:
		switch n.Name {
		case "true":
			w.add(n.Pos(), "true", "false")
		case "false":
			w.add(n.Pos(), "false", "true")
		}
	}
	return true
}

// assignment swaps the operator, or leaves out an assignment to a field, an element or what a pointer points to. An
// assignment to a variable is left alone: without it most programs do not compile.
func (w *walker) assignment(n *ast.AssignStmt) {
	if n.Tok != token.ASSIGN {
		w.swap(n.TokPos, n.Tok)
		return
	}
	for _, l := range n.Lhs {
		switch l.(type) {
		case *ast.SelectorExpr, *ast.IndexExpr, *ast.StarExpr:
		default:
			return
		}
	}
	w.add(n.Pos(), w.text(n), "")
}

// literal adds 1 to an integer.
func (w *walker) literal(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	if v, ok := new(big.Int).SetString(n.Value, 0); ok {
		w.add(n.Pos(), n.Value, v.Add(v, big.NewInt(1)).String())
	}
}

// silent reports whether a call only makes a text or ends the program: no test need notice a fault in it.
func silent(c *ast.CallExpr) bool {
	name := ""
	switch f := c.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	switch name {
	case "panic", "Errorf", "Sprintf", "Sprint", "Sprintln", "Printf", "Println", "Fprintf", "Fprintln", "Debug", "Info",
		"Warn", "Logf", "KeepAlive", "Gosched":
		return true
	}
	return false
}
