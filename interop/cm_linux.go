package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// cmRun is a run of librdmacm's programs: a server at the passive end and clients at the active one.
type cmRun struct {
	name    string // of the case
	server  string // command line; ADDR stands for the passive end's address
	client  string // command line of each client; SELF stands for the active end's address
	clients int    // concurrent clients; 0 means one
	family  int
	network network
	timeout time.Duration
	oneWay  bool

	// serverSays and clientSays are regular expressions that the output must match. A persistent server is stopped, and
	// its output is not checked.
	serverSays, clientSays string
	persistent             bool
	tidy                   bool // the server releases everything of its former clients, which not all C programs do
	fails                  bool // the client must fail
}

const (
	cmTimeout = 90 * time.Second
	// afterEnd is how long the kernel may keep the resources of ended programs: its CM retransmits messages
	// to a peer that no longer answers.
	afterEnd = 100 * time.Second
	// soon is how long a server may keep the resources of its former clients.
	soon = 20 * time.Second
	// afterRetries replaces soon if packets are lost: the kernel does not retransmit the DREQ of an ended
	// program, so the peer detects the end by its own retries, eight time-outs of 2.1 to 8.6 s.
	afterRetries = 80 * time.Second
)

// cmCases returns the cases of connection management.
func cmCases() (all []testCase) {
	for _, r := range cmRuns() {
		all = append(all, r.testCase())
	}
	all = append(all, testCase{name: "cm/unreachable/ipv4", timeout: 3 * time.Minute, run: unreachable})
	for _, family := range []int{4, 6} {
		name := "cm/keep-alive/" + familyName(family)
		all = append(all, testCase{name: name, timeout: 4 * time.Minute, run: keepAlive(family)})
	}
	return append(all, killedCases()...)
}

