package transcript

import (
	"bytes"
	"errors"
	"testing"
)

func TestDifference(t *testing.T) {
	want, got := "a\nb\nc\nd\ne\nf\ng\n", "a\nb\nc\nd\ne\nX\ng\n"
	if d := difference(want, got); d != "want:\nb\nc\nd\ne\nf\ng\n\ngot:\nb\nc\nd\ne\nX\ng\n" {
		t.Errorf("%q", d)
	}
	if d := difference("a", "a\nb"); d != "want:\na\ngot:\na\nb" {
		t.Errorf("an additional line: %q", d)
	}
}

// Old effects are replaced by those of the commands; comments and empty lines stay.
func TestRunCase(t *testing.T) {
	var out bytes.Buffer
	do := func(cmd string, args []string) ([]string, error) {
		if cmd != "add" || len(args) != 2 {
			return nil, errors.New("unknown command")
		}
		return []string{args[0] + "+" + args[1]}, nil
	}
	runCase(t, do, "file", 0, []string{"case A", "# comment", "add 1 2", "  old", "", "add 3 4"}, &out)
	if want := "case A\n# comment\nadd 1 2\n  1+2\n\nadd 3 4\n  3+4\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}
