package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// otherCases returns the cases without a direction: captures of both directions, and the guest's state at
// the end.
func otherCases() []testCase {
	return []testCase{
		{name: "capture/rc/ipv4", timeout: 3 * time.Minute, oneWay: true,
			run: func(e *caseEnv, a, p *place) error { return captured(e, 4, a, p) }},
		{name: "capture/rc/ipv6", timeout: 3 * time.Minute, oneWay: true,
			run: func(e *caseEnv, a, p *place) error { return captured(e, 6, a, p) }},
		{name: "guest/side-by-side", timeout: 10 * time.Minute, oneWay: true, run: sideBySide},
		{name: "guest/no-complaints", timeout: time.Minute, oneWay: true, last: true, run: noComplaints},
	}
}

// captured records RC sessions in both directions. Two independent programs check every packet: lab/decode
// the invariant CRCs, and tshark that each dissects as InfiniBand and none is malformed.
func captured(env *caseEnv, family int, x, y *place) error {
	if err := haveTshark(); err != nil {
		return err
	}
	file := filepath.Join(env.logDir, env.logName+".pcap")
	stop, err := startCapture(env.lab, file)
	if err != nil {
		return err
	}
	defer stop()
	small := pingpong{tool: "rc", args: "-n 50 -s 5000", family: family}
	prog := program{typ: "RC", family: family, mtu: 1024, size: 512 * kib, psn: 0xFFFFF0, depth: 4,
		batches: mixed(42, 6, 16)}
	for _, run := range []func(*caseEnv, *place, *place) error{small.run, prog.run} {
		for _, d := range [][2]*place{{x, y}, {y, x}} {
			if err := run(env, d[0], d[1]); err != nil {
				return fmt.Errorf("%s > %s: %w", d[0].name, d[1].name, err)
			}
		}
	}
	stop()
	decoded, err := runCmd(exec.Command(filepath.Join(env.lab.dir, "decode"), file), time.Minute)
	env.log("decode", decoded)
	if err != nil {
		return fmt.Errorf("lab/decode found wrong ICRCs: %w", err)
	}
	packets := strings.Count(decoded, "\n")
	if packets < 500 {
		return fmt.Errorf("the capture has only %d packets", packets)
	}
	for filter, want := range map[string]int{"infiniband && udp.dstport == 4791": packets, "_ws.malformed": 0} {
		got, err := dissect(file, filter)
		if err != nil {
			return err
		}
		if n := strings.Count(got, "\n"); n != want {
			return fmt.Errorf("tshark: %d packets of %d match %q, want %d\n%s", n, packets, filter, want, proc.Tail(got, 5))
		}
	}
	return nil
}

// dissect returns tshark's output for the packets that match a display filter, one line each. Dissection
// stops at InfiniBand: tshark would otherwise interpret some payloads as NFS or similar and report errors
// in them.
func dissect(file, filter string) (string, error) {
	args := []string{"-n", "-r", file, "-Y", filter}
	for _, guess := range []string{"smc", "smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "eoib",
		"infiniband_sdp", "fcoib"} {
		args = append(args, "--disable-protocol", guess)
	}
	cmd := exec.Command("tshark", args...)
	p := &proc.Output{}
	cmd.Stdout = p // not standard error, where it warns about running as root
	_, err := runCmd(cmd, 2*time.Minute)
	return p.String(), err
}

// harmless matches kernel messages that are no errors: rxe's network device has no speed, newer kernels log each failed
// request, an emulated processor is slow, and the iWARP device has no port mapper when a program listens on all
// devices.
var harmless = regexp.MustCompile(`speed is unknown|(entered|left) promiscuous mode|hrtimer: interrupt took|ifb0|` +
	`sched: RT throttling|iwpm_register_pid|non-flush error status`)

// complaints returns an error with the kernel messages that are not harmless.
func complaints(log string) error {
	var said []string
	for line := range strings.Lines(log) {
		if line = strings.TrimSpace(line); line != "" && !harmless.MatchString(line) {
			said = append(said, line)
		}
	}
	if len(said) > 0 {
		return fmt.Errorf("messages of the guest's kernel:\n%s", strings.Join(said, "\n"))
	}
	return nil
}

// provoking runs a case that provokes messages of a guest's kernel: newer ones write one for each refused call. They
// are held against no case.
func (l *lab) provoking(guest int, run func() error) error {
	log, err := l.guest(guest, "dmesg")
	if err != nil {
		return err
	}
	l.complaints = errors.Join(l.complaints, complaints(linesAfter(log, l.firstMessage)))
	result := run()
	log, err = l.guest(guest, "dmesg")
	l.firstMessage = lastLine(log)
	l.lastMessage = l.firstMessage
	return errors.Join(result, err)
}

// lastLine returns the last line of a kernel log, with its time.
func lastLine(log string) string {
	log = strings.TrimRight(log, "\n")
	return log[strings.LastIndexByte(log, '\n')+1:]
}

// linesAfter returns the lines of a kernel log after a line. If the log does not have the line any more, because the
// kernel keeps the newest lines only, all are newer.
func linesAfter(log, line string) string {
	_, news, found := strings.Cut("\n"+log, "\n"+line+"\n")
	if line == "" || !found {
		return log
	}
	return news
}

// noComplaints checks the guest after all other cases: its kernel must have logged no error, and no QP may
// exist.
func noComplaints(env *caseEnv, _, guest *place) error {
	env.ends.stop()
	dmesg, err := env.lab.guest(guest.id, "dmesg")
	if err != nil {
		return err
	}
	env.log("dmesg", dmesg)
	if err := errors.Join(env.lab.complaints, complaints(linesAfter(dmesg, env.lab.firstMessage))); err != nil {
		return err
	}
	qps, err := env.lab.guest(guest.id, "rdma resource show qp link rxe0")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(qps), "\n") {
		if !strings.Contains(line, "type GSI") {
			return fmt.Errorf("a QP is left in the guest: %s", line)
		}
	}
	return nil
}