func cmRuns() (runs []cmRun) {
	const success = `return status 0`
	for _, f := range []int{4, 6} {
		add := func(r cmRun) {
			r.family = f
			if r.timeout == 0 {
				r.timeout = cmTimeout
			}
			runs = append(runs, r)
		}
		for _, size := range []int{64, 4096, 65535} { // rping refuses 65536
			add(cmRun{name: fmt.Sprintf("rping/-C 1000 -S %d -V -v", size), timeout: 4 * time.Minute,
				server:     fmt.Sprintf("rping -s -a ADDR -S %d -V", size),
				client:     fmt.Sprintf("rping -c -a ADDR -C 1000 -S %d -V -v", size),
				clientSays: `ping data: rdma-ping-999: `})
		}
		add(cmRun{name: "rping/-P, 6 clients", clients: 6, server: "rping -s -P -a ADDR",
			client: "rping -c -a ADDR -C 300 -V -v", persistent: true, tidy: true,
			clientSays: `ping data: rdma-ping-299: `})
		for _, args := range []string{"", "-c 100", "-c 10 -C 20 -S 5000", "-c 2 -m", "-c 3 -P ib -t 8 -a 14"} {
			add(cmRun{name: strings.TrimSuffix("ucmatose/"+args, "/"), server: "ucmatose -b ADDR " + args,
				client:     "ucmatose -s ADDR " + args,
				serverSays: success, clientSays: success})
		}
		for _, args := range []string{"", "-c 10 -C 5 -S 1000"} {
			add(cmRun{name: strings.TrimSuffix("udaddy/"+args, "/"), server: "udaddy -b ADDR " + args,
				client:     "udaddy -s ADDR " + args,
				serverSays: success, clientSays: success})
		}
		add(cmRun{name: "rdma_client", server: "rdma_server -s ADDR", client: "rdma_client -s ADDR", serverSays: `end 0`,
			clientSays: `end 0`})
		if f == 4 { // the C program does not listen on IPv6
			add(cmRun{name: "rdma_xclient", server: "rdma_xserver", client: "rdma_xclient -s ADDR", serverSays: `end 0`,
				clientSays: `end 0`})
		}
		add(cmRun{name: "cmtime/-c 1000", server: "cmtime -b ADDR", client: "cmtime -s ADDR -c 1000", persistent: true,
			timeout:    3 * time.Minute,
			clientSays: `(?m)^destroy +:`})
		// A program listens, but on another port.
		add(cmRun{name: "refused/port", server: "rping -s -P -a ADDR -p 999", client: "ucmatose -s ADDR", fails: true,
			persistent: true,
			clientSays: `RDMA_CM_EVENT_REJECTED, error: 8`})
		add(cmRun{name: "refused/service", server: "rping -s -P -a ADDR -p 999", client: "udaddy -s ADDR", fails: true,
			persistent: true,
			clientSays: `(?m)RDMA_CM_EVENT_UNREACHABLE, error: 1$`})
		add(cmRun{name: "refused/by program", server: "ucmatose -b ADDR -c 1 -C 0", client: "ucmatose -s ADDR -c 2 -C 0",
			fails: true, persistent: true,
			clientSays: `RDMA_CM_EVENT_REJECTED, error: 28`})

		loss := func(r cmRun) {
			r.name, r.network, r.timeout = "loss 5%/"+r.name, veryLossy, 5*time.Minute
			add(r)
		}
		loss(cmRun{name: "rping/-C 10 -S 4096", server: "rping -s -a ADDR -S 4096 -V",
			client: "rping -c -a ADDR -C 10 -S 4096 -V -v", persistent: true,
			clientSays: `ping data: rdma-ping-9: `})
		loss(cmRun{name: "cmtime/-c 100", server: "cmtime -b ADDR", client: "cmtime -s ADDR -c 100", persistent: true,
			clientSays: `(?m)^destroy +:`})
		loss(cmRun{name: "ucmatose/-c 10", server: "ucmatose -b ADDR -c 10", client: "ucmatose -s ADDR -c 10",
			serverSays: success, clientSays: success})
	}
	// The kernel joins no RoCE multicast group over IPv6.
	for _, args := range []string{"", " -o"} {
		runs = append(runs, cmRun{name: strings.TrimSuffix("mckey/"+strings.TrimSpace(args), "/"), family: 4,
			timeout: cmTimeout, clientSays: "return status 0", serverSays: "return status 0",
			server: "mckey -m 239.7.4.1 -b ADDR -C 5", client: "mckey -m 239.7.4.1 -b SELF -s -C 5" + args})
	}
	return runs
}

func (r cmRun) testCase() testCase {
	name := "cm/" + r.name + "/" + familyName(r.family)
	return testCase{name: name, timeout: r.timeout, network: r.network, oneWay: r.oneWay, run: r.run}
}

// cm starts a program of librdmacm, the C one or ours.
func (p *place) cm(line string, limit time.Duration) (*proc.Proc, error) {
	if p.hw {
		return start("verbena's "+line+" on rxe0", p.sh("env VERBENA_PROVIDER=hw "+hwFolder+"verbena "+line, limit))
	}
	if !p.ours() {
		return start("kernel's "+line, p.sh(line, limit))
	}
	return start("verbena's "+line,
		p.host(append([]string{filepath.Join(p.lab.bin, "verbena")}, strings.Fields(line)...)...))
}

