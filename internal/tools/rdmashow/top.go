package rdmashow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/printable"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func runTop(env *tool.Env, args []string) int { return top(env, &system{}, args) }

// top is runTop for the devices and programs of a host.
func top(env *tool.Env, h host, args []string) int {
	f := tool.NewFlags(env, "[-d SECONDS] [-n TIMES] [DEVICE]")
	delay := f.Float64P("delay", "d", 1, "seconds between two tables, at least 0.1")
	times := f.IntP("iterations", "n", 0, "end after this many tables; 0: at q or Ctrl-C")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	switch {
	case !(*delay >= 0.1 && *delay <= 3600):
		return f.Misused(fmt.Sprintf("delay %v: must be 0.1 to 3600 seconds", *delay))
	case *times < 0:
		return f.Misused(fmt.Sprintf("iterations %d: must be at least 0", *times))
	case f.NArg() > 1:
		return f.Misused(fmt.Sprintf("unexpected arguments %q: at most one device", f.Args()[1:]))
	}
	tick := time.NewTicker(time.Duration(*delay * float64(time.Second)))
	defer tick.Stop()
	t := &topper{viewer: viewer{host: h}, out: env.Stdout, device: f.Arg(0), times: *times, ticks: tick.C, now: time.Now}
	if err := t.runHere(); err != nil && !errors.Is(err, syscall.EPIPE) {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

// topper shows the QPs repeatedly.
type topper struct {
	viewer
	out    io.Writer
	device string // empty for all
	times  int    // number of tables, 0: no limit
	ticks  <-chan time.Time
	now    func() time.Time
	done   <-chan struct{}
	screen // zero if the output is not a terminal

	rows []qpRow // the last table
	at   time.Time
}

// runHere runs until the user or a signal ends it, and restores the terminal.
func (t *topper) runHere() error {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if t.open(t.out) {
		defer t.restore()
		ends = append(ends, syscall.SIGHUP, syscall.SIGQUIT)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	t.done = ctx.Done()
	return t.run()
}

func (t *topper) run() error {
	last, rows, err := t.look()
	if err != nil {
		return err
	}
	if t.size != nil { // the screen would be empty until the first rates
		if err := t.show(rows, last, last); err != nil {
			return err
		}
	}
	for n := 0; t.times == 0 || n < t.times; n++ {
		if more, err := t.wait(); !more {
			return err
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

// wait returns true when the next table is due, and false when the program is to end.
func (t *topper) wait() (more bool, err error) {
	const ctrlC, ctrlZ = 3, 26
	for err == nil {
		select {
		case <-t.done:
			return false, nil
		case <-t.ticks:
			return true, nil
		case k := <-t.keys:
			switch k {
			case 'q', 'Q', ctrlC:
				return false, nil
			case ctrlZ:
				t.suspend()
			}
		case <-t.changes:
			t.raw()
			err = t.print()
		}
	}
	return false, err
}

// key identifies a QP of a process.
type key struct {
	program string // user.id
	dev     string
	qpn     uint32
}

// sample has the counters of a QP.
type sample struct{ tx, rx, again, refused uint64 }

// look has the counters of all QPs at one time.
type look struct {
	at  time.Time
	qps map[key]sample
}

type qpRow struct {
	key
	pid                     int
	comm, kind, state, peer string
	dest                    uint32
	rate                    [4]float64 // of the sample's fields, per second
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
				k := key{u.id, d.name, q.Num}
				l.qps[k] = s
				rows = append(rows,
					qpRow{key: k, pid: u.pid, comm: u.comm, kind: q.Type, state: q.State, peer: q.Peer, dest: q.Dest})
			}
		}
	}
	return l, rows, nil
}

// rate returns the counters' rates per second since the last look. They are 0 for a new QP. One
// whose counters are smaller than before is another QP with the same number, whose counters began at 0 since then.
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

// show prints a table, the busiest QPs first.
func (t *topper) show(rows []qpRow, now, last look) error {
	for i := range rows {
		rows[i].rate = rate(rows[i].key, now, last)
	}
	slices.SortStableFunc(rows, func(a, b qpRow) int { return cmp.Compare(b.rate[0]+b.rate[1], a.rate[0]+a.rate[1]) })
	t.rows, t.at = rows, now.at
	return t.print()
}

// print prints the last table. On a screen it replaces the table before, cut to fit.
func (t *topper) print() error {
	width, height := math.MaxInt, 0
	if t.size != nil {
		width, height = t.size()
	}
	lines := table(t.rows, t.at, width)
	for _, s := range t.host.silent() {
		lines = append(lines, fmt.Sprintf("%s: %s", printable.Text(s.Name), printable.Lines(s.Err.Error())))
	}
	if t.size != nil {
		return t.paint(lines, width, height)
	}
	_, err := io.WriteString(t.out, strings.Join(lines, "\n")+"\n")
	return err
}

// paint fills a screen.
func (t *topper) paint(lines []string, width, height int) error {
	if n := len(lines); n > height-1 {
		lines = append(lines[:max(1, height-2)], fmt.Sprintf("... %d more", n-max(1, height-2)))
	}
	const home, eraseLine, eraseRest = "\x1b[H", "\x1b[2K", "\x1b[J"
	b := []byte(home)
	for _, l := range lines {
		if r := []rune(l); len(r) > width {
			l = string(r[:width])
		}
		b = append(b, eraseLine+l+"\r\n"...)
	}
	_, err := t.out.Write(append(b, eraseRest...))
	return err
}
