package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// perftest is a run of one of the ib_* tools, with the same options at both ends, since perftest's exchange
// does not carry them.
type perftest struct {
	tool    string // without ib_
	args    string
	family  int
	timeout time.Duration
	siw     bool // over iWARP
}

// perftestCases returns the cases of perftest's tools with their common options. UC and UD drop messages
// for which the receiver has no room, so their messages are few or small enough for a slow one.
func perftestCases() (all []testCase) {
	add := func(family int, tools string, timeout time.Duration, args ...string) {
		for _, tool := range strings.Fields(tools) {
			for _, a := range args {
				all = append(all, perftest{tool: tool, args: a, family: family, timeout: timeout}.testCase())
			}
		}
	}
	const (
		bw, lat       = "send_bw write_bw read_bw atomic_bw", "send_lat write_lat read_lat atomic_lat"
		sizes         = "send_bw write_bw read_bw send_lat write_lat read_lat"
		short, longer = 60 * time.Second, 150 * time.Second
	)
	add(4, bw+" "+lat, short, "-n 200", "-n 100 -R", "-n 100 -m 256", "-D 5 -f 1")
	add(6, bw+" "+lat, short, "-n 100")
	add(4, bw, short, "-n 100 -q 8", "-n 100 -b", "-n 100 -q 8 -R -b", "-n 100 -l 4 -t 16", "-n 100 --report_gbits",
		"-n 100 -Q 1")
	add(4, sizes, longer, "-a -n 10")
	add(4, "send_bw write_bw read_bw", longer, "-a -n 10 -b")
	add(4, "send_bw send_lat", longer, "-a -n 10 -R")
	add(4, "send_bw read_bw write_bw atomic_bw", short, "-n 100 -b -D 5 -f 1")
	add(4, "send_bw send_lat read_bw read_lat atomic_bw atomic_lat", short, "-n 100 -e")
	add(4, "send_bw send_lat write_bw write_lat", short, "-n 100 -s 64 -I 64", "-n 100 -s 1024 -c UC", "-n 100 -s 1",
		"-n 20 -s 100000")
	add(4, "send_bw send_lat", short, "-n 100 -s 1024 -c UD", "-n 100 -s 1024 -c UD -R", "-n 100 -s 512 -c UD -m 512 -e",
		"-n 100 -s 256 -c UC -e")
	add(4, "send_bw send_lat", longer, "-a -n 10 -c UD")
	add(4, "send_bw", short, "-n 100 -s 64 -c UD -q 8", "-n 100 -s 64 -c UD -b", "-n 100 -s 64 -c UC -b", "-n 100 -r 16",
		"-n 100 -r 16 -q 8 -e -b")
	add(4, "write_bw write_lat", longer, "-n 50 -s 4096 -c UC -m 4096", "-n 50 -s 16384 -c UC -t 1")
	add(4, "read_bw read_lat atomic_bw atomic_lat", short, "-n 100 -o 1", "-n 100 -o 4")
	add(4, "atomic_bw atomic_lat", short, "-n 100 -A CMP_AND_SWAP", "-n 100 -A FETCH_AND_ADD")
	add(4, lat, short, "-n 20 -U", "-n 20 -H")
	add(4, "send_bw", short, "-n 100 -p 18600", "-n 100 -u 18 -S 3", "-n 100 -R -T 32")
	add(4, bw, short, "-n 100 -l 5 -b", "-n 100 -Q 10 -b --report_gbits", "-n 100 -p 18601 -S 15")
	add(4, "send_bw write_bw", short, "-n 100 -s 64 -Q 25", "-D 5 -f 1 -l 4 -t 16")
	add(4, "read_bw atomic_bw", short, "-n 100 -o 1 -b")
	add(4, "read_lat atomic_lat send_lat", short, "-n 100 -R -T 104")
	add(6, bw, short, "-n 100 -b", "-n 100 -q 4", "-n 100 -l 4 -t 16", "-n 100 -Q 10 --report_gbits", "-b -D 5 -f 1")
	add(6, lat, short, "-n 20 -U", "-n 20 -H", "-n 100 -p 18602 -S 1")
	add(6, "send_bw send_lat", short, "-n 100 -e", "-n 100 -s 1024 -c UC", "-n 100 -s 1024 -c UD", "-n 100 -r 16")
	add(6, "write_bw write_lat", short, "-n 50 -s 4096 -c UC")
	add(6, "read_bw read_lat atomic_bw atomic_lat", short, "-n 100 -o 1")
	add(6, "atomic_bw atomic_lat", short, "-n 100 -A CMP_AND_SWAP")
	return all
}

