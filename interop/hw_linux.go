package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// hwFolder is where the guest has our programs that use its own devices.
const hwFolder = "/tmp/hw/"

// hwCases are those in which our programs use the guest's rxe0 by provider/hw. The other end is the software device on
// this host, or a C program in the guest.
func hwCases() []testCase {
	var list []testCase
	for _, tool := range []string{"rc", "uc", "ud", "srq"} {
		for _, args := range []string{"-n 200", "-e -c -n 100"} {
			p := pingpong{tool: tool, args: args, family: 4}
			list = append(list, testCase{name: "hw/" + tool + "_pingpong/" + args, timeout: 2 * time.Minute, run: onHW(p.run)})
		}
	}
	for _, c := range programCases() {
		if rest, ok := strings.CutPrefix(c.name, "verbs/"); ok && c.network == clean && strings.HasSuffix(rest, "/ipv4") {
			list = append(list, testCase{name: "hw/" + c.name, timeout: 2 * c.timeout, run: onHW(c.run)})
		}
	}
	for _, c := range append(cmCases(), rsCases()...) {
		chosen := func(prefix string) bool { return strings.HasPrefix(c.name, prefix) }
		if c.network == clean && slices.ContainsFunc(hwConnections, chosen) {
			list = append(list, testCase{name: "hw/" + c.name, timeout: 2 * c.timeout, oneWay: c.oneWay, run: onHW(c.run)})
		}
	}
	for _, net := range []string{roceNet, iwarpNet} {
		for _, c := range hwPairs() {
			name := "hw/guest/" + deviceOf[net] + "/" + c.name
			list = append(list, testCase{name: name, timeout: 3 * time.Minute, oneWay: true,
				run: func(env *caseEnv, _, guest *place) error { return c.inGuest(env, guest, net) }})
		}
	}
	for _, tool := range []string{"ib_send_lat -n 100", "ib_write_lat -n 100", "ib_read_lat -n 100",
		"ib_send_bw -n 300", "ib_write_bw -n 300", "ib_read_bw -n 300", "ib_atomic_bw -n 100"} {
		list = append(list, testCase{name: "hw/guest/" + tool, timeout: 3 * time.Minute, oneWay: true,
			run: func(env *caseEnv, _, guest *place) error { return hwAndC(env, guest, tool) }})
	}
	return append(append(list, madCases()...), hwOwnCases()...)
}

// hwConnections are the cases of connection management and rsockets that run on the guest's devices too.
var hwConnections = []string{
	"cm/rping/-C 1000 -S 64 ", "cm/rping/-P", "cm/ucmatose", "cm/udaddy", "cm/rdma_client", "cm/mckey", "cm/refused",
	"cm/cmtime/", "rsocket/rstream/-S 4096 -C 100", "rsocket/rstream/-S 65537", "rsocket/riostream/-S 4096 -C 50",
}

// deviceOf has the guest's device for the beginning of its address.
var deviceOf = map[string]string{roceNet: "rxe0", iwarpNet: "siw0"}

// The beginnings of the guest's addresses.
var roceNet, iwarpNet = setting("LAB_NET4", "192.168.77") + ".", setting("LAB_CTL4", "192.168.78") + "."

// hwPairs are programs that run in the guest against themselves and against the C programs.
func hwPairs() []cmRun {
	const success = `return status 0`
	return []cmRun{
		{name: "rping", server: "rping -s -a ADDR -S 4096 -V", client: "rping -c -a ADDR -C 50 -S 4096 -V -v",
			clientSays: `ping data: rdma-ping-49: `},
		{name: "ucmatose", server: "ucmatose -b ADDR -c 5", client: "ucmatose -s ADDR -c 5", serverSays: success,
			clientSays: success},
		{name: "rdma_client", server: "rdma_server -s ADDR", client: "rdma_client -s ADDR", serverSays: `end 0`,
			clientSays: `end 0`},
		{name: "rstream", server: "rstream -b ADDR -S 4096 -C 50 -T v", client: "rstream -s ADDR -S 4096 -C 50 -T v",
			serverSays: `(?m)^custom .*\d$`, clientSays: `(?m)^custom .*\d$`},
	}
}

