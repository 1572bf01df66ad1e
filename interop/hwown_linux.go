package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// hwOwnCases are those in which both ends are ours, in the guest: the providers' own tests, and connections whose peer
// or device goes away.
func hwOwnCases() []testCase {
	const device = "RoundsLeakNothing|TestMemory|NoAllocation|Inline"
	const datagrams = "MAD(Calls|Errors|OverIPv4|Agents|Rights)"
	const connections = "TestConnections|OwnQP|Backlog|PathMTU"
	list := []testCase{
		{name: "hw/guest/tests/rxe0", run: hwTests("hw.test", "rxe0", "", device+"|"+connections+"|"+datagrams)},
		{name: "hw/guest/tests/siw0", run: hwTests("hw.test", "siw0", "", connections+"|MADRights")},
		{name: "hw/guest/tests/auto/rxe0", run: hwTests("auto.test", "rxe0", roceNet+"2", ".")},
		{name: "hw/guest/tests/auto/siw0", run: hwTests("auto.test", "siw0", iwarpNet+"2", ".")},
	}
	for net, device := range deviceOf {
		for _, victim := range []string{"client", "server"} {
			list = append(list, testCase{name: "hw/guest/killed/" + device + "/" + victim,
				run: func(env *caseEnv, _, p *place) error { return hwKilled(env, p, net, victim) }})
		}
	}
	list = append(list, testCase{name: "hw/guest/removed", run: hwRemoved},
		testCase{name: "hw/guest/umad/removed", run: hwMADRemoved}, testCase{name: "hw/guest/umad/rights", run: hwMADRights})
	for i := range list {
		list[i].timeout, list[i].oneWay = 10*time.Minute, true
	}
	return append(list, testCase{name: "hw/guest/conformance/rxe0", timeout: 40 * time.Minute, oneWay: true,
		run: hwConformance})
}

// hwTests runs tests of a provider on the guest's device.
func hwTests(program, device, peer, tests string) func(*caseEnv, *place, *place) error {
	return func(env *caseEnv, _, p *place) error {
		return hwRun(env, p, fmt.Sprintf("env VERBENA_TEST_DEVICE=%s VERBENA_TEST_PEER=%s ROUNDS=50 "+hwFolder+
			"%s -test.v -test.run '%s'", device, peer, program, tests))
	}
}

// hwTestsAs runs tests of provider/hw by a command, which has the program and its arguments appended.
func hwTestsAs(env *caseEnv, p *place, by, device, tests string) error {
	return hwRun(env, p, fmt.Sprintf("env VERBENA_TEST_DEVICE=%s %s %shw.test -test.v -test.timeout 2m -test.run '%s'",
		device, by, hwFolder, tests))
}

// hwRun runs a command with tests in the guest. None may be skipped.
func hwRun(env *caseEnv, p *place, line string) error {
	guest, err := env.lab.withHW(p)
	if err != nil {
		return err
	}
	out, err := runCmd(guest.sh(line, env.left()), env.left())
	env.log("tests", out)
	switch {
	case err != nil:
		return fmt.Errorf("%w\n%s", err, proc.Tail(out, 20))
	case strings.Contains(out, "--- SKIP"), !strings.Contains(out, "--- PASS"):
		return fmt.Errorf("a test was skipped\n%s", out)
	}
	return nil
}

// hwPair starts rping without end at an address of the guest, and returns both ends when they are connected.
func hwPair(env *caseEnv, p *place, addr string) (guest *place, server, client *proc.Proc, err error) {
	env.ends.stopOurs()
	if guest, err = env.lab.withHW(p); err != nil {
		return nil, nil, nil, err
	}
	if server, err = guest.cm("rping -s -a "+addr+" -C 100000000 -v", env.left()); err != nil {
		return nil, nil, nil, err
	}
	if err = guest.cmReady(env.ctx, server); err == nil {
		client, err = guest.cm("rping -c -a "+addr+" -C 100000000 -v", env.left())
	}
	if err == nil {
		err = until(env.ctx, func() bool { return strings.Contains(client.Out.String(), "rdma-ping-9: ") })
	}
	if err != nil {
		server.Stop()
		if client != nil {
			client.Stop()
		}
	}
	return guest, server, client, err
}

