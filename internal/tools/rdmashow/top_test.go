package rdmashow

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// movie is a host with other data at each look.
type movie struct {
	fakeHost
	scenes [][]control.Report
}

func (m *movie) reports(bool) ([]control.Report, error) {
	if len(m.scenes) == 0 {
		return nil, errors.New("the movie is over")
	}
	s := m.scenes[0]
	m.scenes = m.scenes[1:]
	return s, nil
}

// scene returns programs with one QP each; QP number and process number are equal.
func scene(qps ...control.QP) (list []control.Report) {
	for _, q := range qps {
		list = append(list,
			control.Report{PID: int(q.Num), Comm: "prog", Devices: []control.Device{{Name: "vrb_a", QPs: []control.QP{q}}}})
	}
	return list
}

func sent(num uint32, tx, rx, again, naks uint64) control.QP {
	return control.QP{Num: num, Type: "RC", State: "RTS", Peer: "10.0.0.2", Dest: 0x22, Counters: []control.Counter{
		{Name: "tx_data_bytes", Value: tx}, {Name: "rx_data_bytes", Value: rx}, {Name: "retransmit_packets", Value: again},
		{Name: "packet_seq_err", Value: naks}, {Name: "rcvd_rnr_err", Value: naks}, {Name: "sent_pkts", Value: 99},
	}}
}

// play shows a movie with a look every two seconds, and returns the tables.
func play(t *testing.T, scenes [][]control.Report, change func(*topper)) (string, error) {
	t.Helper()
	var out bytes.Buffer
	at := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	ticks := make(chan time.Time, len(scenes))
	for range len(scenes) {
		ticks <- at
	}
	m := &movie{fakeHost: fakeHost{names: []string{"vrb_a"}}, scenes: scenes}
	p := &topper{viewer: viewer{host: m}, out: &out, times: len(scenes) - 1, ticks: ticks}
	p.now = func() time.Time { at = at.Add(2 * time.Second); return at }
	if change != nil {
		change(p)
	}
	err := p.run()
	return out.String(), err
}

const topHead = "    PID COMMAND         DEVICE             QP TYPE STATE PEER                     " +
	"   TX MB/s    RX MB/s   AGAIN/s     NAK/s\n"

