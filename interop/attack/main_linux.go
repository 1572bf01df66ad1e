package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// A testCase is one attack. run returns its figures, and an error if the programs did not withstand it.
type testCase struct {
	name string
	run  func(*place) (figures string, err error)
}

// errCannot is the error of a case that this machine cannot run.
var errCannot = errors.New("cannot run here")

var cases = []testCase{
	{"listener: half-open handshakes", halfOpen},
	{"listener: 10,000 requests per second", requests},
	{"listener: 100,000 packets/s, multicast QPN", flood(multicastQPN)},
	{"listener: 100,000 REQs/s, unused port", flood(unusedPort)},
	{"listener: 100,000 REQs/s, its port", flood(usedPort)},
	{"listener: 100,000 REQs/s, not in the leading process", floodOfMember(usedPort)},
	{"listener: 100,000 DREQs/s, its slot", flood(disconnects)},
	{"listener: 100,000 look-ups/s of datagrams", lookupFlood},
	{"listener: a stopped process at its address", stoppedMember},
	{"listener: sockets that another user reaches", otherUser},
	{"memory: packets for slots without an owner", unowned},
	{"processes: 200 on one address", processes},
	{"processes: descriptors of one", descriptors},
	{"limits: descriptors, 12 to 300", descriptorSweep},
	{"limits: refused system calls", refusedCalls},
	{"rproxy: more connections than descriptors", proxyDescriptors},
	{"rcopy: files outside the folder", copyOutside},
	{"terminal: names with escape sequences", terminalNames},
	{"serve: links in the shared folder", serveLinks},
	{"serve: connections of a member", assault{"knock", member, true, "knocked: "}.run},
	{"serve: connections of a user outside the group", assault{"knock", outsider, true, "knocked: "}.run},
	{"serve: sockets of a member whose close waits", assault{"give", member, true, "given: "}.run},
	{"leader: connections of another user", assault{"knock", outsider, false, "knocked: "}.run},
	{"leader: sockets of another user whose close waits", assault{"give", outsider, false, "given: "}.run},
	{"tree: lent pages hold one connection", goTest("./internal/engine", "TestLentMemory")},
	{"tree: floods of a listener", goTest("./rdmacm", "Flood|HalfOpen")},
	{"tree: system calls that are refused to UDP", goTest("./internal/link/udp", "TestRefused")},
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "role" {
		os.Exit(role(os.Args[2], os.Args[3:]))
	}
	list := flag.Bool("list", false, "list the cases and exit")
	only := flag.String("run", "", "run only the cases that match this regular expression")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack: -run:", err)
		os.Exit(2)
	}
	if *list {
		for _, c := range cases {
			fmt.Println(c.name)
		}
		return
	}
	if os.Getenv(inside) == "" {
		os.Exit(enter())
	}
	os.Exit(runAll(match))
}

// inside is set in the network namespace, oneUser in one without other users.
const (
	inside  = "ATTACK_INSIDE"
	oneUser = "ATTACK_ONE_USER"
)

// enter runs this program in a new network namespace.
func enter() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, append(os.Environ(), inside+"=1")
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		cmd.Env = append(cmd.Env, oneUser+"=1")
	}
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "attack: cannot run here: no network namespace:", err)
		return 2
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// runAll runs the matching cases and returns the exit status.
func runAll(match *regexp.Regexp) int {
	p, err := newPlace()
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack: cannot run:", err)
		return 2
	}
	defer p.remove()
	passed, failed, missing := 0, 0, 0
	for _, c := range cases {
		if !match.MatchString(c.name) {
			continue
		}
		start := time.Now()
		figures, err := c.run(p)
		p.stopAll()
		verdict := "ok    "
		switch {
		case errors.Is(err, errCannot):
			verdict, figures = "absent", err.Error()
			missing++
		case err != nil:
			verdict, figures = "FAILED", fmt.Sprintf("%v (%s)", err, figures)
			failed++
		default:
			passed++
		}
		fmt.Printf("%s  %-52s %6.1f s  %s\n", verdict, c.name, time.Since(start).Seconds(), figures)
	}
	fmt.Printf("%d withstood, %d failed, %d could not run\n", passed, failed, missing)
	if failed > 0 {
		return 1
	}
	return 0
}

// A place is the environment of the cases: a folder, the tools, and the started programs.
type place struct {
	dir     string
	verbena string
	started []*program
}

func newPlace() (*place, error) {
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // other users run the programs in it
		return nil, err
	}
	p := &place{dir: dir, verbena: filepath.Join(dir, "verbena")}
	build := exec.Command("go", "build", "-o", p.verbena, "./cmd/verbena")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	return p, os.Setenv("VERBENA_DEVICES", "a=127.0.0.1,b=127.0.0.2")
}

func (p *place) remove() { _ = os.RemoveAll(p.dir) }
