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

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// lab is interop/lab: its scripts and the guests that they run.
type lab struct {
	root string // of the project
	dir  string // of the scripts
	bin  string // of our programs
	mine []int  // guests that this run started
	hw   *place // set by withHW

	// Lines of the log of guest 1's kernel: the last one before the first case, and the last one that a case has checked.
	firstMessage, lastMessage string
	complaints                error // of the kernel before firstMessage
}

// cannotRun returns why the suite cannot run on this machine; empty if it can.
func cannotRun() string {
	switch {
	case os.Geteuid() != 0:
		return "the lab needs root to create a network namespace and TAP devices"
	case !fileExists("/dev/net/tun"):
		return "/dev/net/tun is missing: mknod /dev/net/tun c 10 200, or pass the device into the container"
	}
	if _, err := exec.LookPath("bash"); err != nil {
		return "the lab's scripts need bash"
	}
	_, qemu := exec.LookPath("qemu-system-x86_64")
	_, apt := exec.LookPath("apt-get")
	if qemu != nil && apt != nil {
		return "qemu-system-x86_64 and apt-get, which would install it, are missing"
	}
	return ""
}

// projectRoot returns the folder of go.mod, the current one or one above it.
func projectRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for !fileExists(filepath.Join(dir, "go.mod")) {
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod here or above: run the suite in the project")
		}
		dir = up
	}
	return dir, nil
}

// script returns a command of the lab for guest id.
func (l *lab) script(id int, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(l.dir, name), args...)
	cmd.Env = append(os.Environ(), "LAB_ID="+strconv.Itoa(id))
	return cmd
}

// up boots a guest unless it is up. The first call builds the image.
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

// down stops the guests that this run started.
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

// build builds our programs, statically linked.
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

// place is one end of a case: this host with Verbena, or a guest with the kernel's device.
type place struct {
	lab  *lab
	name string // verbena or kernel
	id   int    // guest number; 0 for this host
	ip4  string
	ip6  string
	hw   bool     // a guest in which our programs use rxe0
	siw  bool     // the end's iWARP device is used
	env  []string // of our programs; nil: the RoCE device
}

// setting returns a setting of the lab's scripts.
func setting(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}

// places returns the two ends: ours and the kernel's, or two guests if self is set.
func (l *lab) places(self bool) [2]*place {
	net4, net6 := setting("LAB_NET4", "192.168.77"), setting("LAB_NET6", "fd77:")
	g := func(id int, name string) *place {
		return &place{lab: l, name: name, id: id, ip4: fmt.Sprintf("%s.%d", net4, id+1),
			ip6: fmt.Sprintf("%s:%x", net6, id+1)}
	}
	if self {
		return [2]*place{g(2, "guest2"), g(1, "kernel")}
	}
	return [2]*place{g(0, "verbena"), g(1, "kernel")}
}

func (p *place) ours() bool { return p.id == 0 }

// addr returns the RoCE address of a family.
func (p *place) addr(family int) string {
	if family == 6 {
		return p.ip6
	}
	return p.ip4
}

// sh returns a shell command at this end. In the guest it ends after limit at the latest.
func (p *place) sh(line string, limit time.Duration) *exec.Cmd {
	if p.ours() {
		return p.host("sh", "-c", line)
	}
	return p.lab.script(p.id, "run", fmt.Sprintf("timeout %d %s", int(limit.Seconds())+1, line))
}

// host returns a command on this host, in the lab's namespace.
func (p *place) host(args ...string) *exec.Cmd {
	cmd := p.lab.script(1, "host", args...)
	if p.env != nil {
		cmd.Env = append(cmd.Env, p.env...)
	} else {
		cmd.Env = append(cmd.Env, "VERBENA_DEVICES=roce")
	}
	return cmd
}

// tool returns a C tool, or ours of the same name, with the arguments that select device and GID.
func (p *place) tool(name string, family int, args []string, limit time.Duration) *exec.Cmd {
	if p.ours() {
		return p.host(append([]string{filepath.Join(p.lab.bin, "verbena"), name}, args...)...)
	}
	gid := map[int]string{0: "0", 4: "1", 6: "2"}[family] // of rxe
	if p.hw {
		name = hwFolder + "verbena " + name
	}
	return p.sh(strings.Join(append([]string{name, "-d", "rxe0", "-g", gid}, args...), " "), limit)
}

// peer returns the program that performs verbs calls on request.
func (p *place) peer() *exec.Cmd {
	if p.ours() {
		return p.host(filepath.Join(p.lab.bin, "peer"))
	}
	if p.hw {
		return p.lab.script(p.id, "run", "-i", "VERBENA_PROVIDER=hw exec "+hwFolder+"peer")
	}
	return p.lab.script(p.id, "run", "-i", "exec python3 -u /tmp/peer.py")
}

// listening waits until a program at this end listens on a TCP port, or server has ended.
func (p *place) listening(ctx context.Context, port int, server *proc.Proc) error {
	line := fmt.Sprintf("ss -ltnH 'sport = :%d'", port)
	for {
		out, err := runCmd(p.sh(line, 30*time.Second), 30*time.Second)
		switch {
		case err != nil:
			return err
		case strings.TrimSpace(out) != "":
			return nil
		case server.Ended():
			return fmt.Errorf("%s ended before it listened: %v", server.Name, server.Err)
		case ctx.Err() != nil:
			return fmt.Errorf("%s is not listening on TCP port %d", server.Name, port)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lock excludes other runs, which would use the same guests and ports. If the lock is held, the error names
// the holder.
func (l *lab) lock() (unlock func(), err error) {
	name := filepath.Join(os.TempDir(), "interop-"+setting("LAB_NETNS", "rdmalab")+".lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := io.ReadAll(f)
		_ = f.Close()
		return nil, fmt.Errorf("process %s runs the suite in this lab already; set LAB_NETNS for another lab", pid)
	}
	_ = f.Truncate(0)
	_, _ = fmt.Fprint(f, os.Getpid())
	return func() { _ = f.Close() }, nil
}
