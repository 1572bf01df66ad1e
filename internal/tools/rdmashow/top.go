package rdmashow

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func runTop(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[-d SECONDS] [-n TIMES] [DEVICE]")
	delay := f.Float64P("delay", "d", 1, "seconds between two looks, at least 0.1")
	times := f.IntP("iterations", "n", 0, "end after so many looks; 0 goes on until Ctrl-C")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if *delay < 0.1 {
		return f.Misused(fmt.Sprintf("delay %v: at least 0.1 seconds", *delay))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tick := time.NewTicker(time.Duration(*delay * float64(time.Second)))
	defer tick.Stop()
	var last map[key]sample
	for n := 0; *times == 0 || n <= *times; n++ {
		now, rows, err := look(f.Arg(0))
		if err != nil {
			return env.Failf("%s: %v", env.Argv0, err)
		}
		if last != nil {
			show(env.Stdout, rows, now, last, *times == 0)
		}
		last = now
		select {
		case <-ctx.Done():
			return 0
		case <-tick.C:
		}
	}
	return 0
}

// key is a QP of a process.
type key struct {
	pid int
	dev string
	qpn uint32
}

type sample struct {
	at                     time.Time
	tx, rx, again, refused uint64
}

type qpRow struct {
	key
	comm, kind, state, peer string
	dest                    uint32
}

// look reads all QPs.
func look(only string) (map[key]sample, []qpRow, error) {
	list, err := gather(only)
	if err != nil {
		return nil, nil, err
	}
	now := make(map[key]sample)
	var rows []qpRow
	for _, d := range list {
		for _, u := range d.users {
			for _, q := range u.dev.QPs {
				k := key{u.pid, d.Name, q.Num}
				s := sample{at: time.Now()}
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
				now[k] = s
				rows = append(rows, qpRow{k, u.comm, q.Type, q.State, q.Peer, q.Dest})
			}
		}
	}
	return now, rows, nil
}

// show prints a table, the busiest QPs first. With clear it takes the place of the last one.
func show(w io.Writer, rows []qpRow, now, last map[key]sample, clear bool) {
	rate := func(k key) (tx, rx, again, refused float64) {
		a, b := last[k], now[k]
		t := b.at.Sub(a.at).Seconds()
		if a.at.IsZero() || t <= 0 {
			return
		}
		per := func(b, a uint64) float64 { return float64(b-a) / t }
		return per(b.tx, a.tx), per(b.rx, a.rx), per(b.again, a.again), per(b.refused, a.refused)
	}
	slices.SortStableFunc(rows, func(a, b qpRow) int {
		ta, ra, _, _ := rate(a.key)
		tb, rb, _, _ := rate(b.key)
		return int(max(-1, min(1, tb+rb-ta-ra)))
	})
	if clear {
		fmt.Fprint(w, "\x1b[H\x1b[2J")
	}
	fmt.Fprintf(w, "%d QPs, %s\n", len(rows), time.Now().Format(time.TimeOnly))
	fmt.Fprintf(w, "%7s %-15s %-12s %8s %-4s %-5s %-24s %10s %10s %9s %9s\n",
		"PID", "COMMAND", "DEVICE", "QP", "TYPE", "STATE", "PEER", "TX MB/s", "RX MB/s", "AGAIN/s", "NAK/s")
	for _, r := range rows {
		tx, rx, again, refused := rate(r.key)
		peer := ""
		if r.peer != "" {
			peer = fmt.Sprintf("%s 0x%06x", r.peer, r.dest)
		}
		fmt.Fprintf(w, "%7d %-15.15s %-12.12s 0x%06x %-4s %-5s %-24s %10.2f %10.2f %9.1f %9.1f\n",
			r.pid, r.comm, r.dev, r.qpn, r.kind, r.state, peer, tx/1e6, rx/1e6, again, refused)
	}
}
