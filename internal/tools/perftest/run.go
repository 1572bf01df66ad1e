package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// run is one run of a program.
type run struct {
	*options
	table
	env     *tool.Env
	stdout  io.Writer       // env.Stdout is io.Discard with --output and --json -
	stop    context.Context // done at Ctrl-C
	peer    *peer
	cmID    *rdmacm.ID // with -R: of the channel
	results []result

	cpuBefore  times // with --cpu_util: at the beginning of the test
	belowLimit error // of -w or -y

	soon      context.Context // of event
	soonAgain context.CancelFunc
}

func (t *test) run(env *tool.Env, args []string) int {
	o, status, ok := t.parse(env, args)
	if !ok {
		return status
	}
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	r := &run{options: o, env: env, stdout: env.Stdout, stop: stop}
	if o.output != "" || o.json == "-" {
		r.env = &tool.Env{Argv0: env.Argv0, Stdout: io.Discard, Stderr: env.Stderr}
	}
	err := r.because(r.play())
	if e := r.table.close(); err == nil {
		err = e
	}
	if err == nil {
		err = errors.Join(r.belowLimit, r.save())
	}
	if err != nil {
		return env.Failf("%s: %v", t.name, err)
	}
	return 0
}

// play runs all steps in the C program's order.
func (r *run) play() error {
	for _, step := range []func() error{
		func() error { return nearest.Check(r.device, r.ibPort, r.gidIndex, r.byHand()) },
		r.checkFiles, r.meetPeer,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	stopped := context.AfterFunc(r.stop, func() { r.hangUp() })
	defer stopped()
	r.peer.allow(shortest)
	warning, err := r.peer.greet()
	if err != nil {
		return err
	}
	if warning != "" {
		fmt.Fprintf(r.env.Stderr, "%s: %s\n", r.name, warning)
	}
	qps := r.makeQPs
	if r.cm {
		qps = r.cmQPs
	}
	r.peer.allow(longest)
	for _, step := range []func() error{r.open, r.agreeMTU, r.makeQueues, qps, r.introduceQPs, r.test} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// byHand is what to do about a device whose QPs only rdma_cm connects; empty with -R.
func (r *run) byHand() string {
	if r.cm {
		return ""
	}
	return "use -R at both ends"
}

// because returns the reason for a failed run. After Ctrl-C, which closes the connection, other errors are
// consequences.
func (r *run) because(err error) error {
	if err != nil && r.options != nil && r.infinite && r.over() {
		fmt.Fprint(r.env.Stdout, line)
		return nil
	}
	if err != nil && r.stop.Err() != nil {
		return context.Cause(r.stop)
	}
	return alike(err)
}

// alike says that both ends must be alike, if err is a failure that follows from different programs or options.
func alike(err error) error {
	var e *verbs.WCError
	if !errors.As(err, &e) {
		return err
	}
	if e.First != nil {
		e = e.First
	}
	switch e.Status {
	case verbs.WCLocLenErr, verbs.WCRemInvReqErr, verbs.WCRemAccessErr, verbs.WCRNRRetryExcErr:
		return fmt.Errorf("%w; both ends must run the same program with the same options, such as -s and -n", err)
	}
	return err
}

// over reports whether a run without end has ended as it must: by Ctrl-C, here or at the client.
func (r *run) over() bool {
	return r.peer != nil && (r.stop.Err() != nil || r.server == "" && r.peer.ended())
}

// hangUp ends waiting for the peer.
func (r *run) hangUp() {
	if t, ok := r.peer.channel.(*tcp); ok {
		_ = t.Conn.SetDeadline(time.Now())
	}
}

// meetPeer opens the channel.
func (r *run) meetPeer() error {
	if r.server == "" {
		fmt.Fprint(r.env.Stdout,
			"\n************************************\n"+
				"* Waiting for client to connect... *\n"+
				"************************************\n")
	}
	var ch channel
	var err error
	switch {
	case r.cm || r.cmData:
		var c *cmChannel
		if c, err = r.cmConnect(); err == nil {
			ch = c
		}
	case r.server != "":
		ch, err = dialTCP(r.stop, r.server, r.tcpPort)
	default:
		ch, err = acceptTCP(r.stop, r.tcpPort)
	}
	if err != nil {
		return err
	}
	r.peer = &peer{channel: ch, client: r.server != ""}
	r.opened(func() error {
		if c, ok := ch.(*cmChannel); ok {
			return c.end(r.server != "")
		}
		return ch.(*tcp).Conn.Close()
	})
	return nil
}

// introduceQPs swaps addresses and connects.
func (r *run) introduceQPs() error {
	if err := r.describe(); err != nil {
		return err
	}
	r.printHead()
	swap := func() error {
		for _, e := range r.qps {
			var err error
			if e.remote, err = r.peer.shake(&e.local); err != nil {
				return err
			}
		}
		return nil
	}
	if r.lat && r.verb != send { // the C program swaps them once more
		if err := r.sync(); err != nil {
			return err
		}
	}
	if err := swap(); err != nil {
		return err
	}
	if !r.cm {
		if err := r.connect(); err != nil {
			return err
		}
	}
	if r.verb == send {
		if err := r.sync(); err != nil {
			return err
		}
	}
	for _, e := range r.qps {
		r.printAddress("local", &e.local)
	}
	if err := swap(); err != nil {
		return err
	}
	for _, e := range r.qps {
		r.printAddress("remote", &e.remote)
	}
	if r.verb != send {
		return r.sync()
	}
	return nil
}

// sync waits for the peer.
func (r *run) sync() error {
	_, err := r.peer.shake(&r.qps[0].local)
	return err
}

// sizes lists the sizes to measure.
func (r *run) sizes() []int {
	if !r.all {
		return []int{r.size}
	}
	var list []int
	for n := 2; n <= r.size; n *= 2 {
		list = append(list, n)
	}
	return list
}

// test measures every size and closes the channel.
func (r *run) test() error {
	r.peer.allow(0) // one end may wait for the other's whole test
	r.printColumns()
	alone := r.lat && r.verb.waits() && r.server == "" // only the client measures
	var err error
	switch {
	case alone:
	case r.lat:
		err = r.latency()
	case r.verb != send && !r.duplex && r.server == "":
		err = r.watch()
	default:
		err = r.bandwidth()
	}
	if err != nil {
		return err
	}
	if !alone {
		fmt.Fprint(r.env.Stdout, line)
	}
	if r.lat && r.verb == write {
		r.linger()
		return nil // the C program ends without a closing message
	}
	if err := r.sync(); err != nil {
		return err
	}
	if t, ok := r.peer.channel.(*tcp); ok {
		_, _ = t.Write([]byte("done\x00"))
	}
	return nil
}

// linger keeps answering the peer for a while: our last acknowledgement may be lost.
func (r *run) linger() {
	var wcs [16]verbs.WC
	for start := time.Now(); time.Since(start) < between; {
		if _, err := r.sendCQ.Poll(wcs[:]); err != nil {
			return
		}
	}
}

// waiter bounds the wait for a message or a completion.
type waiter struct {
	r     *run
	what  string
	spins int
	since time.Time // when the wait began; zero after progress: idle reads the clock

	arrivals uint
	next     time.Duration // of idle: when to check the connection to the peer
	armed    bool          // sleep has requested events and taken none since
}

const (
	// longest is the longest wait, as in the C program.
	longest = 60 * time.Second
	// shortest bounds the wait for the first message, for peers that are not perftest.
	shortest = 20 * time.Second
	// farewell is how long messages of a peer that has ended may still be in flight.
	farewell = 3 * time.Second
)

func (r *run) newWaiter(what string) *waiter { return &waiter{r: r, what: what, since: time.Now()} }

// check is called after each empty poll.
func (p *waiter) check() error {
	if p.spins++; p.spins%1024 != 0 {
		return nil
	}
	return p.checkPeer()
}

func (p *waiter) checkPeer() error {
	if err := p.r.stop.Err(); err != nil {
		return err
	}
	idle := p.idle()
	if idle < farewell || idle < p.next {
		return nil
	}
	p.next = idle + time.Second
	if p.r.peer.ended() {
		return fmt.Errorf("%s is missing, and the peer has ended: look at its output", p.what)
	}
	if idle > longest {
		return fmt.Errorf("%s is missing for %v: the peer has ended, or the network has lost it", p.what, longest)
	}
	return nil
}

// idle returns the time without progress, as far as it is known: from the first call after progress on. So a run in
// which completions come fast does not read the clock for each: where that is a system call it takes longer than a
// poll.
func (p *waiter) idle() time.Duration {
	if p.since.IsZero() {
		p.since = time.Now()
		return 0
	}
	return time.Since(p.since)
}

// progress restarts the time-out. It also checks for Ctrl-C, since a run in which every poll finds
// completions never waits.
func (p *waiter) progress() error {
	p.since, p.next = time.Time{}, 0
	if p.arrivals++; p.arrivals%256 != 0 {
		return nil
	}
	return p.r.stop.Err()
}

// event waits for a completion event, for a bounded time; nil without one.
func (p *waiter) event() (*verbs.CQ, error) {
	r := p.r
	if r.soon == nil || r.soon.Err() != nil {
		if r.soon == nil {
			r.opened(func() error { r.soonAgain(); return nil })
		} else {
			r.soonAgain()
		}
		r.soon, r.soonAgain = context.WithTimeout(r.stop, time.Second)
	}
	cq, err := r.channel.GetEvent(r.soon)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, p.checkPeer()
	}
	return cq, err
}
