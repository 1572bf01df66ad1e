package rdmashow

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// TestMain makes the test binary serve as "verbena top" on a host with 1,000 QPs, and as the shell that
// starts it.
func TestMain(m *testing.M) {
	switch os.Getenv("TOP_TEST") {
	case "top":
		h := &fakeHost{names: []string{"vrb_a"}}
		for i := range uint32(1000) {
			h.list = append(h.list, scene(sent(1+i, 0, 0, 0, 0))...)
		}
		os.Exit(top(&tool.Env{Argv0: "verbena top", Stdout: os.Stdout, Stderr: os.Stderr}, h,
			strings.Fields(os.Getenv("TOP_ARGS"))))
	case "failing top":
		m := &movie{fakeHost: fakeHost{names: []string{"vrb_a"}}, scenes: [][]control.Report{nil, nil}}
		os.Exit(top(&tool.Env{Argv0: "verbena top", Stdout: os.Stdout, Stderr: os.Stderr}, m, []string{"-d", "0.1"}))
	case "shell":
		os.Exit(shell())
	}
	os.Exit(m.Run())
}

// shell runs top in the foreground, and continues it after a stop as fg does.
func shell() int {
	signal.Ignore(syscall.SIGTTOU) // it takes the terminal back
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TOP_TEST=top")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 100
	}
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			return status.ExitStatus()
		}
		foreground(os.Getpid())
		fmt.Println("stopped by", status.StopSignal())
		_, _ = os.Stdin.Read(make([]byte, 100)) // a line: "fg"
		foreground(cmd.Process.Pid)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT)
	}
}

func foreground(group int) { _ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group) }

// terminal is a pseudo-terminal.
type terminal struct {
	t      *testing.T
	master *os.File
	fd     int // of master
	slave  *os.File
	cmd    *exec.Cmd
	before unix.Termios

	mu  sync.Mutex
	out bytes.Buffer
}

// onTerminal starts a program on its own terminal.
func onTerminal(t *testing.T, program, args string, width, rows uint16, change func(*exec.Cmd)) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	x := &terminal{t: t, fd: fd, master: os.NewFile(uintptr(fd), "/dev/ptmx")}
	t.Cleanup(func() { x.master.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		x.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { x.slave.Close() })
	x.resize(width, rows)
	x.before = x.termios()
	x.cmd = exec.Command(os.Args[0])
	x.cmd.Env = append(os.Environ(), "TERM=xterm", "TOP_TEST="+program, "TOP_ARGS="+args)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = x.slave, x.slave, x.slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if change != nil {
		change(x.cmd)
	}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.cmd.Process.Kill(); _ = x.cmd.Wait() })
	go func() {
		for b := make([]byte, 1<<16); ; {
			n, err := x.master.Read(b)
			if err != nil {
				return
			}
			x.mu.Lock()
			x.out.Write(b[:n])
			x.mu.Unlock()
		}
	}()
	return x
}

