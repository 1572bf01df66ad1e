package ibstat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// unusedPort is a port at which no program listens.
const unusedPort = "1"

// runPing is ibping. The C program sends management datagrams to a LID, which RoCE does not have, and needs a server.
// This one requests a service that nobody offers: the connection manager of each RoCE host refuses it.
func runPing(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options] HOST")
	var count, timeout int
	f.IntVarP(&count, "count", "c", 0, "end after this many requests (default: at Ctrl-C)")
	flood := f.BoolP("flood", "f", false, "do not pause for a second between requests")
	f.IntVarP(&timeout, "timeout", "t", 5000, "wait this many milliseconds for an answer")
	server := f.BoolP("Server", "S", false, "refused: no server is necessary")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	switch {
	case *server:
		return f.Misused("no server is necessary: every host with a RoCE device and a connection manager answers")
	case f.NArg() != 1:
		return f.Misused("one host must be given")
	case count < 0, timeout < 1:
		return f.Misused("-c must be at least 0, and -t at least 1")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := &pinger{env: env, host: f.Arg(0), timeout: time.Duration(timeout) * time.Millisecond}
	for n := 1; ctx.Err() == nil && (count == 0 || n <= count); n++ {
		if n > 1 && !*flood {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				continue
			}
		}
		p.ping(ctx)
	}
	return p.report()
}

// pinger counts answers.
type pinger struct {
	env              *tool.Env
	host             string
	timeout          time.Duration
	sent, got        int
	least, most, sum time.Duration
}

// ping sends one request.
func (p *pinger) ping(ctx context.Context) {
	soon, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	start := time.Now()
	id, err := rdmacm.Dial(soon, net.JoinHostPort(p.host, unusedPort), nil)
	took := time.Since(start)
	if ctx.Err() != nil {
		return
	}
	p.sent++
	var ev *rdmacm.Error
	switch {
	case err == nil:
		_ = id.Close()
	case !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &ev) || ev.Err != nil: // the last one: by ICMP
		p.env.Failf("%s: %v", p.env.Argv0, err)
		return
	}
	p.got++
	p.sum += took
	p.most = max(p.most, took)
	if p.least == 0 || took < p.least {
		p.least = took
	}
	fmt.Fprintf(p.env.Stdout, "Pong from %s: time %.3f ms\n", p.host, float64(took)/1e6)
}

// report prints the summary. The exit status is 0 if there was an answer.
func (p *pinger) report() int {
	lost := 0
	if p.sent > 0 {
		lost = 100 * (p.sent - p.got) / p.sent
	}
	fmt.Fprintf(p.env.Stdout, "\n--- %s ibping statistics ---\n%d requests sent, %d answered, %d%% lost\n", p.host,
		p.sent, p.got,
		lost)
	if p.got == 0 {
		return 1
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	fmt.Fprintf(p.env.Stdout, "rtt min/avg/max = %.3f/%.3f/%.3f ms\n", ms(p.least), ms(p.sum)/float64(p.got), ms(p.most))
	return 0
}