func (p perftest) testCase() testCase {
	return testCase{name: strings.TrimSpace("perftest/ib_" + p.tool + "/" + familyName(p.family) + "/" + p.args),
		timeout: p.timeout, run: p.run}
}

// longTimeout is the code of an ACK timeout of 4.3 s: the processors of an emulated machine may stand still for
// seconds, and Linux 6.1 may send its messages in a wrong order after its timer has expired twice
// (docs/errors.md, "while Linux's soft-RoCE sends").
const longTimeout = "20"

// option returns the value of a one-letter option.
func (p *perftest) option(name string, def int) int {
	f := strings.Fields(p.args)
	if i := slices.Index(f, name); i >= 0 && i+1 < len(f) {
		def, _ = strconv.Atoi(f[i+1])
	}
	return def
}

func (p *perftest) has(name string) bool { return slices.Contains(strings.Fields(p.args), name) }

// command starts the tool at one end. It names the GID, since both families exchange addresses over IPv4.
func (p *perftest) command(side *place, limit time.Duration, args ...string) (*proc.Proc, error) {
	index := map[int]int{4: 1, 6: 2}[p.family] // of rxe's table
	name := "ib_" + p.tool
	args = append(strings.Fields(p.args), args...)
	if !p.has("-u") && !p.siw {
		args = append([]string{"-u", longTimeout}, args...)
	}
	if side.ours() {
		if p.family != 4 {
			args = append([]string{"-x", strconv.Itoa(index)}, args...)
		}
		return start("verbena's "+name, side.host(append([]string{side.lab.bin + "/verbena", name}, args...)...))
	}
	if p.siw {
		args = append([]string{name, "-F", "-d", "siw0"}, args...)
	} else {
		args = append([]string{name, "-F", "-d", "rxe0", "-x", strconv.Itoa(index)}, args...)
	}
	return start("the C "+name, side.sh(strings.Join(args, " "), limit))
}

func (p perftest) run(env *caseEnv, active, passive *place) error {
	env.ends.stopOurs()
	server, err := p.command(passive, env.left())
	if err != nil {
		return err
	}
	defer server.Stop()
	if p.has("-R") {
		err = passive.cmReady(env.ctx, server)
	} else {
		err = passive.listening(env.ctx, p.option("-p", 18515), server)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, server.Out)
	}
	client, err := p.command(active, env.left(), passive.ip4)
	if err != nil {
		return err
	}
	defer client.Stop()
	if err = client.Wait(env.ctx); err == nil {
		err = server.Wait(env.ctx)
	} else {
		server.Stop()
	}
	s, c := server.Out.String(), client.Out.String()
	env.log("server", s)
	env.log("client", c)
	if err == nil {
		err = p.judge(s, c, active.ours())
	}
	if err != nil {
		return fmt.Errorf("%w\nserver:\n%s\nclient:\n%s", err, proc.Tail(s, 14), proc.Tail(c, 14))
	}
	return nothingLeft(env, active, passive)
}

var (
	// With an unsteady clock the C program prints a warning in the middle of a line, and its results are 0,
	// inf or nan.
	perftestLine   = regexp.MustCompile(`(?m)^ (\d+) +(\d+)((?:[ \t]+(?:\d+\.\d+|inf|-?nan))+)[ \t]*(?:Correlation.*)?$`)
	perftestQP     = regexp.MustCompile(`(?m)^ (local|remote) address: (.*)\n GID: (\S+)$`)
	perftestSample = regexp.MustCompile(`(?m)^\d+, \S+$`)
)

// perftestResult is a line of results.
type perftestResult struct {
	size, iters int
	values      []float64
}

func perftestResults(out string) (list []perftestResult) {
	for _, m := range perftestLine.FindAllStringSubmatch(out, -1) {
		r := perftestResult{}
		r.size, _ = strconv.Atoi(m[1])
		r.iters, _ = strconv.Atoi(m[2])
		for _, f := range strings.Fields(m[3]) {
			v, _ := strconv.ParseFloat(f, 64)
			r.values = append(r.values, v)
		}
		list = append(list, r)
	}
	return list
}

