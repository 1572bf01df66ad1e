// Package duo runs the same binary a second time, for the demo and the benchmarks: two processes with a
// device each on loopback addresses, calls between them over a pipe, and plain TCP for comparison. It
// imports internal/sysroute and internal/tools/tool.
package duo

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"time"
)

// Command is the argument that makes a binary the second process: its main calls Serve.
const Command = "__second_process"

// A Process is the second process.
type Process struct {
	cmd  *exec.Cmd
	rpc  *rpc.Client
	dead chan struct{} // closed when the process has ended
	err  error         // exit error; read after dead
}

// Start runs the binary again with env added to the environment. The second process ends with this one, or
// at Stop.
func Start(env ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, Command)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the second process: %w", err)
	}
	p := &Process{cmd: cmd, rpc: rpc.NewClient(pipe{out, in}), dead: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.dead)
	}()
	return p, nil
}

// Pid returns its process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Call calls a method of the value that the second process serves.
func (p *Process) Call(method string, args, reply any) error {
	err := p.rpc.Call("Second."+method, args, reply)
	var answer rpc.ServerError
	if err != nil && !errors.As(err, &answer) {
		select {
		case <-p.dead:
			return fmt.Errorf("the second process ended: %w", p.err)
		case <-time.After(time.Second):
		}
	}
	if err != nil {
		return fmt.Errorf("second process: %s: %w", method, err)
	}
	return nil
}

// Stop ends the second process and waits for it.
func (p *Process) Stop() {
	p.rpc.Close() // the second process ends at the end of its standard input
	select {
	case <-p.dead:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.dead
	}
}

// Kill ends the second process immediately.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.dead
}

// Serve is the main function of the second process: it serves calls of v's methods until the first process
// closes the pipe or ends.
func Serve(v any) error {
	s := rpc.NewServer()
	if err := s.RegisterName("Second", v); err != nil {
		return err
	}
	s.ServeConn(pipe{os.Stdin, os.Stdout})
	return nil
}

type pipe struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipe) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }
