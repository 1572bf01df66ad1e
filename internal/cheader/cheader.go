// Package cheader compares numbers with those of the kernel's headers, for tests of structures that are our own. It
// imports the standard library.
package cheader

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Check compares the values of C expressions, such as sizes and offsets, with those that the headers give them. It
// skips the test where there is no C compiler, or not the last header.
func Check(t *testing.T, values map[string]int64, headers ...string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	last := headers[len(headers)-1]
	if _, e := os.Stat(filepath.Join("/usr/include", last)); err != nil || e != nil {
		t.Skipf("no C compiler, or no header %s (linux-libc-dev)", last)
	}
	var src strings.Builder
	for _, h := range append([]string{"stddef.h"}, headers...) {
		fmt.Fprintf(&src, "#include <%s>\n", h)
	}
	for expr, n := range values {
		fmt.Fprintf(&src, "_Static_assert(%s == %d, \"%s\");\n", expr, n, expr)
	}
	file := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(file, []byte(src.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-fsyntax-only", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
