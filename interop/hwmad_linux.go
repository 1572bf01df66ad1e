package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// madEnd is an end of management datagrams: our program on the software device of this host, our program on the guest's
// rxe0, or the program with C's libibumad there.
type madEnd string

const (
	madSoft madEnd = "soft"
	madHW   madEnd = "hw"
	madC    madEnd = "C"
)

// madCases exchange management datagrams between each two kinds of ends. The kernel passes no answer on that comes over
// IPv4, so there only the software device asks.
func madCases() (list []testCase) {
	for _, c := range []struct {
		server, client madEnd
		families       []int
	}{
		{madHW, madSoft, []int{4, 6}}, {madC, madSoft, []int{4, 6}}, {madSoft, madHW, []int{6}}, {madSoft, madC, []int{6}},
		{madHW, madC, []int{6}}, {madC, madHW, []int{6}},
	} {
		for _, family := range c.families {
			list = append(list, testCase{name: fmt.Sprintf("hw/umad/%s asks %s/ipv%d", c.client, c.server, family), oneWay: true,
				timeout: 3 * time.Minute, run: func(env *caseEnv, a, b *place) error {
					return exchangeMADs(env, a, b, c.server, c.client, family)
				}})
		}
	}
	return list
}

// exchangeMADs runs a server and a client.
func exchangeMADs(env *caseEnv, a, b *place, server, client madEnd, family int) error {
	guest, host := a, b
	if a.ours() {
		guest, host = b, a
	}
	env.ends.stopOurs()
	guest, err := env.lab.withHW(guest)
	if err != nil {
		return err
	}
	if err := env.lab.build("./interop/mad"); err != nil {
		return err
	}
	if err := env.lab.put(guest.id, filepath.Join(env.lab.root, "interop/mad/mad.py"), "/tmp/mad.py"); err != nil {
		return err
	}
	place := func(end madEnd) *place {
		if end == madSoft {
			return host
		}
		return guest
	}
	from, to := place(client), place(server)
	s, err := start(string(server)+" server", to.sh(server.program(to), env.left()))
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := until(env.ctx, func() bool { return strings.Contains(s.Out.String(), "ready") || s.Exited() }); err != nil {
		return fmt.Errorf("the server is not ready: %w", err)
	}
	line := fmt.Sprintf("%s -local %s -remote %s", client.program(from), from.addr(family), to.addr(family))
	if client == madC {
		line = fmt.Sprintf("%s %d %s", client.program(from), map[int]int{4: 1, 6: 2}[family], to.addr(family))
	}
	out, err := runCmd(from.sh(line, env.left()), env.left())
	env.log("client", out)
	env.log("server", s.Out.String())
	if err != nil {
		return fmt.Errorf("%w\nserver: %s", err, s.Out.String())
	}
	if !strings.Contains(out, "50 answers") {
		return fmt.Errorf("the client printed %q", out)
	}
	return nil
}

// program is the command of an end.
func (e madEnd) program(p *place) string {
	switch e {
	case madSoft:
		return "exec " + filepath.Join(p.lab.bin, "mad")
	case madHW:
		return hwFolder + "mad -d rxe0"
	}
	return "python3 -u /tmp/mad.py"
}
