package proc

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Output collects the output of a process. It is safe for concurrent use.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends b.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

// String returns everything that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Proc is a process.
type Proc struct {
	Name string
	Cmd  *exec.Cmd
	Out  *Output
	Done chan struct{} // closed when the process has ended
	Err  error         // of Wait; valid after Done
}

// Start starts cmd. Standard output and standard error go to Out unless the caller has set them.
func Start(name string, cmd *exec.Cmd) (*Proc, error) {
	p := &Proc{Name: name, Cmd: cmd, Out: &Output{}, Done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.Out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.Out
	}
	// A grandchild that keeps the pipe open must not block Wait.
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.Err = cmd.Wait()
		close(p.Done)
	}()
	return p, nil
}

// Wait waits for the end of the process, and stops it when ctx is done. The error includes an exit status that is not
// 0.
func (p *Proc) Wait(ctx context.Context) error {
	select {
	case <-p.Done:
	case <-ctx.Done():
		p.Stop()
		return fmt.Errorf("%s: did not end in time: %w", p.Name, context.Cause(ctx))
	}
	if p.Err != nil {
		return fmt.Errorf("%s: %w", p.Name, p.Err)
	}
	return nil
}

// Ended reports whether the process has ended.
func (p *Proc) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// EndsWithin waits for the end of the process for at most d, and reports whether it has ended.
func (p *Proc) EndsWithin(d time.Duration) bool {
	select {
	case <-p.Done:
		return true
	case <-time.After(d):
		return false
	}
}

// Exited reports whether the process has exited, with any status. A process that a signal ended has not.
func (p *Proc) Exited() bool {
	return p.Ended() && p.Cmd.ProcessState != nil && p.Cmd.ProcessState.Exited()
}

// graceTime is enough for a process to end its children, for lab/run also a command in a guest.
const graceTime = 5 * time.Second

// Stop ends the process by SIGTERM, and after 5 s by Kill.
func (p *Proc) Stop() {
	if p.Ended() {
		return
	}
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Done:
	case <-time.After(graceTime):
		p.Kill()
	}
}

// Kill ends the process by SIGKILL: with its children if it was started in its own process group (Setpgid).
func (p *Proc) Kill() {
	if p.Ended() {
		return
	}
	if a := p.Cmd.SysProcAttr; a != nil && a.Setpgid {
		_ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL)
	}
	_ = p.Cmd.Process.Kill()
	<-p.Done
}

// Until waits until the process has printed text.
func (p *Proc) Until(text string, limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(p.Out.String(), text) {
			return nil
		}
		if p.Ended() {
			break
		}
	}
	return fmt.Errorf("%s did not print %q: %s", p.Name, text, FirstLine(p.Out.String()))
}

// mostOfLine is the part of a line that Tail and FirstLine return, in bytes: rping prints the 65,535 bytes of a message
// in one line.
const mostOfLine = 200

// Tail returns the last n lines of s, 200 bytes of each at most.
func Tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), mostOfLine)]
	}
	return strings.Join(lines, "\n")
}

// FirstLine returns the first line of s that is not empty, 200 bytes at most.
func FirstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s[:min(len(s), mostOfLine)]
}
