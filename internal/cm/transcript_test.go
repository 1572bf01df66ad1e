package cm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transcript"
)

// TestTranscripts executes testdata/*.txt: commands for one machine and their effects, which are sent datagrams (>),
// events and errors. testdata/README.md lists the commands.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, func(t *testing.T) transcript.Do {
		s := newStage(t)
		return func(cmd string, words []string) ([]string, error) {
			a := parseArgs(words)
			s.log = nil
			err := s.do(cmd, a)
			if err == nil && len(a.pairs) > 0 {
				err = fmt.Errorf("unused arguments %v", a.pairs)
			}
			return s.log, err
		}
	})
}

// args are the words of a command and its name=value pairs. A use removes a pair. An invalid value panics.
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

// is reports whether the words contain word.
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

// num returns a decimal number, hex a hexadecimal one.
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

// bytes returns a text, or a repeated one: x*93.
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
