package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// preloaded is the library in a guest with which librdmacm's datagram sockets work on RoCE.
const preloaded = "/tmp/ah.so"

// preload builds the library and copies it into a guest.
func (l *lab) preload(id int) error {
	so := filepath.Join(l.bin, "ah.so")
	src := filepath.Join(l.root, "interop", "preload", "ah.c")
	if _, err := runCmd(exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", so, src, "-ldl"), time.Minute); err != nil {
		return err
	}
	return l.put(id, so, preloaded)
}

// udpongCases returns cases of datagram sockets: echoes, and counted messages of which some may be lost.
func udpongCases() (all []testCase) {
	for _, f := range []int{4, 6} {
		for _, args := range []string{"-S 64 -C 200 -T e", "-S 1000 -C 200 -T e", "-S 2000 -C 50 -T e -T b",
			"-S 1000 -C 1000", "-S 64 -C 50 -T e -T a"} {
			all = append(all, testCase{
				name: "rsocket/udpong/" + args + "/" + familyName(f), timeout: time.Minute,
				run: func(env *caseEnv, active, passive *place) error { return udpong(env, active, passive, f, args) },
			})
		}
	}
	all = append(all, testCase{
		name: "rsocket/udpong, both ends ours/" + familyName(4), timeout: time.Minute, oneWay: true,
		run: func(env *caseEnv, active, passive *place) error {
			for _, p := range []*place{active, passive} {
				if p.ours() {
					return udpong(env, p, p, 4, "-S 1000 -C 200 -T e")
				}
			}
			return nil // two guests
		},
	})
	return all
}

func udpong(env *caseEnv, active, passive *place, family int, args string) error {
	env.ends.stopOurs()
	program := func(p *place, line string) (*proc.Proc, error) {
		if !p.ours() {
			line = "env LD_PRELOAD=" + preloaded + " " + line
		}
		return p.cm(line, env.left())
	}
	server, err := program(passive, "udpong -b "+passive.addr(family))
	if err != nil {
		return err
	}
	defer server.Stop()
	for {
		out, err := runCmd(passive.sh("ss -lunH sport = :7174", 30*time.Second), 30*time.Second)
		switch {
		case err != nil:
			return err
		case server.Ended():
			return fmt.Errorf("%s ended at once: %w\n%s", server.Name, server.Err, proc.Tail(server.Out.String(), 8))
		case env.ctx.Err() != nil:
			return fmt.Errorf("%s is not listening", server.Name)
		}
		if strings.TrimSpace(out) != "" {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	client, err := program(active, "udpong -s "+passive.addr(family)+" "+args)
	if err != nil {
		return err
	}
	defer client.Stop()
	says := cmRun{}
	err = says.judge(client, client.Wait(env.ctx), false, `(?m)^custom .*\d$`)
	env.log("client", client.Out.String())
	server.Stop()
	env.log("server", server.Out.String())
	if err != nil {
		return fmt.Errorf("%w\nserver: %s", err, proc.Tail(server.Out.String(), 8))
	}
	return nothingLeft(env, active, passive)
}
