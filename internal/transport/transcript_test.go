package transport

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/transcript"
)

// TestTranscripts executes testdata/*.txt: commands for one QP and their effects, which are sent packets (>),
// completions, events and state changes. testdata/README.md lists the commands.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, func(t *testing.T) transcript.Do {
		s := newStage(t)
		return func(cmd string, args []string) ([]string, error) {
			s.log = nil
			err := s.do(cmd, args)
			return s.log, err
		}
	})
}

// doLine executes the command of one line.
func (s *stage) doLine(line string) error {
	words := strings.Fields(line)
	return s.do(words[0], words[1:])
}

// do executes one command.
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

// args are a command's words and name=value pairs. Malformed numbers panic: it is a test.
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

// parseData parses payload: pieces joined by commas, each a text or CHARACTER*COUNT.
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

// dataText is the inverse of parseData; long data is shown as its CRC.
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
