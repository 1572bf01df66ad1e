package main

import "testing"

// TestLinesAfter: the log of a kernel loses its oldest lines, in the middle of a line as its reader sees it.
func TestLinesAfter(t *testing.T) {
	const a, b, c = "[    1.5] rxe0: Port speed is unknown, defaulting to 1000", "[    2.5] oops", "[    3.5] done"
	for _, x := range []struct{ log, line, want string }{
		{a + "\n" + b + "\n", "", a + "\n" + b + "\n"},
		{a + "\n" + b + "\n", a, b + "\n"},
		{a + "\n" + b + "\n", b, ""},
		{b + "\n" + c + "\n", a, b + "\n" + c + "\n"}, // a is gone
		{b + "\n" + c + "\n", b, c + "\n"},
	} {
		if got := linesAfter(x.log, x.line); got != x.want {
			t.Errorf("after %q: %q, want %q", x.line, got, x.want)
		}
	}
	if got := lastLine(a + "\n" + b + "\n"); got != b {
		t.Errorf("last line %q", got)
	}
	if err := complaints(linesAfter(a+"\n"+a+"\n", "")); err != nil {
		t.Error(err)
	}
	if complaints(b) == nil {
		t.Error("an oops is harmless")
	}
}
