package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

const pingpongPort = 18515

// pingpong is a run of one of the four ibv_*_pingpong tools.
type pingpong struct {
	tool    string // rc, uc, ud, srq
	args    string // the same at both ends
	family  int
	network network
	timeout time.Duration
}

// pingpongCases returns the cases of the pingpongs: each tool with default flags and with each option.
func pingpongCases() []pingpong {
	var cases []pingpong
	add := func(family int, tools string, timeout time.Duration, args ...string) {
		for _, tool := range strings.Fields(tools) {
			for _, a := range args {
				cases = append(cases, pingpong{tool: tool, args: a, family: family, timeout: timeout})
			}
		}
	}
	const connected, all, short = "rc uc srq", "rc uc srq ud", 60 * time.Second
	for _, family := range []int{4, 6} {
		add(family, all, short, "", "-e -n 300", "-c -n 300")
		add(family, connected, short, "-m 256 -n 100", "-m 512 -n 100", "-m 1024 -n 100", "-m 2048 -n 100", "-m 4096 -n 100")
		add(family, connected, short, "-s 1 -n 100", "-s 4095 -n 100", "-s 4096 -n 100", "-s 4097 -n 100", "-s 65536 -n 50",
			"-s 1048576 -n 10")
		add(family, "ud", short, "-s 0 -n 100", "-s 1 -n 100", "-s 4095 -n 100", "-s 4096 -n 100")
		add(family, all, 180*time.Second, "-n 10000 -s 64")
	}
	// The link-local GID is the first in rxe's table.
	add(0, all, short, "-n 100")
	// RC delivers every byte on any network.
	for _, family := range []int{4, 6} {
		for _, tool := range []string{"rc", "srq"} {
			qps := map[string]string{"srq": " -q 4"}[tool]
			for _, a := range []string{"-c -n 300", "-c -s 65536 -n 20", "-c -e -m 256 -n 50"} {
				cases = append(cases, pingpong{tool: tool, args: a + qps, family: family, timeout: 180 * time.Second,
					network: lossy})
			}
		}
	}
	return cases
}

func familyName(family int) string {
	return map[int]string{0: "link-local", 4: "ipv4", 6: "ipv6"}[family]
}

// testCase returns the pingpong's case.
func (p pingpong) testCase() testCase {
	name := p.tool + "_pingpong/" + familyName(p.family)
	if p.args != "" {
		name += "/" + p.args
	}
	if p.network != clean {
		name = "loss/" + name
	}
	return testCase{name: name, timeout: p.timeout, network: p.network, run: p.run}
}

// run runs the tool at both ends and checks their output. If packets are lost, the acknowledgement of the
// server's last message may be lost as well. The client has then succeeded and ended, so the server's
// retransmissions are not answered and the server fails, with either implementation. Only in this situation
// the case is repeated.
func (p pingpong) run(env *caseEnv, active, passive *place) error {
	for attempt := 1; ; attempt++ {
		err := p.once(env, active, passive)
		if p.network == clean || attempt == 3 || !errors.Is(err, errLastAck) {
			return err
		}
	}
}

var errLastAck = errors.New("the client succeeded, the server failed")

// once starts the tool at the passive end and connects to it from the active end.
func (p pingpong) once(env *caseEnv, active, passive *place) error {
	env.ends.stopOurs()
	tool := "ibv_" + p.tool + "_pingpong"
	args := strings.Fields(p.args)
	// The C server listens only on IPv4: addresses are exchanged over IPv4 for every GID.
	server, err := start("server", passive.tool(tool, p.family, p.gid(passive, args), env.left()))
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := passive.listening(env.ctx, pingpongPort, server); err != nil {
		return fmt.Errorf("%w\n%s", err, server.Out)
	}
	client, err := start("client", active.tool(tool, p.family, append(p.gid(active, args), passive.ip4), env.left()))
	if err != nil {
		return err
	}
	defer client.Stop()
	err = client.Wait(env.ctx)
	if err == nil {
		ctx, cancel := env.ctx, func() {}
		if p.network != clean {
			ctx, cancel = context.WithTimeout(env.ctx, 5*time.Second)
		}
		if e := server.Wait(ctx); e != nil {
			err = fmt.Errorf("%w: %w", errLastAck, e)
		}
		cancel()
	} else {
		server.Stop()
	}
	env.log("server", server.Out.String())
	env.log("client", client.Out.String())
	if err == nil {
		err = p.judge(server.Out.String(), client.Out.String())
	}
	if err != nil {
		return fmt.Errorf("%w\nserver:\n%s\nclient:\n%s", err, proc.Tail(server.Out.String(), 12),
			proc.Tail(client.Out.String(), 12))
	}
	return nil
}