// inGuest runs the pair three times: with one end of C, with the other, and with both ends ours.
func (r cmRun) inGuest(env *caseEnv, guest *place, net string) error {
	env.ends.stopOurs()
	ours, err := env.lab.withHW(guest)
	if err != nil {
		return err
	}
	fill := strings.NewReplacer("ADDR", fmt.Sprint(net, guest.id+1))
	for _, ends := range [][2]*place{{ours, guest}, {guest, ours}, {ours, ours}} {
		server, err := ends[0].cm(fill.Replace(r.server), env.left())
		if err != nil {
			return err
		}
		defer server.Stop()
		if err := ends[0].cmReady(env.ctx, server); err != nil {
			return err
		}
		client, err := ends[1].cm(fill.Replace(r.client), env.left())
		if err != nil {
			return err
		}
		defer client.Stop()
		err = r.judge(client, client.Wait(env.ctx), false, r.clientSays)
		if err == nil {
			err = r.judge(server, server.Wait(env.ctx), false, r.serverSays)
		}
		env.log("client", client.Out.String())
		env.log("server", server.Out.String())
		if err != nil {
			return fmt.Errorf("%s and %s: %w\n%s", server.Name, client.Name, err, proc.Tail(server.Out.String(), 8))
		}
	}
	return nil
}

// onHW makes the guest's end of a case our program.
func onHW(run func(*caseEnv, *place, *place) error) func(*caseEnv, *place, *place) error {
	return func(env *caseEnv, active, passive *place) error {
		ends := [2]*place{active, passive}
		for i, p := range ends {
			if p.ours() {
				continue
			}
			guest, err := env.lab.withHW(p)
			if err != nil {
				return err
			}
			ends[i] = guest
		}
		return run(env, ends[0], ends[1])
	}
}

// withHW builds our programs with provider/hw, copies them to a guest, and returns the guest with them.
func (l *lab) withHW(p *place) (*place, error) {
	if l.hw != nil {
		return l.hw, nil
	}
	if _, err := l.guest(p.id, "mkdir -p "+hwFolder); err != nil {
		return nil, err
	}
	for name, args := range map[string][]string{
		"verbena": {"build", "-tags", "hw", "./cmd/verbena"}, "peer": {"build", "-tags", "hw", "./interop/peer"},
		"mad":     {"build", "-tags", "hw", "./interop/mad"},
		"hw.test": {"test", "-c", "./provider/hw"}, "auto.test": {"test", "-c", "./provider/auto"},
	} {
		file := filepath.Join(l.bin, "hw-"+name)
		last := len(args) - 1
		cmd := exec.Command("go", append(append(args[:last:last], "-o", file), args[last])...)
		cmd.Dir, cmd.Env = l.root, append(os.Environ(), "CGO_ENABLED=0")
		if _, err := runCmd(cmd, 10*time.Minute); err != nil {
			return nil, err
		}
		if err := l.put(p.id, file, hwFolder+name); err != nil {
			return nil, err
		}
	}
	guest := *p
	guest.name, guest.hw = "hw", true
	l.hw = &guest
	return l.hw, nil
}

// hwAndC runs a tool of perftest in the guest, our program against the C program, either as the server.
func hwAndC(env *caseEnv, p *place, line string) error {
	guest, err := env.lab.withHW(p)
	if err != nil {
		return err
	}
	words := strings.Fields(line)
	ours := hwFolder + "verbena " + words[0]
	args := "-d rxe0 -x 1 " + strings.Join(words[1:], " ")
	for _, programs := range [][2]string{{ours, words[0]}, {words[0], ours}} {
		server, err := start("server", guest.sh(programs[0]+" "+args, env.left()))
		if err != nil {
			return err
		}
		if err = guest.listening(env.ctx, pingpongPort, server); err == nil {
			_, err = runCmd(guest.sh(programs[1]+" "+args+" "+guest.ip4, env.left()), env.left())
		}
		if err == nil {
			ctx, cancel := context.WithTimeout(env.ctx, 20*time.Second)
			err = server.Wait(ctx)
			cancel()
		}
		out := server.Out.String()
		server.Stop()
		if err != nil {
			return fmt.Errorf("server %s, client %s: %w\nserver:\n%s", programs[0], programs[1], err, out)
		}
	}
	return nil
}
