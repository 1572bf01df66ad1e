package abi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// versioned returns all versions of all names, as nm prints them.
func versioned(l *Library) []string {
	var all []string
	for i := range l.Symbols {
		all = append(all, l.Symbols[i].Versioned()...)
	}
	return all
}

// names reads a list of names from testdata.
func names(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// debian12*.txt and debian13*.txt are what nm prints of the libraries of Debian 12 (44.0-2) and 13 (56.1-1).
func TestTablesHaveEveryNameOfDebian(t *testing.T) {
	for _, release := range []string{"debian12", "debian13"} {
		for file, l := range map[string]*Library{".txt": Ibverbs(), "-rdmacm.txt": Rdmacm(), "-ibumad.txt": Ibumad()} {
			all := versioned(l)
			for _, name := range names(t, release+file) {
				if !slices.Contains(all, name) {
					t.Errorf("%s: %s of %s is missing", l.Soname, name, release)
				}
			}
		}
	}
}

// release65.txt has the names and nodes of rdma-core 65, in which no version is marked as the default one.
func TestTableHasEveryNameOfRelease65(t *testing.T) {
	var all []string
	for _, name := range versioned(Ibverbs()) {
		all = append(all, strings.Replace(name, "@@", "@", 1))
	}
	for _, name := range names(t, "release65.txt") {
		if !slices.Contains(all, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestTableNamesNothingTwice(t *testing.T) {
	seen := map[string]bool{}
	var all []string
	for _, l := range Libraries() {
		all = append(all, versioned(l)...)
	}
	for _, name := range all {
		if plain := strings.Replace(name, "@@", "@", 1); seen[plain] {
			t.Errorf("%s is there twice", plain)
		} else {
			seen[plain] = true
		}
	}
}

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	for name, text := range Files() {
		old, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil || string(old) != text {
			t.Errorf("%s is not up to date: run go run ./cabi/abi/gen -w", name)
		}
	}
}

// The linker makes hidden versions local if their node has "local: *".
func TestLocalNamesStandInANodeWithoutHiddenVersions(t *testing.T) {
	l := Ibverbs()
	last := l.Nodes[len(l.Nodes)-1]
	for i := range l.Symbols {
		if s := &l.Symbols[i]; slices.Contains(slices.Concat(s.Same, s.Old), last) {
			t.Errorf("%s has a hidden version in %s", s.Name, last)
		}
	}
	if n := strings.Count(l.Map(), "local:"); n != 1 {
		t.Errorf("%d local sections: must be 1", n)
	}
}

func TestParseNamesTheFaultyLine(t *testing.T) {
	const head = "library l.so L\nnodes 1.0 P1\n"
	for _, c := range []struct{ text, want string }{
		{"library l.so", "library: 2 fields: must be 3"},
		{head + "f 1.0 errno", "f: 3 fields"},
		{head + "f 2.0 errno c", `version "2.0"`},
		{head + "f 1.0 never c", `answer "never"`},
		{head + "f 1.0 data c", `answer "data"`},
		{head + "f 1.0 errno you", `by "you"`},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v: must contain %q", c.text, err, c.want)
		}
	}
	l, err := Parse(head + "# comment\nf 1.0,=P1,!1.0 errno c a note\nv P1 data8 none")
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Symbols[0].Versioned(); !slices.Equal(got, []string{"f@@L_1.0", "f@L_PRIVATE_1", "f@L_1.0"}) {
		t.Errorf("versions %v", got)
	}
	if l.Symbols[0].Note != "a note" || l.Symbols[1].Returns.DataSize() != 8 {
		t.Errorf("read %+v", l.Symbols)
	}
}
