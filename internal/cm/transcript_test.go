package cm

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the transcripts under testdata with what happens now; review the difference by eye")

// TestTranscripts plays testdata/*.txt. A transcript is a list of commands for one machine; what each of them
// causes stands below it, indented by two spaces: datagrams out (>), events, errors. testdata/README.md lists the commands.
func TestTranscripts(t *testing.T) {
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
			got := playFile(t, file, string(want))
			if *update && !t.Failed() && !bytes.Equal(want, got) {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// playFile plays every case of a transcript and returns the file as it should be.
func playFile(t *testing.T, file, text string) []byte {
	head, rest, ok := strings.Cut("\n"+text, "\ncase ")
	if !ok {
		t.Fatalf("%s has no case", file)
	}
	out := bytes.NewBufferString(strings.TrimPrefix(head+"\n", "\n"))
	for c := range strings.SplitSeq(rest, "\ncase ") {
		c = "case " + strings.TrimSuffix(c, "\n") + "\n"
		if out.Len() > 0 && !strings.HasSuffix(out.String(), "\n\n") {
			out.WriteByte('\n')
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(c, "case "), "\n")
		t.Run(name, func(t *testing.T) {
			got := playCase(t, file, strings.Split(strings.TrimRight(c, "\n"), "\n"))
			out.WriteString(got)
			if want := strings.TrimRight(c, "\n") + "\n"; got != want && !*update {
				t.Errorf("%s: the case does not play as written\n%s", file, firstDifference(want, got))
			}
		})
	}
	return out.Bytes()
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := 0; ; i++ {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			from := max(0, i-4)
			return "written:\n" + strings.Join(w[from:min(len(w), i+4)], "\n") +
				"\nplayed:\n" + strings.Join(g[from:min(len(g), i+4)], "\n")
		}
	}
}

func playCase(t *testing.T, file string, lines []string) string {
	s := newStage(t)
	var out strings.Builder
	for i, l := range lines {
		if strings.HasPrefix(l, "  ") {
			continue
		}
		out.WriteString(l + "\n")
		words := strings.Fields(l)
		if i == 0 || len(words) == 0 || words[0][0] == '#' {
			continue
		}
		a := parseArgs(words[1:])
		if err := s.do(words[0], a); err != nil {
			t.Fatalf("%s: %s: %v", file, l, err)
		}
		if len(a.pairs) > 0 {
			t.Fatalf("%s: %s: %v is not used", file, l, a.pairs)
		}
		for _, o := range s.log {
			out.WriteString("  " + o + "\n")
		}
		s.log = s.log[:0]
	}
	return out.String()
}

// args are a command's words and its name=value pairs, which are taken out as they are used. What cannot be parsed panics: it is a test.
type args struct {
	words []string
	pairs map[string]string
}

func parseArgs(list []string) *args {
	a := &args{pairs: map[string]string{}}
	for _, w := range list {
		if k, v, ok := strings.Cut(w, "="); ok {
			a.pairs[k] = v
		} else {
			a.words = append(a.words, w)
		}
	}
	return a
}

func (a *args) word(i int) string {
	if i >= len(a.words) {
		return ""
	}
	return a.words[i]
}

// is tells whether a word is among them.
func (a *args) is(word string) bool {
	for _, w := range a.words {
		if w == word {
			return true
		}
	}
	return false
}

func (a *args) str(key, def string) string {
	v, ok := a.pairs[key]
	if !ok {
		return def
	}
	delete(a.pairs, key)
	return v
}

// num is a decimal number, hex a hexadecimal one.
func (a *args) num(key string, def uint64) uint64 { return a.number(key, def, 10) }
func (a *args) hex(key string, def uint64) uint64 { return a.number(key, def, 16) }

func (a *args) number(key string, def uint64, base int) uint64 {
	v := a.str(key, "")
	if v == "" {
		return def
	}
	n, err := strconv.ParseUint(v, base, 64)
	if err != nil {
		panic(fmt.Sprintf("%s=%s: %v", key, v, err))
	}
	return n
}

// bytes is a text, or a character and how often: x*93.
func (a *args) bytes(key string) []byte {
	v := a.str(key, "")
	if c, n, ok := strings.Cut(v, "*"); ok {
		count, err := strconv.Atoi(n)
		if err != nil {
			panic(err)
		}
		return bytes.Repeat([]byte(c), count)
	}
	return []byte(v)
}
