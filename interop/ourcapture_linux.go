package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// ourCaptureCases returns cases in which our programs write captures, on every path that packets take.
func ourCaptureCases() (list []testCase) {
	add := func(name string, n network, run func(e *caseEnv, a, p *place) error) {
		list = append(list, testCase{name: "capture/ours/" + name, timeout: 2 * time.Minute, oneWay: true, network: n,
			run: run})
	}
	for _, family := range []int{4, 6} {
		add("udp/"+familyName(family), clean,
			func(e *caseEnv, a, _ *place) error { return captureBetween(e, a, family, "VERBENA_SHM=0") })
		add("shm/"+familyName(family), clean,
			func(e *caseEnv, a, _ *place) error { return captureBetween(e, a, family, "VERBENA_SHM=1") })
	}
	add("kernel/ipv4", clean, captureWithKernel)
	add("kernel/ipv4/lost", veryLossy, captureWithKernel)
	return list
}

// ourCapture returns the name of a file that one of our programs writes.
func ourCapture(env *caseEnv, end string) string {
	return filepath.Join(env.logDir, env.logName+"."+end+".pcapng")
}

// captureBetween makes two of our programs on one host capture their traffic, then a third one capture it
// while they run.
func captureBetween(env *caseEnv, at *place, family int, how string) error {
	env.ends.stopOurs()
	verbena := filepath.Join(at.lab.bin, "verbena")
	old, _ := filepath.Glob(ourCapture(env, "*")) // of an earlier run
	for _, file := range old {
		_ = os.Remove(file)
	}
	// 200 messages in each direction, of at least 2 packets, and acknowledgements.
	if err := ourEnds(env, at, family, "-n 200 -b", how, "VERBENA_PCAP="+ourCapture(env, "%p")); err != nil {
		return err
	}
	files, err := filepath.Glob(ourCapture(env, "*"))
	if err != nil {
		return err
	}
	if len(files) != 2 {
		return fmt.Errorf("two programs wrote %d captures: %q", len(files), files)
	}
	for _, file := range files {
		if err := judgeCapture(env, verbena, file, 800, ""); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	live := ourCapture(env, "live")
	watch, err := start("verbena capture", at.host(verbena, "capture", "-i", "vrb_roce", "-c", "1000", "-w", live))
	if err != nil {
		return err
	}
	defer watch.Stop()
	if err := ourEnds(env, at, family, "-D 3 -f 1", how); err != nil {
		return err
	}
	if err := watch.Wait(env.ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, watch.Out)
	}
	return judgeCapture(env, verbena, live, 1000, "")
}

// ourEnds runs ib_send_bw between two of our programs.
func ourEnds(env *caseEnv, at *place, family int, options string, environment ...string) error {
	index := map[int]string{4: "1", 6: "2"}[family]
	args := append(strings.Fields(options), "-s", "5000", "-x", index)
	run := func(end string, args ...string) (*proc.Proc, error) {
		cmd := at.host(append([]string{filepath.Join(at.lab.bin, "verbena"), "ib_send_bw"}, args...)...)
		cmd.Env = append(cmd.Env, environment...)
		return start(end, cmd)
	}
	server, err := run("server", args...)
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := at.listening(env.ctx, 18515, server); err != nil {
		return fmt.Errorf("%w\n%s", err, server.Out)
	}
	client, err := run("client", append(args, at.ip4)...)
	if err != nil {
		return err
	}
	defer client.Stop()
	for _, p := range []*proc.Proc{client, server} {
		if err := p.Wait(env.ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, proc.Tail(p.Out.String(), 10))
		}
	}
	return nil
}

// captureWithKernel makes our program capture its traffic with the kernel's. On a bad network the comments
// must give the reasons for retransmissions.
func captureWithKernel(env *caseEnv, ours, kernel *place) error {
	cmds := perftest{tool: "send_bw", args: "-n 300 -s 5000 -b -u 16", family: 4}
	env.ends.stopOurs()
	server, err := cmds.command(kernel, env.left())
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := kernel.listening(env.ctx, 18515, server); err != nil {
		return err
	}
	verbena := filepath.Join(ours.lab.bin, "verbena")
	cmd := ours.host(verbena, "ib_send_bw", "-n", "300", "-s", "5000", "-b", kernel.ip4)
	cmd.Env = append(cmd.Env, "VERBENA_PCAP="+ourCapture(env, "client"))
	client, err := start("client", cmd)
	if err != nil {
		return err
	}
	defer client.Stop()
	if err := client.Wait(env.ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, proc.Tail(client.Out.String(), 10))
	}
	says := ""
	if strings.Contains(env.logName, "lost") {
		says = "sent again"
	}
	return judgeCapture(env, verbena, ourCapture(env, "client"), 1200, says)
}

// judgeCapture checks one of our captures: tshark must find at least least packets, none malformed and each
// with a comment; lab/decode must find every invariant CRC correct; and the output of verbena explain must
// contain says.
func judgeCapture(env *caseEnv, verbena, file string, least int, says string) error {
	if err := haveTshark(); err != nil {
		return err
	}
	plain := strings.TrimSuffix(file, "ng")
	end := strings.TrimSuffix(filepath.Base(plain), ".pcap")
	if _, err := runCmd(exec.Command("editcap", "-F", "pcap", file, plain), time.Minute); err != nil {
		return err
	}
	decoded, err := runCmd(exec.Command(filepath.Join(env.lab.dir, "decode"), plain), time.Minute)
	env.log(end+".decode", decoded)
	if err != nil {
		return fmt.Errorf("lab/decode found wrong ICRCs: %w", err)
	}
	packets := strings.Count(decoded, "\n")
	if packets < least {
		return fmt.Errorf("the capture has %d packets, want %d or more", packets, least)
	}
	for filter, want := range map[string]int{"": packets, "infiniband && udp.dstport == 4791": packets,
		`frame.comment contains "QP 0x"`: packets, "_ws.malformed": 0} {
		got, err := dissect(file, filter)
		if err != nil {
			return err
		}
		if n := strings.Count(got, "\n"); n != want {
			return fmt.Errorf("tshark: %d packets of %d match %q, want %d\n%s", n, packets, filter, want, proc.Tail(got, 5))
		}
	}
	story, err := runCmd(exec.Command(verbena, "explain", file), time.Minute)
	env.log(end+".explain", story)
	if err != nil {
		return err
	}
	if want := "SEND, 5000 bytes"; !strings.Contains(story, want) || !strings.Contains(story, says) {
		return fmt.Errorf("verbena explain does not print %q and %q:\n%s", want, says, proc.Tail(story, 10))
	}
	return nil
}
