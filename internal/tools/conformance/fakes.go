package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// A type of a test that opens like a device has one of these comments. With fakeMark it stands for a driver, and what
// runs on it shows nothing of a device. With deviceMark it passes on to one of our devices.
const (
	fakeMark   = "//conformance:fake"
	deviceMark = "//conformance:device"
)

// uses is what the declarations of a folder's test files refer to.
type uses struct {
	of   map[string]map[string]bool // by name
	fake map[string]bool            // types with fakeMark
}

// usesOf follows names, not types: it takes a local name for a declaration of the same name, and so rather finds too
// many tests on a fake driver than too few.
func usesOf(files []*ast.File) (*uses, error) {
	u := &uses{map[string]map[string]bool{}, map[string]bool{}}
	marked := map[string]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			u.add(d, marked)
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if name := declared(d); opensDevice(d) && !marked[name] {
				return nil, fmt.Errorf("type %s opens like a device: it needs the comment %s or %s", name, fakeMark, deviceMark)
			}
		}
	}
	return u, nil
}

func (u *uses) add(d ast.Decl, marked map[string]bool) {
	if g, ok := d.(*ast.GenDecl); ok {
		for _, s := range g.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				u.refer(s.Name.Name, s)
				for _, doc := range []*ast.CommentGroup{g.Doc, s.Doc} {
					u.fake[s.Name.Name] = u.fake[s.Name.Name] || has(doc, fakeMark)
					marked[s.Name.Name] = marked[s.Name.Name] || has(doc, fakeMark) || has(doc, deviceMark)
				}
			case *ast.ValueSpec:
				for _, id := range s.Names {
					u.refer(id.Name, s)
				}
			}
		}
		return
	}
	u.refer(declared(d), d)
}

func has(doc *ast.CommentGroup, mark string) bool {
	if doc == nil {
		return false
	}
	return slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, mark) })
}

// refer adds the names in a declaration. Names of fields and methods do not count.
func (u *uses) refer(name string, n ast.Node) {
	if u.of[name] == nil {
		u.of[name] = map[string]bool{}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			ast.Inspect(n.X, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					u.of[name][id.Name] = true
				}
				return true
			})
			return false
		case *ast.Ident:
			u.of[name][n.Name] = true
		}
		return true
	})
}

// opensDevice reports whether a declaration is the method of a driver's device that opens it.
func opensDevice(d ast.Decl) bool {
	fn, ok := d.(*ast.FuncDecl)
	return ok && fn.Recv != nil && fn.Name.Name == "Open" && len(fn.Type.Params.List) == 1 &&
		typeName(fn.Type.Params.List[0].Type) == "DriverContextEvents"
}

// reaches reports whether a declaration refers to a fake driver, directly or through others.
func (u *uses) reaches(name string, seen map[string]bool) bool {
	if u.fake[name] {
		return true
	}
	if seen[name] {
		return false
	}
	seen[name] = true
	for other := range u.of[name] {
		if u.of[other] != nil && u.reaches(other, seen) {
			return true
		}
	}
	return false
}

// onFake reports whether a declaration, or all tests that refer to it, run on a fake driver.
func (u *uses) onFake(name string) bool {
	if isTest(name) || u.reaches(name, map[string]bool{}) {
		return u.reaches(name, map[string]bool{})
	}
	found := false
	for test := range u.of {
		if !isTest(test) || !u.refersTo(test, name, map[string]bool{}) {
			continue
		}
		if !u.reaches(test, map[string]bool{}) {
			return false
		}
		found = true
	}
	return found
}

func (u *uses) refersTo(from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for other := range u.of[from] {
		if u.of[other] != nil && u.refersTo(other, to, seen) {
			return true
		}
	}
	return false
}
