package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// start starts cmd in its own process group, so that its children end with it.
func start(name string, cmd *exec.Cmd) (*proc.Proc, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return proc.Start(name, cmd)
}

// runCmd runs a command to its end and returns its output.
func runCmd(cmd *exec.Cmd, limit time.Duration) (string, error) {
	p, err := start(cmd.Args[0], cmd)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err = p.Wait(ctx)
	out := p.Out.String()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, proc.Tail(out, 12))
	}
	return out, err
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
