// Package abi knows the C interface that the libraries of cabi present: the names and versions of symbols*.txt.
//
// The headers beside it declare structures and values for the C sources. The commands gen and check make files from
// the table and compare the headers with installed ones. The package imports only the standard library and builds
// without cgo.
package abi

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed symbols.txt
var symbols string

//go:embed symbols-rdmacm.txt
var symbolsRdmacm string

//go:embed symbols-ibumad.txt
var symbolsIbumad string

// A Library is one shared library: its names and its version nodes.
type Library struct {
	Soname  string
	Prefix  string   // of version nodes: IBVERBS
	Nodes   []string // public nodes, oldest first; each inherits from the one before it
	Private []string // nodes that belong to one release and inherit nothing
	Symbols []Symbol
}

// A Symbol is one exported name.
type Symbol struct {
	Name    string
	Default string   // the node of name@@NODE; "" if there is none
	Same    []string // nodes of hidden versions that are the same function
	Old     []string // nodes of hidden versions that are stubs
	Returns Answer
	By      string // engine, c or none
	Note    string
}

// Answer is what a stub of a symbol returns.
type Answer string

// The answers. A Data symbol is a variable: data1 has one byte.
const (
	Errno    Answer = "errno"
	MinusOne Answer = "-1"
	Null     Answer = "NULL"
	Zero     Answer = "0"
	Void     Answer = "void"
	data     string = "data"
)

// DataSize returns the size of a variable in bytes, and 0 for a function.
func (a Answer) DataSize() int {
	if n, ok := strings.CutPrefix(string(a), data); ok {
		size, _ := strconv.Atoi(n)
		return size
	}
	return 0
}

// Versioned returns all versions of the symbol as nm prints them: ibv_open_device@@IBVERBS_1.1.
func (s *Symbol) Versioned() []string {
	var list []string
	if s.Default != "" {
		list = append(list, s.Name+"@@"+s.Default)
	}
	for _, node := range slices.Concat(s.Same, s.Old) {
		list = append(list, s.Name+"@"+node)
	}
	return list
}

// Ibverbs returns the table of libibverbs.so.1.
func Ibverbs() *Library { return table(symbols) }

// Rdmacm returns the table of librdmacm.so.1.
func Rdmacm() *Library { return table(symbolsRdmacm) }

// Ibumad returns the table of libibumad.so.3.
func Ibumad() *Library { return table(symbolsIbumad) }

// Libraries returns all tables.
func Libraries() []*Library { return []*Library{Ibverbs(), Rdmacm(), Ibumad()} }

func table(text string) *Library {
	l, err := Parse(text)
	if err != nil {
		panic(err) // the text is part of the program, and a test reads it
	}
	return l
}

// Parse reads a table.
func Parse(text string) (*Library, error) {
	l := &Library{}
	for i, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if err := l.line(f); err != nil {
			return nil, fmt.Errorf("symbols.txt:%d: %w", i+1, err)
		}
	}
	return l, nil
}

func (l *Library) line(f []string) error {
	switch f[0] {
	case "library":
		if len(f) != 3 {
			return fmt.Errorf("library: %d fields: must be 3", len(f))
		}
		l.Soname, l.Prefix = f[1], f[2]
	case "nodes":
		for _, short := range f[1:] {
			if short[0] == 'P' {
				l.Private = append(l.Private, l.node(short))
			} else {
				l.Nodes = append(l.Nodes, l.node(short))
			}
		}
	default:
		s, err := l.symbol(f)
		if err != nil {
			return err
		}
		l.Symbols = append(l.Symbols, s)
	}
	return nil
}

// node returns the long name of a node: IBVERBS_1.1 for 1.1, IBVERBS_PRIVATE_34 for P34.
func (l *Library) node(short string) string {
	if n, ok := strings.CutPrefix(short, "P"); ok {
		return l.Prefix + "_PRIVATE_" + n
	}
	return l.Prefix + "_" + short
}

func (l *Library) symbol(f []string) (Symbol, error) {
	if len(f) < 4 {
		return Symbol{}, fmt.Errorf("%s: %d fields: must be name, versions, returns, by", f[0], len(f))
	}
	s := Symbol{Name: f[0], Returns: Answer(f[2]), By: f[3], Note: strings.Join(f[4:], " ")}
	for _, v := range strings.Split(f[1], ",") {
		node := l.node(strings.TrimLeft(v, "=!"))
		if !slices.Contains(l.Nodes, node) && !slices.Contains(l.Private, node) {
			return s, fmt.Errorf("%s: version %q: must be one of the nodes", s.Name, v)
		}
		switch v[0] {
		case '=':
			s.Same = append(s.Same, node)
		case '!':
			s.Old = append(s.Old, node)
		default:
			s.Default = node
		}
	}
	if s.Returns.DataSize() == 0 && !slices.Contains([]Answer{Errno, MinusOne, Null, Zero, Void}, s.Returns) {
		return s, fmt.Errorf("%s: answer %q: must be errno, -1, NULL, 0, void or dataN", s.Name, s.Returns)
	}
	if !slices.Contains([]string{"engine", "c", "none"}, s.By) {
		return s, fmt.Errorf("%s: by %q: must be engine, c or none", s.Name, s.By)
	}
	return s, nil
}