func (r *cmRun) run(env *caseEnv, active, passive *place) error {
	env.ends.stopOurs()
	fill := strings.NewReplacer("ADDR", passive.addr(r.family), "SELF", active.addr(r.family))
	server, err := passive.cm(fill.Replace(r.server), env.left())
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := passive.cmReady(env.ctx, server); err != nil {
		return err
	}
	before := 0
	if r.persistent && passive.ours() && !passive.siw {
		if before, err = passive.descriptors(); err != nil {
			return err
		}
	}
	clients := make([]*proc.Proc, max(1, r.clients))
	for i := range clients {
		if i > 0 { // the C rping confuses concurrent requests
			time.Sleep(300 * time.Millisecond)
		}
		if clients[i], err = active.cm(fill.Replace(r.client), env.left()); err != nil {
			return err
		}
		defer clients[i].Stop()
	}
	for i, c := range clients {
		err := r.judge(c, c.Wait(env.ctx), r.fails, r.clientSays)
		env.log(fmt.Sprintf("client%d", i), c.Out.String())
		if err != nil {
			env.log("server", server.Out.String())
			return fmt.Errorf("%w\nserver: %s", err, proc.Tail(server.Out.String(), 8))
		}
	}
	switch {
	case r.persistent && (!passive.ours() && r.tidy || passive.ours() && !passive.siw):
		limit := soon
		if r.network == veryLossy {
			limit = afterRetries
		}
		err = passive.onlyListens(server, before, limit)
		server.Stop()
	case r.persistent:
		server.Stop()
	default:
		err = r.judge(server, server.Wait(env.ctx), false, r.serverSays)
	}
	env.log("server", server.Out.String())
	if err != nil {
		return err
	}
	return nothingLeft(env, active, passive)
}

// unreachable: the peer does not answer. Our client gives up after 16 requests in 74 s, the kernel's, whose
// packet life time is longer, in at least 98 s. Our end is silent if none of our programs runs, the
// kernel's if its interface drops everything.
func unreachable(env *caseEnv, active, passive *place) error {
	env.ends.stopOurs()
	if !passive.ours() {
		const hears = "tc qdisc del dev eth0 ingress; tc qdisc del dev ifb0 root"
		const deaf = "ip link set ifb0 up && tc qdisc add dev eth0 ingress && " +
			"tc qdisc add dev ifb0 root netem loss 100% && " +
			"tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0"
		defer passive.lab.guest(passive.id, hears)
		// The guest's ping tells our kernel its link address; without it the route would fail, not the connection.
		if _, err := passive.lab.guest(passive.id, "ping -c 1 -W 5 "+active.addr(4)+" && "+deaf); err != nil {
			return err
		}
	}
	r := cmRun{clientSays: `RDMA_CM_EVENT_UNREACHABLE, error: -110`}
	begin := time.Now()
	c, err := active.cm("ucmatose -c 1 -C 0 -s "+passive.addr(4), env.left())
	if err != nil {
		return err
	}
	defer c.Stop()
	err = r.judge(c, c.Wait(env.ctx), true, r.clientSays)
	env.log("client", c.Out.String())
	if took := time.Since(begin); err == nil && (took < 65*time.Second || took > 2*time.Minute) {
		err = fmt.Errorf("%s: gave up after %v, want 65 s to 2 minutes", c.Name, took)
	}
	if err != nil {
		return err
	}
	return nothingLeft(env, active)
}

var failure = regexp.MustCompile(`(?m)^failure .*$`)

// judge compares the exit of a program and its output with the expected ones.
func (r *cmRun) judge(p *proc.Proc, err error, fails bool, says string) error {
	out := p.Out.String()
	switch {
	case err != nil && !p.Exited():
	case err == nil && fails:
		err = fmt.Errorf("%s: succeeded, but must fail", p.Name)
	case err != nil && fails:
		err = nil
	case err == nil && failure.MatchString(out): // C's cmtime goes on without the connections that failed
		err = fmt.Errorf("%s: %s", p.Name, failure.FindString(out))
	}
	if err == nil && !regexp.MustCompile(says).MatchString(out) {
		err = fmt.Errorf("%s: the output does not match %q", p.Name, says)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, proc.Tail(out, 8))
	}
	return nil
}