// judge compares the output of both ends: the QP addresses, sizes, iterations, and the values that one end
// sends to the other. Our end's measurements must be positive.
func (p *perftest) judge(server, client string, clientOurs bool) error {
	if err := p.sameQPs(server, client); err != nil && !p.siw { // siw's numbers of QPs are not known to the peer
		return err
	}
	s, c := perftestResults(server), perftestResults(client)
	if err := p.expect("client", c, p.wanted(), clientOurs); err != nil {
		return err
	}
	want := p.wanted()
	isLat, isSend, both := strings.HasSuffix(p.tool, "lat"), strings.HasPrefix(p.tool, "send"), p.has("-b")
	switch {
	case isLat && (strings.HasPrefix(p.tool, "read") || strings.HasPrefix(p.tool, "atomic")):
		want = nil // only the client's results
	case !isLat && !isSend && !both:
		want = want[len(want)-1:] // the client sends its last result
	}
	if err := p.expect("server", s, want, !clientOurs && (isLat || isSend || both)); err != nil {
		return err
	}
	if isLat {
		return p.samples(map[string]string{"server": server, "client": client}, len(want) > 0)
	}
	if isSend && both && p.has("-D") { // each end counts what it sends and what it receives
		if x, y := float64(s[0].iters), float64(c[0].iters); x > 2*y || y > 2*x {
			return fmt.Errorf("the ends count different messages: the server %v, the client %v", x, y)
		}
		return nil
	}
	if isSend && !both {
		return nil // each end has its own results
	}
	for i := range s {
		x, y := s[len(s)-1-i], c[len(c)-1-i]
		if both && p.has("-D") { // the values are sums of both ends, the message counts each end's own
			x.iters, y.iters = 0, 0
		}
		same := x.size == y.size && x.iters == y.iters && len(x.values) == len(y.values)
		for k := range min(len(x.values), len(y.values)) { // an end may print more digits than the other
			same = same && (x.values[k] == y.values[k] || math.Abs(x.values[k]-y.values[k]) < 0.0051)
		}
		if !same {
			return fmt.Errorf("the results differ: the server has %v, the client %v", x, y)
		}
	}
	return nil
}

// samples checks how many single results -U and -H have printed. The C program omits the last two of the
// sorted ones.
func (p *perftest) samples(outputs map[string]string, serverMeasures bool) error {
	for end, out := range outputs {
		want := 0
		switch {
		case end == "server" && !serverMeasures:
		case p.has("-U"):
			want = p.option("-n", 1000) - 1
		case p.has("-H"):
			want = p.option("-n", 1000) - 3
		}
		if n := len(perftestSample.FindAllString(out, -1)); n != want {
			return fmt.Errorf("%s: %d single results, want %d", end, n, want)
		}
	}
	return nil
}

// sameQPs checks that each end prints the other's QPs.
func (p *perftest) sameQPs(server, client string) error {
	of := func(out, which string) (list []string) {
		for _, m := range perftestQP.FindAllStringSubmatch(out, -1) {
			if m[1] == which {
				list = append(list, strings.Join(strings.Fields(m[2]), " ")+" "+m[3])
			}
		}
		return list
	}
	qps := p.option("-q", 1)
	for _, pair := range [][2][]string{{of(server, "local"), of(client, "remote")},
		{of(client, "local"), of(server, "remote")}} {
		if len(pair[0]) != qps || !slices.Equal(pair[0], pair[1]) {
			return fmt.Errorf("the ends do not agree on %d addresses:\n%q\n%q", qps, pair[0], pair[1])
		}
	}
	return nil
}

// wanted returns the sizes and iterations that the options select; 0 iterations match any number.
func (p *perftest) wanted() (list []perftestResult) {
	iters := p.option("-n", 1000)
	if strings.HasSuffix(p.tool, "bw") {
		iters *= p.option("-q", 1)
	}
	if p.has("-D") {
		iters = 0
	}
	if p.has("-a") {
		most := 8 << 20
		if p.has("UD") {
			most = 4096
		}
		for n := 2; n <= most; n *= 2 {
			list = append(list, perftestResult{size: n, iters: iters})
		}
		return list
	}
	size := 65536
	switch {
	case strings.HasPrefix(p.tool, "atomic"):
		size = 8
	case strings.HasSuffix(p.tool, "lat"):
		size = 2
	}
	return []perftestResult{{size: p.option("-s", size), iters: iters}}
}

// expect checks sizes and iterations, and that the results are positive if our end measured them.
func (p *perftest) expect(end string, got, want []perftestResult, measured bool) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d lines of results, want %d", end, len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if g.size != w.size || g.iters != w.iters && w.iters > 0 || g.iters == 0 || len(g.values) < 2 {
			return fmt.Errorf("%s: line %v, want size %d and %d iterations", end, g, w.size, w.iters)
		}
		if measured && slices.Max(g.values) <= 0 {
			return fmt.Errorf("%s: line %v: nothing measured", end, g)
		}
	}
	return nil
}