func (x *terminal) resize(width, rows uint16) {
	x.t.Helper()
	if err := unix.IoctlSetWinsize(int(x.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: rows}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) termios() unix.Termios {
	x.t.Helper()
	a, err := unix.IoctlGetTermios(int(x.slave.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	return *a
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.String()
}

// patience is the time that a program has: each is in a session of its own, so that the scheduler gives it no more than
// a share of a loaded machine.
const patience = time.Minute

// until waits for a condition.
func (x *terminal) until(what string, ok func() bool) {
	x.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Fatalf("no %s; output %q", what, x.text())
		}
	}
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// drawn waits for n tables and returns the last one.
func (x *terminal) drawn(n int) []string {
	x.t.Helper()
	var list [][]string
	x.until(fmt.Sprintf("%d tables", n), func() bool { list = frames(x.t, x.text()); return len(list) >= n })
	return list[len(list)-1]
}

// ended waits for the end. The terminal must have its original state.
func (x *terminal) ended(status int) {
	x.t.Helper()
	killer := time.AfterFunc(patience, func() { _ = x.cmd.Process.Kill() })
	defer killer.Stop()
	_ = x.cmd.Wait()
	if got := x.cmd.ProcessState.ExitCode(); got != status {
		x.t.Errorf("%v, want status %d; output %q", x.cmd.ProcessState, status, x.text())
	}
	if x.termios() != x.before {
		x.t.Errorf("the terminal is left in another mode: %+v, was %+v", x.termios(), x.before)
	}
}

func (x *terminal) isRaw() bool { return x.termios().Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0 }

// The first table appears before the first rates and fits the terminal. A change of size takes effect at
// once.
func TestTopSizes(t *testing.T) {
	t.Parallel()
	x := onTerminal(t, "top", "-d 3600", 80, 24, nil)
	n := 0
	for _, size := range [][2]uint16{{80, 24}, {40, 10}, {200, 50}, {20, 4}} {
		if n > 0 {
			x.resize(size[0], size[1])
		}
		n++
		lines := x.drawn(n)
		fits(t, lines, int(size[0]), int(size[1]))
		if len(lines) != int(size[1])-1 || !strings.HasPrefix(lines[0], "1000 QPs, ") {
			t.Errorf("%d lines on a terminal of %d: %q", len(lines), size[1], lines)
		}
		if head := strings.Join(lines, "\n"); size[0] >= 40 && !strings.Contains(head, "TX MB/s    RX MB/s") {
			t.Errorf("no rates on a terminal of %d columns: %s", size[0], head)
		}
	}
	x.press("xq")
	x.ended(0)
}

// Every way to end restores the terminal.
func TestTopRestores(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{"q", "Q", "\x03"} {
		x := onTerminal(t, "top", "-d 3600", 80, 24, nil)
		x.drawn(1)
		if !x.isRaw() {
			t.Error("keys need Enter")
		}
		x.press(keys)
		x.ended(0)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		x := onTerminal(t, "top", "-d 3600", 80, 24, nil)
		x.drawn(1)
		_ = x.cmd.Process.Signal(s)
		x.ended(0)
	}
	x := onTerminal(t, "top", "-d 0.1 -n 3", 80, 24, nil)
	x.ended(0)
	x.drawn(4)
	x = onTerminal(t, "failing top", "", 80, 24, nil)
	x.ended(1)
	x.until("error", func() bool { return strings.HasSuffix(x.text(), "verbena top: the movie is over\r\n") })
}

// Ctrl-Z restores the terminal for the shell. After fg the table is drawn again, also after a stop that top
// cannot notice.
func TestTopStops(t *testing.T) {
	t.Parallel()
	x := onTerminal(t, "shell", "-d 3600", 80, 24, nil)
	tables := 1
	for i, stop := range []func(){
		func() { x.press("\x1a") },
		func() { _ = unix.Kill(x.group(), unix.SIGSTOP) },
	} {
		x.drawn(tables)
		x.until("raw terminal", x.isRaw)
		stop()
		x.until("stop", func() bool { return strings.Count(x.text(), "stopped by") == i+1 })
		if i == 0 && x.termios() != x.before {
			t.Errorf("the shell gets a terminal in another mode: %+v, was %+v", x.termios(), x.before)
		}
		_ = unix.IoctlSetTermios(int(x.slave.Fd()), unix.TCSETS, &x.before) // as a shell does
		x.press("fg\n")
		tables++
	}
	x.drawn(tables)
	x.until("raw terminal", x.isRaw)
	x.press("q")
	x.ended(0)
}

// group returns the process group of the top that the shell runs, negated, as Kill expects it.
func (x *terminal) group() int {
	x.t.Helper()
	group, err := unix.IoctlGetInt(x.fd, unix.TIOCGPGRP)
	if err != nil || group == x.cmd.Process.Pid {
		x.t.Fatal("top is not in the foreground", err)
	}
	return -group
}

// Without a shell to continue it, Ctrl-Z has no effect.
func TestTopHasNoShell(t *testing.T) {
	t.Parallel()
	x := onTerminal(t, "top", "-d 3600", 80, 24, nil)
	x.drawn(1)
	x.press("\x1a")
	x.press("q")
	x.ended(0)
}

// Without a terminal for output or input, or with one that does not support drawing, Ctrl-C keeps its usual
// effect.
func TestTopNoScreen(t *testing.T) {
	t.Parallel()
	piped := func(c *exec.Cmd) *bytes.Buffer {
		var b bytes.Buffer
		c.Stdout = &b
		return &b
	}
	var out *bytes.Buffer
	x := onTerminal(t, "top", "-d 0.1 -n 1", 80, 24, func(c *exec.Cmd) { out = piped(c) })
	x.ended(0)
	if s := out.String(); strings.Contains(s, "\x1b") || strings.Count(s, "\n") != 1002 {
		t.Errorf("%q", s)
	}
	x = onTerminal(t, "top", "-d 0.1", 80, 24, func(c *exec.Cmd) { c.Env = append(c.Env, "TERM=dumb") })
	x.until("two tables", func() bool { return strings.Count(x.text(), "1000 QPs") >= 2 })
	if x.termios() != x.before {
		t.Error("the mode of a dumb terminal is changed")
	}
	x.press("\x03")
	x.ended(0)
	if strings.Contains(x.text(), "\x1b") {
		t.Errorf("%q", x.text())
	}
	x = onTerminal(t, "top", "-d 3600", 80, 24, func(c *exec.Cmd) { c.Stdin, c.SysProcAttr.Ctty = nil, 1 })
	x.drawn(1)
	x.press("\x03")
	x.ended(0)
}
