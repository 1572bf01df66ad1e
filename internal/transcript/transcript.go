// Package transcript runs the transcripts of tests: files of commands and their expected effects. It imports only the
// standard library.
//
// A file has comments and then cases. A case begins with a line "case NAME"; each further line is a command, a comment
// or empty. The effects of a command follow it, indented by two spaces.
package transcript

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt with the actual effects")

// Do executes one command and returns its effects. Run calls it without comments and empty lines.
type Do func(cmd string, args []string) (effects []string, err error)

// Run executes every case of testdata/*.txt as a subtest of a subtest per file. start prepares a case. A case fails if
// a command returns an error, or if effects differ from those in the file. With the flag -update, Run writes the actual
// effects to the files instead.
func Run(t *testing.T, start func(t *testing.T) Do) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runFile(t, start, file, string(want))
			if *update && !t.Failed() && !bytes.Equal(want, got) {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// runFile executes every case of a file and returns the file with the actual effects.
func runFile(t *testing.T, start func(t *testing.T) Do, file, text string) []byte {
	var out bytes.Buffer
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		name, isCase := strings.CutPrefix(lines[i], "case ")
		if !isCase {
			if l := lines[i]; l != "" && l[0] != '#' {
				t.Fatalf("%s:%d: %q before the first case", file, i+1, l)
			}
			out.WriteString(lines[i] + "\n")
			i++
			continue
		}
		end := i + 1
		for end < len(lines) && !strings.HasPrefix(lines[end], "case ") {
			end++
		}
		t.Run(name, func(t *testing.T) {
			begin := out.Len()
			runCase(t, start(t), file, i, lines[i:end], &out)
			want := strings.Join(lines[i:end], "\n") + "\n"
			if got := out.String()[begin:]; got != want && !*update {
				t.Errorf("%s:%d: the effects differ\n%s", file, i+1, difference(want, got))
			}
		})
		i = end
	}
	return out.Bytes()
}

// runCase executes the commands of a case. line is the number of lines before it in the file.
func runCase(t *testing.T, do Do, file string, line int, lines []string, out *bytes.Buffer) {
	for i, l := range lines {
		if strings.HasPrefix(l, "  ") {
			continue
		}
		out.WriteString(l + "\n")
		words := strings.Fields(l)
		if i == 0 || len(words) == 0 || words[0][0] == '#' {
			continue
		}
		effects, err := do(words[0], words[1:])
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", file, line+i+1, l, err)
		}
		for _, e := range effects {
			out.WriteString("  " + e + "\n")
		}
	}
}

// difference returns the first lines that differ, with some before and after them.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := 0; ; i++ {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			from := max(0, i-4)
			return "want:\n" + strings.Join(w[from:min(len(w), i+4)], "\n") +
				"\ngot:\n" + strings.Join(g[from:min(len(g), i+4)], "\n")
		}
	}
}
