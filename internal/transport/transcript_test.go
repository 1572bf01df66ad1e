package transport

import (
	"bytes"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the transcripts under testdata with what happens now; review the difference by eye")

// TestTranscripts plays testdata/*.txt. A transcript is a list of commands for one QP; what each of them
// causes stands below it, indented by two spaces: packets out (>), completions, events,
// changes of state. testdata/README.md lists the commands.
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
	var out bytes.Buffer
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		name, isCase := strings.CutPrefix(lines[i], "case ")
		if !isCase {
			if l := lines[i]; l != "" && l[0] != '#' {
				t.Fatalf("%s:%d: %q stands in front of the first case", file, i+1, l)
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
			start := out.Len()
			playCase(t, file, i, lines[i:end], &out)
			want := strings.Join(lines[i:end], "\n") + "\n"
			if got := out.String()[start:]; got != want && !*update {
				t.Errorf("%s:%d: the case does not play as written\n%s", file, i+1, firstDifference(want, got))
			}
		})
		i = end
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

func playCase(t *testing.T, file string, line int, lines []string, out *bytes.Buffer) {
	s := newStage(t)
	for i, l := range lines {
		if strings.HasPrefix(l, "  ") {
			continue
		}
		out.WriteString(l + "\n")
		if i == 0 {
			continue
		}
		if err := s.doLine(l); err != nil {
			t.Fatalf("%s:%d: %s: %v", file, line+i+1, l, err)
		}
		for _, o := range s.log {
			out.WriteString("  " + o + "\n")
		}
		s.log = s.log[:0]
	}
}

// doLine performs the command of one line, if there is one.
func (s *stage) doLine(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 || words[0][0] == '#' {
		return nil
	}
	return s.do(words[0], words[1:])
}

// do performs one command.
func (s *stage) do(cmd string, args []string) error {
	a := parseArgs(args)
	s.args = a
	var err error
	switch cmd {
	case "qp":
		err = s.makeQP(a)
	case "srq":
		s.addSRQ(a)
	case "close":
		s.domain().Remove(s.srqs[a.num("srq", 0)])
	case "region":
		err = s.register(a)
	case "window":
		err = s.bindWindow(a)
	case "unregister":
		err = s.regions.Remove(s.named[a.word(0)])
		delete(s.named, a.word(0))
	case "reregister":
		s.reregister(a)
	case "recv":
		err = s.postRecv(a)
	case "in", "in+":
		if err = s.packetIn(a); err == nil && cmd == "in" {
			s.transmit(1 << 20)
		}
	case "transmit":
		s.transmit(a.num("budget", 1<<20))
	case "mem":
		err = s.showMemory(a)
	case "fill":
		err = s.fillMemory(a)
	case "set":
		setAttrs(&s.qp.attr, a)
	case "modify":
		err = s.modify(a)
	case "reconnect":
		if err = s.qp.Modify(s.now, &Attr{State: Reset}, MaskState); err == nil {
			err = s.connect(RTS)
		}
	case "state":
		s.logf("state %v, expecting psn %s, msn %d", stateName(s.qp.State()), psnText(s.qp.resp.epsn), s.qp.resp.msn)
	case "posted":
		s.logf("%d posted", s.qp.RQ.Posted())
	case "counters":
		s.showCounters()
	case "time":
		var d time.Duration
		if d, err = time.ParseDuration(a.word(0)); err == nil {
			s.now += int64(d)
			if s.qp.Deadline() <= s.now {
				s.qp.OnTimer(s.now)
			}
			s.transmit(1 << 20)
		}
	default:
		err = fmt.Errorf("no such command")
	}
	if err == nil && len(a.unused()) > 0 {
		err = fmt.Errorf("arguments %v are not used", a.unused())
	}
	return err
}

// args are a command's words and its name=value pairs. Numbers that cannot be parsed panic: it is a test.
type args struct {
	words []string
	pairs map[string]string
	used  map[string]bool
}

func parseArgs(list []string) *args {
	a := &args{pairs: map[string]string{}, used: map[string]bool{}}
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

func (a *args) str(key, def string) string {
	a.used[key] = true
	if v, ok := a.pairs[key]; ok {
		return v
	}
	return def
}

func (a *args) has(key string) bool { _, ok := a.pairs[key]; return ok }

func (a *args) num(key string, def int) int {
	v := a.str(key, "")
	if v == "" {
		return def
	}
	return number(v)
}

func (a *args) unused() (list []string) {
	for k := range a.pairs {
		if !a.used[k] {
			list = append(list, k)
		}
	}
	return list
}

func number(s string) int {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		panic(err)
	}
	return int(n)
}

// parseData reads payload: pieces joined by commas, each a text or CHARACTER*COUNT.
func parseData(s string) []byte {
	var b []byte
	for piece := range strings.SplitSeq(s, ",") {
		if len(piece) > 2 && piece[1] == '*' {
			b = append(b, bytes.Repeat([]byte(piece[:1]), number(piece[2:]))...)
		} else {
			b = append(b, piece...)
		}
	}
	return b
}

// dataText is the inverse of parseData; what would be long is shown as its CRC.
func dataText(b []byte) string {
	var pieces []string
	text := ""
	flush := func() {
		if text != "" {
			pieces, text = append(pieces, text), ""
		}
	}
	for i := 0; i < len(b); {
		n := 1
		for i+n < len(b) && b[i+n] == b[i] {
			n++
		}
		c := string(b[i : i+1])
		switch {
		case b[i] == 0:
			flush()
			pieces = append(pieces, "0*"+strconv.Itoa(n))
		case b[i] <= ' ' || b[i] > '~' || b[i] == '*' || b[i] == ',':
			return fmt.Sprintf("%d bytes, crc %08x", len(b), crc32.ChecksumIEEE(b))
		case n > 3:
			flush()
			pieces = append(pieces, c+"*"+strconv.Itoa(n))
		default:
			text += strings.Repeat(c, n)
		}
		i += n
	}
	flush()
	if len(pieces) > 8 {
		return fmt.Sprintf("%d bytes, crc %08x", len(b), crc32.ChecksumIEEE(b))
	}
	return strings.Join(pieces, ",")
}

func psnText(p uint32) string {
	if p >= 0x10000 {
		return fmt.Sprintf("%#x", p)
	}
	return strconv.Itoa(int(p))
}
