package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A program is a process of a case.
type program struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

// Write records the output of the program.
func (g *program) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.Write(b)
}

func (g *program) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.String()
}

// command returns a command in the folder of the place. An empty path is this program.
func (p *place) command(path string, args ...string) *exec.Cmd {
	if path == "" {
		path = "/proc/self/exe"
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = p.dir, os.Environ()
	return cmd
}

// limited returns a command with a hard limit of descriptors; Go raises a soft one.
func (p *place) limited(n int, path string, args ...string) *exec.Cmd {
	script := fmt.Sprintf("ulimit -n %d; exec \"$@\"", n)
	return p.command("/bin/sh", append([]string{"-c", script, "sh", path}, args...)...)
}

// start starts a command.
func (p *place) start(cmd *exec.Cmd) (*program, error) {
	g := &program{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = g, g
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(g.done)
	}()
	p.started = append(p.started, g)
	return g, nil
}

// finish runs a command, for at most d, and returns its output and exit status.
func (p *place) finish(d time.Duration, cmd *exec.Cmd) (out string, status int, err error) {
	g, err := p.start(cmd)
	if err != nil {
		return "", 0, err
	}
	select {
	case <-g.done:
		return g.text(), cmd.ProcessState.ExitCode(), nil
	case <-time.After(d):
		g.stop()
		return g.text(), 0, fmt.Errorf("%s did not end in %v: %s", cmd.Args[0], d, firstLine(g.text()))
	}
}

// until waits until the program has printed text.
func (g *program) until(text string, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(g.text(), text) {
			return nil
		}
		if !g.runs() {
			break
		}
	}
	return fmt.Errorf("the program did not print %q: %s", text, firstLine(g.text()))
}

func (g *program) runs() bool {
	select {
	case <-g.done:
		return false
	default:
		return true
	}
}

func (g *program) stop() {
	_ = g.cmd.Process.Kill()
	<-g.done
}

func (p *place) stopAll() {
	for _, g := range p.started {
		g.stop()
	}
	p.started = nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s[:min(len(s), 200)]
}

// crashed reports whether the output of a Go program contains a panic.
func crashed(out string) bool {
	return strings.Contains(out, "panic:") || strings.Contains(out, "fatal error:") || strings.Contains(out, "SIGSEGV")
}

// goTest returns a case that runs tests of the tree.
func goTest(pkg, tests string) func(*place) (string, error) {
	return func(*place) (string, error) {
		cmd := exec.Command("go", "test", "-count=1", "-v", "-run", tests, pkg)
		cmd.Env = append(os.Environ(), "VERBENA_DEVICES=")
		out, err := cmd.CombinedOutput()
		n := bytes.Count(out, []byte("\n--- PASS"))
		if err == nil && n == 0 {
			return "", fmt.Errorf("%w: no test matches %s", errCannot, tests)
		}
		return fmt.Sprintf("%d tests of %s", n, pkg), err
	}
}
