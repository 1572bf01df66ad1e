package main

import (
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const source = `package p

const limit = 5

func (t *T[K]) f(a, b int) (err error) {
	if a < b && !t.on {
		t.n = 7
		a++
		g(a)
	}
	for {
		a += 0x10
		panic(1 + a)
	}
	return h("a" + x, true)
}
`

func TestEachFaultIsOneChange(t *testing.T) {
	ms, err := mutants("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range ms {
		if m.Func != "T.f" || !strings.HasPrefix(source[m.Offset:], m.From) {
			t.Errorf("%+v", m)
		}
		if m.Line != 1+strings.Count(source[:m.Offset], "\n") {
			t.Errorf("line %d: %+v", m.Line, m)
		}
		src := m.apply([]byte(source))
		if len(src) != len(source)-len(m.From)+len(m.To) {
			t.Errorf("%+v: length %d", m, len(src))
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		got = append(got, m.From+" -> "+m.To)
	}
	want := []string{
		"a < b && !t.on -> (a < b && !t.on) && false", "a < b && !t.on -> (a < b && !t.on) || true", "< -> <=", "&& -> ||",
		"! -> ", "t.n = 7 -> ", "7 -> 8", "++ -> --", "g(a) -> ", "+= -> -=", "0x10 -> 17", "+ -> -", "true -> false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A test meets a fault in the expression of a case if it runs the switch, and one in the body if the case is chosen.
func TestCasesRunWithTheirSwitch(t *testing.T) {
	const source = `package p

func f(a, b int) int {
	switch {
	case a == 1:
		return 2
	case a == 3,
		b == 4:
		switch b {
		case a + 5:
			return 6
		}
	}
	return 7
}
`
	ms, err := mutants("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"1": 4, "2": 6, "3": 4, "4": 4, "5": 9, "6": 11, "7": 14}
	for _, m := range ms {
		if line, ok := want[m.From]; ok && m.Run != line {
			t.Errorf("%s on line %d runs with line %d, want %d", m.From, m.Line, m.Run, line)
		}
		delete(want, m.From)
	}
	if len(want) > 0 {
		t.Errorf("no faults of %v", want)
	}
}

// The same seed chooses the same faults, whatever the number of them that run.
func TestSample(t *testing.T) {
	all := make([]mutant, 100)
	for i := range all {
		all[i].Offset = i
	}
	a, b := sample(all, 10, 3), sample(all, 20, 3)
	if len(a) != 10 || len(b) != 20 || !slices.Equal(a, b[:10]) {
		t.Errorf("%v\n%v", a, b)
	}
	if c := sample(all, 10, 4); slices.Equal(a, c) {
		t.Error("another seed chooses the same")
	}
	if n := len(sample(all, 0, 1)); n != 100 {
		t.Errorf("0 stands for all, got %d", n)
	}
}

func TestScore(t *testing.T) {
	s := tally{killed: 8, timedOut: 1, survived: 1, uncovered: 2, broken: 5}
	if got := s.score(); got != 0.75 {
		t.Errorf("%v", got)
	}
}

// The schema of a file compiles, and each copy differs from its function by the fault.
func TestSchema(t *testing.T) {
	const text = "package p\n\nfunc (T[_]) f(_ int, _ string, c ...int) (err error) {\n" +
		"\tif len(c) < 2 {\n\t\treturn nil\n\t}\n\treturn err\n}\n\n" +
		"func g[K any, V any](k K) (v V) {\n\tif true {\n\t\treturn v\n\t}\n\treturn v\n}\n"
	ms, err := mutants("p.go", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := newSchema(".", nil)
	var numbers []int
	for i := range ms {
		s.mutants = append(s.mutants, &ms[i])
		numbers = append(numbers, i)
	}
	out, at, pkg, err := s.file("p.go", []byte(text), numbers)
	if err != nil || pkg != "p" || len(at) != len(ms) {
		t.Fatalf("%v, %q, %d copies of %d", err, pkg, len(at), len(ms))
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", out, 0); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"func (p1_ T[_]) f(p2_ int, p3_ string, c ...int) (err error) {if mutantChosen_ != 0",
		"case 1: return p1_.f_m1(p2_, p3_, c...);", "return g_m5[K, V](k);", "func g_m5[K any, V any](k K) (v V) {",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	lines := strings.Split(string(out), "\n")
	for i, c := range at {
		if !strings.HasPrefix(lines[c.first-1], "func ") || c.first >= c.last {
			t.Errorf("copy %d: lines %d to %d begin with %q", i, c.first, c.last, lines[c.first-1])
		}
	}
	s.lines = map[string][]copied{"p.go": at}
	errors := "# p\n./p.go:" + strconv.Itoa(at[0].first+1) + ":3: bad\n"
	if !s.drop([]byte(errors)) || len(s.without) != 1 || !s.without[at[0].m] {
		t.Errorf("%v", s.without)
	}
}