// A rate is the difference of two looks divided by the time between them; the busiest QP comes first. A new
// program has no rate yet, an ended one is not shown, and one that reuses another's number begins at 0.
func TestTopRates(t *testing.T) {
	const reused = 9
	out, err := play(t, [][]control.Report{
		scene(sent(7, 1e6, 0, 0, 0), sent(8, 5e6, 3e6, 10, 1), sent(reused, 9e6, 9e6, 50, 50)),
		scene(sent(7, 1e6, 0, 0, 0), sent(8, 9e6, 4e6, 20, 4), sent(reused, 2e6, 0, 0, 0)),
		scene(sent(7, 21e6, 0, 0, 0), sent(11, 8e9, 8e9, 5, 5)),
	}, nil)
	want := "3 QPs, 03:04:04\n" + topHead +
		"      8 prog            vrb_a        0x000008 RC   RTS   10.0.0.2 0x000022        " +
		"      2.00       0.50       5.0       3.0\n" +
		"      9 prog            vrb_a        0x000009 RC   RTS   10.0.0.2 0x000022        " +
		"      1.00       0.00       0.0       0.0\n" +
		"      7 prog            vrb_a        0x000007 RC   RTS   10.0.0.2 0x000022        " +
		"      0.00       0.00       0.0       0.0\n" +
		"2 QPs, 03:04:06\n" + topHead +
		"      7 prog            vrb_a        0x000007 RC   RTS   10.0.0.2 0x000022        " +
		"     10.00       0.00       0.0       0.0\n" +
		"     11 prog            vrb_a        0x00000b RC   RTS   10.0.0.2 0x000022        " +
		"      0.00       0.00       0.0       0.0\n"
	if err != nil || out != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// Programs of several PID namespaces with one process number have rates of their own.
func TestTopOfOtherPIDNamespaces(t *testing.T) {
	look := func(one, two uint64) []control.Report {
		list := scene(sent(1, one, 0, 0, 0), sent(1, two, 0, 0, 0))
		list[0].Elsewhere, list[1].Elsewhere = "65534/1", "65534/1.1"
		list[0].PID, list[1].PID = 0, 0
		return list
	}
	out, err := play(t, [][]control.Report{look(0, 0), look(4e6, 8e6)}, nil)
	if err != nil || !strings.Contains(out, "\n      - prog ") || !strings.Contains(out, "      4.00 ") ||
		!strings.Contains(out, "      2.00 ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Without programs and for an unknown device there is a message.
func TestTopWithoutPrograms(t *testing.T) {
	out, err := play(t, [][]control.Report{nil, nil}, nil)
	if err != nil || out != "0 QPs, 03:04:04\nNo program of this user has a QP.\n" {
		t.Errorf("%v %q", err, out)
	}
	if _, err := play(t, [][]control.Report{nil}, func(p *topper) { p.device = "vrb_b" }); err == nil ||
		!strings.Contains(err.Error(), `no device "vrb_b"; there are vrb_a`) {
		t.Errorf("%v", err)
	}
}

// frames returns the tables that were drawn on a screen.
func frames(t *testing.T, out string) (list [][]string) {
	t.Helper()
	out = strings.ReplaceAll(out, "\r\r", "\r") // a terminal whose input is another file adds its own
	for _, f := range strings.Split(out, "\x1b[H")[1:] {
		body, _, ok := strings.Cut(f, "\r\n\x1b[J")
		if !ok {
			continue // the table is still being drawn
		}
		var lines []string
		for _, l := range strings.Split(body, "\r\n") {
			text, ok := strings.CutPrefix(l, "\x1b[2K")
			if !ok || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("%q in %q", l, out)
			}
			lines = append(lines, text)
		}
		list = append(list, lines)
	}
	return list
}

// fits checks that a table leaves the screen's last line free.
func fits(t *testing.T, lines []string, width, rows int) {
	t.Helper()
	if n := len(lines); n > max(2, rows-1) {
		t.Errorf("%d lines on a screen of %d", n, rows)
	}
	for _, l := range lines {
		if utf8.RuneCountInString(l) > width {
			t.Errorf("%q on a screen of %d columns", l, width)
		}
	}
}

// A screen gets at most as many lines and columns as it has; each table replaces the one before. Other
// outputs get no control characters.
func TestTopScreen(t *testing.T) {
	var many []control.QP
	for i := range uint32(30) {
		many = append(many, sent(100+i, 0, 0, 0, 0))
	}
	for _, size := range [][2]int{{40, 10}, {200, 50}, {1, 1}, {20, 3}} {
		out, err := play(t, [][]control.Report{scene(many...), scene(many...)}, func(p *topper) {
			p.size = func() (int, int) { return size[0], size[1] }
		})
		list := frames(t, out)
		if err != nil || len(list) != 2 { // the first at once, the second with rates
			t.Fatalf("%v %q", err, out)
		}
		for _, lines := range list {
			fits(t, lines, size[0], size[1])
		}
		if last := list[1][len(list[1])-1]; size == [2]int{40, 10} && last != "... 24 more" {
			t.Errorf("the last line is %q", last)
		}
	}
	if out, _ := play(t, [][]control.Report{scene(many...), scene(many...)}, nil); strings.ContainsAny(out, "\x1b\r") ||
		strings.Count(out, "\n") != 32 {
		t.Errorf("%q", out)
	}
}

// A narrow screen shows the rates and the columns that identify a QP.
func TestTopNarrow(t *testing.T) {
	q := sent(7, 3e6, 1e6, 10, 5)
	q.Peer = "fd00:1111:2222:3333:4444:5555:6666:7777"
	const wide = "    PID COMMAND         DEVICE             QP TYPE STATE PEER                     " +
		"                           TX MB/s    RX MB/s   AGAIN/s     NAK/s\n" +
		"      7 prog            vrb_a        0x000007 RC   RTS   fd00:1111:2222:3333:4444:5555:6666:7777 0x000022 " +
		"      1.00       0.00       2.0       1.0"
	for width, want := range map[int]string{
		1000: wide,
		147:  wide,
		146: "    PID COMMAND         DEVICE             QP TYPE STATE    TX MB/s    RX MB/s   AGAIN/s     NAK/s\n" +
			"      7 prog            vrb_a        0x000007 RC   RTS         1.00       0.00       2.0       1.0",
		80: "    PID COMMAND               QP STATE    TX MB/s    RX MB/s   AGAIN/s     NAK/s\n" +
			"      7 prog            0x000007 RTS         1.00       0.00       2.0       1.0",
		40: "    PID       QP    TX MB/s    RX MB/s\n" +
			"      7 0x000007       1.00       0.00",
		1: "      QP    TX MB/s    RX MB/s\n" +
			"0x000007       1.00       0.00",
	} {
		rows := []qpRow{{key: key{"7", "vrb_a", 7}, pid: 7, comm: "prog", kind: "RC", state: "RTS", peer: q.Peer,
			dest: q.Dest,
			rate: [4]float64{1e6, 0, 2, 1}}}
		if got := strings.Join(table(rows, time.Time{}, width)[1:], "\n"); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
}

// q, Q, Ctrl-C and signals end the program, other keys do not.
func TestTopQuits(t *testing.T) {
	for _, k := range "qQ\x03" {
		keys := make(chan byte, 2)
		keys <- 'x'
		keys <- byte(k)
		out, err := play(t, [][]control.Report{nil, nil}, func(p *topper) { p.times, p.keys, p.ticks = 0, keys, nil })
		if err != nil || out != "" {
			t.Errorf("%q: %v %q", k, err, out)
		}
	}
	done := make(chan struct{})
	close(done)
	if out, err := play(t, [][]control.Report{nil, nil},
		func(p *topper) { p.times, p.done, p.ticks = 0, done, nil }); err != nil || out != "" {
		t.Errorf("%v %q", err, out)
	}
}

// The program ends when its output is closed, and after the requested number of tables without a further
// wait.
func TestTopEnds(t *testing.T) {
	_, err := play(t, [][]control.Report{nil, nil, nil}, func(p *topper) { p.times, p.out = 0, brokenPipe{} })
	if !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%v", err)
	}
	one := make(chan time.Time, 1)
	one <- time.Time{}
	out, err := play(t, [][]control.Report{nil, nil}, func(p *topper) { p.ticks = one })
	if err != nil || strings.Count(out, "QPs") != 1 {
		t.Errorf("%v %q", err, out)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A program that does not answer is named below the others.
func TestTopSilent(t *testing.T) {
	out, _ := play(t, [][]control.Report{scene(sent(7, 0, 0, 0, 0)), scene(sent(7, 0, 0, 0, 0))}, func(p *topper) {
		p.host.(*movie).mute = []control.Silent{{Name: "@verbena-control/0/9", Err: errors.New("no answer")}}
	})
	if !strings.HasSuffix(out, "\n@verbena-control/0/9: no answer\n") {
		t.Errorf("%q", out)
	}
}

func TestTopMisused(t *testing.T) {
	for line, want := range map[string]string{
		"-d 0.01": "0.1 to 3600 seconds", "-d NaN": "0.1 to 3600 seconds", "-d 1e9": "0.1 to 3600 seconds",
		"-n -1": "must be at least 0",
		"a b":   "unexpected", "--colour": "unknown option --colour",
	} {
		var o, e bytes.Buffer
		status := runTop(&tool.Env{Argv0: "verbena top", Stdout: &o, Stderr: &e}, strings.Fields(line))
		if status != 1 || !strings.Contains(e.String(), want) {
			t.Errorf("top %s: status %d %s", line, status, e.String())
		}
	}
}
