package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lab is interop/lab: its scripts and the guests that it runs.
type lab struct {
	root string // of the project
	dir  string // of the scripts
	bin  string // of our programs
	mine []int  // guests that this run has started

	dmesg string // what guest 1's kernel had said before the first case
	heard int    // how much of its log the cases have looked at
}

// cannotRun says why the suite cannot run on this machine; empty when it can.
func cannotRun() string {
	switch {
	case os.Geteuid() != 0:
		return "the lab needs root: it makes a network namespace and TAP devices"
	case !fileExists("/dev/net/tun"):
		return "/dev/net/tun is missing: mknod /dev/net/tun c 10 200, or pass the device into the container"
	}
	if _, err := exec.LookPath("bash"); err != nil {
		return "the lab's scripts need bash"
	}
	_, qemu := exec.LookPath("qemu-system-x86_64")
	_, apt := exec.LookPath("apt-get")
	if qemu != nil && apt != nil {
		return "qemu-system-x86_64 is missing, and apt-get to install it too"
	}
	return ""
}

// projectRoot is the folder of go.mod, here or above.
func projectRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for !fileExists(filepath.Join(dir, "go.mod")) {
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod here or above: run this in the project")
		}
		dir = up
	}
	return dir, nil
}

// script is a command of the lab, for guest id.
func (l *lab) script(id int, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(l.dir, name), args...)
	cmd.Env = append(os.Environ(), "LAB_ID="+strconv.Itoa(id))
	return cmd
}

// up boots a guest unless it is up already. The first time of all it builds the image.
func (l *lab) up(id int) error {
	out, err := runCmd(l.script(id, "up"), 30*time.Minute)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "already up") {
		l.mine = append(l.mine, id)
	}
	return nil
}

// down stops the guests that this run has started.
func (l *lab) down() {
	for _, id := range l.mine {
		if _, err := runCmd(l.script(id, "down"), time.Minute); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
		}
	}
	l.mine = nil
}

// guest runs a shell line in a guest.
func (l *lab) guest(id int, line string) (string, error) {
	return runCmd(l.script(id, "run", line), 30*time.Second)
}

// put copies a file into a guest.
func (l *lab) put(id int, local, remote string) error {
	_, err := runCmd(l.script(id, "put", local, remote), 30*time.Second)
	return err
}

// build makes our programs, static.
func (l *lab) build(packages ...string) error {
	for _, p := range packages {
		cmd := exec.Command("go", "build", "-o", filepath.Join(l.bin, filepath.Base(p)), p)
		cmd.Dir = l.root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if _, err := runCmd(cmd, 10*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// place is one end of a case: this machine with Verbena, or a guest with the kernel's device.
type place struct {
	lab  *lab
	name string // verbena or kernel
	id   int    // guest number; 0 for this machine
	ip4  string
	ip6  string
}

// setting is a setting of the lab's scripts.
func setting(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}

// places are the two ends: ours and the kernel's, or two guests when self is set.
func (l *lab) places(self bool) [2]*place {
	net4, net6 := setting("LAB_NET4", "192.168.77"), setting("LAB_NET6", "fd77:")
	g := func(id int, name string) *place {
		return &place{lab: l, name: name, id: id, ip4: fmt.Sprintf("%s.%d", net4, id+1), ip6: fmt.Sprintf("%s:%x", net6, id+1)}
	}
	if self {
		return [2]*place{g(2, "guest2"), g(1, "kernel")}
	}
	return [2]*place{g(0, "verbena"), g(1, "kernel")}
}

func (p *place) ours() bool { return p.id == 0 }

// addr is the RoCE address of a family.
func (p *place) addr(family int) string {
	if family == 6 {
		return p.ip6
	}
	return p.ip4
}

// sh is a shell line on that side. In the guest it ends by itself after limit, whatever happens here.
func (p *place) sh(line string, limit time.Duration) *exec.Cmd {
	if p.ours() {
		return p.host("sh", "-c", line)
	}
	return p.lab.script(p.id, "run", fmt.Sprintf("timeout %d %s", int(limit.Seconds())+1, line))
}

// host is a command on this machine, in the lab's namespace.
func (p *place) host(args ...string) *exec.Cmd {
	cmd := p.lab.script(1, "host", args...)
	cmd.Env = append(cmd.Env, "VERBENA_DEVICES=roce")
	return cmd
}

// tool is one of the C tools, or ours of that name, with the arguments that choose device and GID.
func (p *place) tool(name string, family int, args []string, limit time.Duration) *exec.Cmd {
	if p.ours() {
		return p.host(append([]string{filepath.Join(p.lab.bin, "verbena"), name}, args...)...)
	}
	gid := map[int]string{0: "0", 4: "1", 6: "2"}[family] // of rxe
	return p.sh(strings.Join(append([]string{name, "-d", "rxe0", "-g", gid}, args...), " "), limit)
}

// peer is the program that does verbs calls on request.
func (p *place) peer() *exec.Cmd {
	if p.ours() {
		return p.host(filepath.Join(p.lab.bin, "peer"))
	}
	return p.lab.script(p.id, "run", "-i", "exec python3 -u /tmp/peer.py")
}

// listening waits until something listens on a TCP port of that side, or proc has ended.
func (p *place) listening(ctx context.Context, port int, proc *proc) error {
	line := fmt.Sprintf("ss -ltnH 'sport = :%d'", port)
	for {
		out, err := runCmd(p.sh(line, 30*time.Second), 30*time.Second)
		switch {
		case err != nil:
			return err
		case strings.TrimSpace(out) != "":
			return nil
		case proc.ended():
			return fmt.Errorf("%s ended before it listened: %v", proc.name, proc.err)
		case ctx.Err() != nil:
			return fmt.Errorf("%s does not listen on TCP port %d", proc.name, port)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lock keeps other runs out: they would use the same guests and ports. Without the lock it says who has it.
func (l *lab) lock() (unlock func(), err error) {
	name := filepath.Join(os.TempDir(), "interop-"+setting("LAB_NETNS", "rdmalab")+".lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := io.ReadAll(f)
		_ = f.Close()
		return nil, fmt.Errorf("process %s runs the suite in this lab already; LAB_NETNS names another lab", pid)
	}
	_ = f.Truncate(0)
	_, _ = fmt.Fprint(f, os.Getpid())
	return func() { _ = f.Close() }, nil
}