// cmReady waits until a program listens: for the kernel's ID, or for our UDP port 4791. mckey has no
// listener, but QPs.
func (p *place) cmReady(ctx context.Context, server *proc.Proc) error {
	line, sign := "rdma resource show cm_id; rdma resource show qp", regexp.MustCompile(`state LISTEN|type UD`)
	if p.ours() {
		line, sign = "ss -lunH 'sport = :4791'", regexp.MustCompile(`\S`)
		if p.siw {
			line = "ss -ltnH"
		}
	}
	for {
		out, err := runCmd(p.sh("sh -c \""+line+"\"", 30*time.Second), 30*time.Second)
		switch {
		case err != nil:
			return err
		case sign.MatchString(out):
			time.Sleep(300 * time.Millisecond)
			return nil
		case server.Ended():
			return fmt.Errorf("%s ended at once: %w\n%s", server.Name, server.Err, proc.Tail(server.Out.String(), 8))
		case ctx.Err() != nil:
			return fmt.Errorf("%s is not listening", server.Name)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// nothingLeft checks that the kernel has no IDs and QPs of ended programs, and has logged no error.
func nothingLeft(env *caseEnv, places ...*place) error {
	for _, p := range places {
		if p.ours() {
			continue
		}
		if err := p.nothingLeft(); err != nil {
			return err
		}
		if err := p.quiet(); err != nil {
			return err
		}
	}
	return nil
}

// quiet checks the messages of guest 1's kernel since the last call.
func (p *place) quiet() error {
	if p.id != 1 {
		return nil
	}
	log, err := p.lab.guest(p.id, "dmesg")
	if err != nil {
		return err
	}
	news := linesAfter(log, p.lab.lastMessage)
	p.lab.lastMessage = lastLine(log)
	return complaints(news)
}

// resources lists the CM IDs and QPs of the programs at this end.
func (p *place) resources() (list []string, err error) {
	tool, device := "rdma", "rxe0"
	if p.siw {
		device = "siw0"
	}
	if p.ours() {
		tool, device = filepath.Join(p.lab.bin, "verbena")+" rdma", "vrb_roce"
	}
	line := fmt.Sprintf("sh -c \"(%s resource show cm_id link %s; %s resource show qp link %s) 2>/dev/null; true\"",
		tool, device, tool, device)
	out, err := runCmd(p.sh(line, 30*time.Second), 30*time.Second)
	for line := range strings.Lines(out) {
		// The suite's own peer.py keeps running between cases, with the QPs of its last one.
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "type GSI") &&
			!strings.Contains(line, "comm python3") {
			list = append(list, line)
		}
	}
	return list, err
}

// descriptors counts the open descriptors of our listening program.
func (p *place) descriptors() (int, error) {
	list, err := p.resources()
	if err != nil {
		return 0, err
	}
	pid := regexp.MustCompile(`state LISTEN .*pid (\d+)`).FindStringSubmatch(strings.Join(list, "\n"))
	if pid == nil {
		return 0, fmt.Errorf("none of our programs is listening:\n%s", strings.Join(list, "\n"))
	}
	fds, err := os.ReadDir("/proc/" + pid[1] + "/fd")
	return len(fds), err
}

// newSockets is how many sockets with other source ports our device may have opened for its clients: 8 per
// shard, for any number of clients.
var newSockets = 8 * runtime.NumCPU()

// onlyListens waits until a server has only its listener after its clients have ended, and, if it is ours,
// as many descriptors as before. A server that has ended has no resources.
func (p *place) onlyListens(server *proc.Proc, before int, limit time.Duration) error {
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		list, err := p.resources()
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(list),
			func(line string) bool { return strings.Contains(line, "state LISTEN") })
		if len(left) == 0 && len(list) > 0 {
			if !p.ours() {
				return nil
			}
			n, err := p.descriptors()
			if err == nil && n > before+newSockets {
				err = fmt.Errorf("%s has %d descriptors open, %d before its clients came", server.Name, n, before)
			}
			return err
		}
		if server.Ended() {
			return nil
		}
		if time.Since(begin) > limit {
			return fmt.Errorf("%s still has these resources %v after the end of its clients:\n%s", server.Name, limit,
				strings.Join(list, "\n"))
		}
	}
}

func (p *place) nothingLeft() error {
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		left, err := p.resources()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		if time.Since(begin) > afterEnd {
			return fmt.Errorf("the guest still has these resources %v after the end of the programs:\n%s",
				afterEnd, strings.Join(left, "\n"))
		}
	}
}