// until waits until a condition holds.
func until(ctx context.Context, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// hwKilled kills one of two connected programs of the guest: the kernel ends its connection, and the other program
// ends.
func hwKilled(env *caseEnv, p *place, net, victim string) error {
	guest, server, client, err := hwPair(env, p, fmt.Sprint(net, p.id+1))
	if err != nil {
		return err
	}
	defer server.Stop()
	defer client.Stop()
	option, left := "-s", client
	if victim == "client" {
		option, left = "-c", server
	}
	if _, err := env.lab.guest(guest.id, "pkill -9 -f '^"+hwFolder+"verbena rping "+option+"'"); err != nil {
		return err
	}
	return endsSaying(env, left, `(?i)disconnect`)
}

// hwRemoved deletes a device of the guest while programs are connected over it: the deletion succeeds, and both end and
// say why.
func hwRemoved(env *caseEnv, _, p *place) error {
	const addr = "198.18.7.1"
	const without = "rdma link delete rxe7; ip link del dummy7"
	defer env.lab.guest(p.id, without)
	if _, err := env.lab.guest(p.id, "ip link add dummy7 type dummy && ip addr add "+addr+"/24 dev dummy7 && "+
		"ip link set dummy7 up mtu 1500 && rdma link add rxe7 type rxe netdev dummy7"); err != nil {
		return err
	}
	guest, server, client, err := hwPair(env, p, addr)
	if err != nil {
		return err
	}
	defer server.Stop()
	defer client.Stop()
	if _, err := env.lab.guest(guest.id, "timeout 20 rdma link delete rxe7"); err != nil {
		return fmt.Errorf("deleting the device: %w", err)
	}
	for _, end := range []*proc.Proc{client, server} {
		if err := endsSaying(env, end, `device was removed`); err != nil {
			return err
		}
	}
	return nil
}

// hwMADRemoved deletes a device of the guest while a program waits for management datagrams.
func hwMADRemoved(env *caseEnv, _, p *place) error {
	const without = "rdma link delete rxe7"
	defer env.lab.guest(p.id, without+"; ip link del dummy7")
	if _, err := env.lab.guest(p.id, "ip link add dummy7 type dummy && ip addr add 198.18.7.1/24 dev dummy7 && "+
		"ip link set dummy7 up mtu 1500 && rdma link add rxe7 type rxe netdev dummy7"); err != nil {
		return err
	}
	return hwTestsAs(env, p, "env VERBENA_TEST_REMOVE='"+without+"'", "rxe7", "MADRemoval")
}

// hwMADRights opens QP 1 as another user than root.
func hwMADRights(env *caseEnv, _, p *place) error {
	if _, err := env.lab.guest(p.id, "chmod 755 /tmp "+hwFolder); err != nil {
		return err
	}
	const user = `python3 -c "import os, sys; os.setgid(65534); os.setuid(65534); os.execvp(sys.argv[1], sys.argv[1:])"`
	return hwTestsAs(env, p, user, "rxe0", "MADRights")
}

// endsSaying expects a program to end within 20 s, and its output to match.
func endsSaying(env *caseEnv, end *proc.Proc, says string) error {
	ctx, cancel := context.WithTimeout(env.ctx, 20*time.Second)
	defer cancel()
	err := end.Wait(ctx)
	out := proc.Tail(end.Out.String(), 8)
	env.log("survivor", out)
	if !end.Exited() {
		return fmt.Errorf("%s does not end: %w\n%s", end.Name, err, out)
	}
	if !regexp.MustCompile(says).MatchString(out) {
		return fmt.Errorf("%s: the output does not match %q\n%s", end.Name, says, out)
	}
	return nil
}
