package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// A program is a process of a case.
type program struct{ *proc.Proc }

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
	q, err := proc.Start(filepath.Base(cmd.Args[0]), cmd)
	if err != nil {
		return nil, err
	}
	g := &program{q}
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
	case <-g.Done:
		return g.Out.String(), cmd.ProcessState.ExitCode(), nil
	case <-time.After(d):
		g.Kill()
		return g.Out.String(), 0, fmt.Errorf("%s did not end in %v: %s", g.Name, d, proc.FirstLine(g.Out.String()))
	}
}

func (p *place) stopAll() {
	for _, g := range p.started {
		g.Kill()
	}
	p.started = nil
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
