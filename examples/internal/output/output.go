// Package output captures what an example prints, for its test. It owns nothing and imports the standard library only.
package output

import (
	"io"
	"os"
	"testing"
)

// Of returns the text that f writes to the standard output. A test that uses it must not run in parallel with others,
// and f must not write more than a pipe holds, 64 KiB.
func Of(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	f()
	os.Stdout = stdout
	_ = w.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
