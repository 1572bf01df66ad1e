package rdmashow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func runTop(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[-d SECONDS] [-n TIMES] [DEVICE]")
	delay := f.Float64P("delay", "d", 1, "seconds between two looks, at least 0.1")
	times := f.IntP("iterations", "n", 0, "end after so many tables; 0 goes on until q or Ctrl-C")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	switch {
	case !(*delay >= 0.1 && *delay <= 3600):
		return f.Misused(fmt.Sprintf("delay %v: 0.1 to 3600 seconds", *delay))
	case *times < 0:
		return f.Misused(fmt.Sprintf("%d iterations: 0 or more", *times))
	case f.NArg() > 1:
		return f.Misused(fmt.Sprintf("superfluous arguments %q; one device can be named", f.Args()[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(time.Duration(*delay * float64(time.Second)))
	defer tick.Stop()
	t := &topper{viewer: viewer{host: &system{}}, out: env.Stdout, device: f.Arg(0), times: *times, ticks: tick.C, now: time.Now, done: ctx.Done()}
	defer t.screen()()
	if err := t.run(); err != nil && !errors.Is(err, syscall.EPIPE) {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

// topper shows the QPs again and again.
type topper struct {
	viewer
	out    io.Writer
	device string // empty for all
	times  int    // tables to show, 0 for no end
	ticks  <-chan time.Time
	now    func() time.Time
	done   <-chan struct{}
	keys   <-chan byte              // nil if nobody can press any
	size   func() (width, rows int) // of the screen; nil if the output is none
}

// screen makes use of a terminal, if the output is one: each table takes the place of the last one, and q ends. The result undoes it.
func (t *topper) screen() (restore func()) {
	out, ok := t.out.(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return func() {}
	}
	t.size = func() (int, int) {
		width, rows, err := term.GetSize(int(out.Fd()))
		if err != nil || width <= 0 || rows <= 0 {
			return 80, 24
		}
		return width, rows
	}
	in := int(os.Stdin.Fd())
	old, err := term.MakeRaw(in)
	if err != nil {
		return func() {} // the input is no terminal: Ctrl-C ends it
	}
	keys := make(chan byte)
	t.keys = keys
	go func() {
		for b := make([]byte, 1); ; {
			if n, err := os.Stdin.Read(b); n == 0 || err != nil {
				return
			}
			keys <- b[0]
		}
	}()
	return func() { _ = term.Restore(in, old) }
}

func (t *topper) run() error {
	last, _, err := t.look()
	if err != nil {
		return err
	}
	for n := 0; t.times == 0 || n < t.times; n++ {
		if !t.wait() {
			return nil
		}
		now, rows, err := t.look()
		if err != nil {
			return err
		}
		if err := t.show(rows, now, last); err != nil {
			return err
		}
		last = now
	}
	return nil
}

// wait returns false if it is over.
func (t *topper) wait() bool {
	const ctrlC = 3
	for {
		select {
		case <-t.done:
			return false
		case <-t.ticks:
			return true
		case k := <-t.keys:
			if k == 'q' || k == 'Q' || k == ctrlC {
				return false
			}
		}
	}
}

// key is a QP of a process.
type key struct {
	pid int
	dev string
	qpn uint32
}

// sample is what a QP has counted.
type sample struct{ tx, rx, again, refused uint64 }

// look is all QPs at a time.
type look struct {
	at  time.Time
	qps map[key]sample
}

type qpRow struct {
	key
	comm, kind, state, peer string
	dest                    uint32
	rate                    [4]float64 // of a sample, per second
}

// look reads all QPs.
func (t *topper) look() (look, []qpRow, error) {
	list, err := t.gather(false, t.device)
	if err != nil {
		return look{}, nil, err
	}
	l := look{t.now(), make(map[key]sample)}
	var rows []qpRow
	for _, d := range list {
		for _, u := range d.users {
			for _, q := range u.dev.QPs {
				var s sample
				for _, c := range q.Counters {
					switch c.Name {
					case "tx_data_bytes":
						s.tx = c.Value
					case "rx_data_bytes":
						s.rx = c.Value
					case "retransmit_packets":
						s.again = c.Value
					case "send_rnr_err", "rcvd_rnr_err", "out_of_sequence", "packet_seq_err":
						s.refused += c.Value
					}
				}
				k := key{u.pid, d.name, q.Num}
				l.qps[k] = s
				rows = append(rows, qpRow{key: k, comm: u.comm, kind: q.Type, state: q.State, peer: q.Peer, dest: q.Dest})
			}
		}
	}
	return l, rows, nil
}

// rate is what a QP has counted per second since the last look. One that was not there then has no rate yet; one that
// counts less than then is another of the same number.
func rate(k key, now, last look) (r [4]float64) {
	b := now.qps[k]
	a, known := last.qps[k]
	t := now.at.Sub(last.at).Seconds()
	if !known || t <= 0 {
		return r
	}
	if b.tx < a.tx || b.rx < a.rx || b.again < a.again || b.refused < a.refused {
		a = sample{}
	}
	for i, n := range []uint64{b.tx - a.tx, b.rx - a.rx, b.again - a.again, b.refused - a.refused} {
		r[i] = float64(n) / t
	}
	return r
}

// show prints a table, the busiest QPs first. On a screen it takes the place of the last one and is cut to fit.
func (t *topper) show(rows []qpRow, now, last look) error {
	for i := range rows {
		rows[i].rate = rate(rows[i].key, now, last)
	}
	slices.SortStableFunc(rows, func(a, b qpRow) int { return cmp.Compare(b.rate[0]+b.rate[1], a.rate[0]+a.rate[1]) })
	lines := table(rows, now.at)
	for _, s := range t.host.silent() {
		lines = append(lines, fmt.Sprintf("%s: %v", s.Name, s.Err))
	}
	if t.size == nil {
		_, err := io.WriteString(t.out, strings.Join(lines, "\n")+"\n")
		return err
	}
	width, height := t.size()
	if n := len(lines); n > height-1 {
		lines = append(lines[:max(1, height-2)], fmt.Sprintf("... %d more", n-max(1, height-2)))
	}
	for i, l := range lines {
		if r := []rune(l); len(r) > width {
			lines[i] = string(r[:width])
		}
	}
	_, err := io.WriteString(t.out, "\x1b[H\x1b[2J"+strings.Join(lines, "\r\n")+"\r\n")
	return err
}

func table(rows []qpRow, at time.Time) []string {
	lines := []string{fmt.Sprintf("%d QPs, %s", len(rows), at.Format(time.TimeOnly))}
	if len(rows) == 0 {
		return append(lines, "No program of this user has a QP.")
	}
	lines = append(lines, fmt.Sprintf("%7s %-15s %-12s %8s %-4s %-5s %-24s %10s %10s %9s %9s",
		"PID", "COMMAND", "DEVICE", "QP", "TYPE", "STATE", "PEER", "TX MB/s", "RX MB/s", "AGAIN/s", "NAK/s"))
	for _, r := range rows {
		peer := r.peer
		if peer != "" && r.dest != 0 {
			peer += fmt.Sprintf(" 0x%06x", r.dest)
		}
		lines = append(lines, printable(fmt.Sprintf("%7d %-15.15s %-12.12s 0x%06x %-4s %-5s %-24s %10.2f %10.2f %9.1f %9.1f",
			r.pid, r.comm, r.dev, r.qpn, r.kind, r.state, peer, r.rate[0]/1e6, r.rate[1]/1e6, r.rate[2], r.rate[3])))
	}
	return lines
}