// gid adds the GID index for our end unless the family is IPv4: by default our end selects the GID by the
// peer's IPv4 address.
func (p pingpong) gid(side *place, args []string) []string {
	args = append([]string(nil), args...)
	if !side.ours() || p.family == 4 {
		return args
	}
	return append(args, "-g", map[int]string{0: "0", 6: "2"}[p.family])
}

var (
	bytesLine   = regexp.MustCompile(`(?m)^(\d+) bytes in [\d.]+ seconds = [\d.]+ Mbit/sec$`)
	itersLine   = regexp.MustCompile(`(?m)^(\d+) iters in [\d.]+ seconds = [\d.]+ usec/iter$`)
	addressLine = regexp.MustCompile(`(?m)^  (local|remote) address: +LID 0x0000, QPN 0x([0-9a-f]{6}), ` +
		`PSN 0x([0-9a-f]{6})[,:] GID (\S+)$`)
	invalid = regexp.MustCompile(`(?m)^invalid data.*$`)
)

// judge checks the output of both ends: each must print the expected totals and the other's addresses, and
// neither may report invalid data, after which the C tool does not fail.
func (p pingpong) judge(server, client string) error {
	size, iters, qps := p.size()
	for name, out := range map[string]string{"server": server, "client": client} {
		if m := invalid.FindString(out); m != "" {
			return fmt.Errorf("%s: %s", name, m)
		}
		if m := bytesLine.FindStringSubmatch(out); m == nil || m[1] != strconv.Itoa(size*iters*2) {
			return fmt.Errorf("%s: no line with %d bytes", name, size*iters*2)
		}
		if m := itersLine.FindStringSubmatch(out); m == nil || m[1] != strconv.Itoa(iters) {
			return fmt.Errorf("%s: no line with %d iters", name, iters)
		}
	}
	s, c := addresses(server), addresses(client)
	for _, pair := range [][2][]string{{s["local"], c["remote"]}, {s["remote"], c["local"]}} {
		if len(pair[0]) != qps || strings.Join(pair[0], "\n") != strings.Join(pair[1], "\n") {
			return fmt.Errorf("the ends do not agree on %d addresses: %q and %q", qps, pair[0], pair[1])
		}
	}
	return nil
}

// addresses returns the local and remote addresses that a tool printed.
func addresses(out string) map[string][]string {
	m := map[string][]string{}
	for _, a := range addressLine.FindAllStringSubmatch(out, -1) {
		m[a[1]] = append(m[a[1]], strings.Join(a[2:], " "))
	}
	return m
}

// size returns the values that the options select: bytes of a message, exchanges, and QPs of an end.
func (p pingpong) size() (size, iters, qps int) {
	size, iters, qps = 4096, 1000, 1
	switch p.tool {
	case "ud":
		size = 1024 // although its help prints 2048
	case "srq":
		qps = 16
	}
	args := strings.Fields(p.args)
	for i := range args[:max(len(args)-1, 0)] {
		n, _ := strconv.Atoi(args[i+1])
		switch args[i] {
		case "-s":
			size = n
		case "-n":
			iters = n
		case "-q":
			qps = n
		}
	}
	return size, iters, qps
}
