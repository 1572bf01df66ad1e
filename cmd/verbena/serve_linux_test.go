package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

var servedAddr = loopback.Addr(30)

// runDir creates the folder for VERBENA_RUN, with a name short enough for sockets.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "vrb-serve-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("VERBENA_RUN", dir)
	return dir
}

// startToLine starts a program and returns its first line of output.
func startToLine(t *testing.T, cmd *exec.Cmd) (string, error) {
	t.Helper()
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(out).ReadString('\n')
}

// startServe starts the daemon and waits for its message that it shares the device.
func startServe(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(c, link(t, "verbena"), append([]string{"serve"}, args...)...)
	cmd.Env = append(os.Environ(), "VERBENA_DEVICES=vrb_test="+servedAddr)
	errs := new(bytes.Buffer)
	cmd.Stderr = errs
	line, err := startToLine(t, cmd)
	if err != nil || !strings.HasPrefix(line, "vrb_test: "+servedAddr) || !strings.HasSuffix(line, "mode 0770\n") {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("serve prints %q, %v\n%s", line, err, errs)
	}
	return cmd
}

// runAs runs the program as another user, for at most a minute.
func runAs(t *testing.T, exe string, uid, gid uint32, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(c, exe, args...)
	cmd.Env, cmd.Dir = append(os.Environ(), "VERBENA_DEVICES=vrb_test="+servedAddr), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	out := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Skipf("no process of another user: %v", err)
	}
	return cmd, out
}

// With serve, processes of the group's users share the address, also after it was killed and restarted. The
// error for other users names the owner.
func TestServe(t *testing.T) {
	dir := runDir(t)
	args := []string{"--mode", "0770"}
	if os.Getuid() == 0 {
		args = append(args, "--group", "65534")
	}
	s := startServe(t, args...)
	if os.Getuid() == 0 {
		exe := filepath.Join(dir, "ibv_rc_pingpong")
		self, err := os.ReadFile(os.Args[0])
		if err == nil {
			err = os.WriteFile(exe, self, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // with the daemon, and after it was killed and restarted
			port := loopback.Port()
			server, serverOut := runAs(t, exe, 65534, 65534, "-p", port, "-n", "100")
			var client *exec.Cmd
			var out *bytes.Buffer
			for range 50 { // until the server listens
				client, out = runAs(t, exe, 0, 0, "-p", port, "-n", "100", servedAddr)
				if client.Wait() == nil || !strings.Contains(out.String(), "couldn't connect") {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			err := server.Wait()
			if !client.ProcessState.Success() || err != nil {
				t.Fatalf("client:\n%s\nserver: %v\n%s", out, err, serverOut)
			}
			stranger, out := runAs(t, exe, 65533, 65533, "-d", "vrb_test", "-g", "1")
			if stranger.Wait() == nil || !strings.Contains(out.String(), "among those that "+dir) ||
				!strings.Contains(out.String(), "EACCES") {
				t.Errorf("a user outside the group gets:\n%s", out)
			}
			_ = s.Process.Kill()
			_ = s.Wait()
			s = startServe(t, args...)
		}
	}
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Errorf("exit of serve: %v", err)
	}
	// A daemon that was root cannot remove its directories any more, but they are empty.
	if left, _ := filepath.Glob(dir + "/*-4791-*/*"); len(left) > 0 {
		t.Errorf("serve leaves %v", left)
	}
}

func TestServeRefuses(t *testing.T) {
	runDir(t)
	for options, want := range map[string]string{
		"-d nosuch":         `no device "nosuch"`,
		"-m 999":            "must be three octal digits",
		"-m 01777":          "must be three octal digits",
		"-g no-such-group!": "unknown group",
		"x":                 "unexpected arguments",
	} {
		out, errs, status := output(t, "verbena", append([]string{"serve"}, strings.Fields(options)...)...)
		if status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d\n%s%s", options, status, out, errs)
		}
	}
}

// Programs that use the address already keep the daemon from starting. It names the remedy.
func TestServeAfterPrograms(t *testing.T) {
	runDir(t)
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Setenv("VERBENA_DEVICES", "vrb_test="+servedAddr)
	program := exec.CommandContext(c, link(t, "verbena"), "rping", "-s", "-P", "-a", servedAddr, "-v")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	}()
	for range 100 { // until the program has the address
		client := exec.CommandContext(c, link(t, "verbena"), "rping", "-c", "-a", servedAddr, "-C", "1")
		if client.Run() == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	out, err := exec.CommandContext(c, link(t, "verbena"), "serve").CombinedOutput()
	if want := "; end the programs that use " + servedAddr; err == nil || !strings.Contains(string(out), want) ||
		strings.Contains(string(out), "stop it") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v, want one line with %q as the only remedy: %s", err, want, out)
	}
}

// A second daemon does not start. Its error says that the first one has to end, and nothing else: an end of the
// programs would not help.
func TestServeTwice(t *testing.T) {
	run := runDir(t)
	t.Setenv("VERBENA_DEVICES", "vrb_test="+servedAddr)
	first := startServe(t)
	defer func() {
		_ = first.Process.Kill()
		_ = first.Wait()
	}()
	refuses := func(want string) {
		t.Helper()
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(c, link(t, "verbena"), "serve").CombinedOutput()
		if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), want) ||
			!strings.Contains(string(out), "; stop that one to start this one: ") {
			t.Errorf("%v, want one line with %q and the remedy: %s", err, want, out)
		}
		for _, other := range []string{"end the programs", "set VERBENA_RUN", "use another address"} {
			if strings.Contains(string(out), other) {
				t.Errorf("a second remedy, %q: %s", other, out)
			}
		}
	}
	refuses("another verbena serve shares " + servedAddr)
	runDir(t)
	refuses("taken by verbena serve in " + run)
}

// A server of rsockets learns that its device is gone.
func TestListenerEndsWithServe(t *testing.T) {
	runDir(t)
	s := startServe(t)
	t.Setenv("VERBENA_DEVICES", "vrb_test="+servedAddr)
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server := exec.CommandContext(c, link(t, "verbena"), "rstream", "-b", servedAddr, "-S", "64", "-C", "1")
	var out bytes.Buffer
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	listener := fmt.Sprintf("state LISTEN ps TCP pid %d ", server.Process.Pid)
	listens := func() bool { // the list has the programs of other tests, too
		ids, _ := exec.CommandContext(c, link(t, "verbena"), "rdma", "resource", "show", "cm_id").Output()
		return strings.Contains(string(ids), listener)
	}
	for !listens() && c.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	_ = s.Process.Kill()
	_ = s.Wait()
	if err := server.Wait(); err == nil || c.Err() != nil || !strings.Contains(out.String(), "the device was removed") {
		t.Errorf("%v: %s", err, &out)
	}
}

// The daemon keeps the sockets of all slots, and says so if its limit of descriptors is too low.
func TestServeWithoutDescriptors(t *testing.T) {
	runDir(t)
	t.Setenv("VERBENA_DEVICES", "vrb_test="+servedAddr)
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(c, "sh", "-c", `ulimit -n 100 && exec "$0" serve`, link(t, "verbena"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "raise the limit of descriptors: ulimit -n") {
		t.Errorf("%v: %s", err, out)
	}
}

// The daemon ends when its interface is removed, and says so in the words of docs/operations.md.
func TestServeWithoutItsInterface(t *testing.T) {
	onHosts(t, 1500, 1500, func(h *hosts) {
		cmd, errs := h.command("a", "serve", "--user", "0", "--ib-dev", "vrb_v1a")
		_, ready := startToLine(t, cmd)
		h.sh("ip -n a link del v1a")
		err := cmd.Wait()
		all := strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n")
		if want := "vrb_v1a: the device was removed"; err == nil || all[len(all)-1] != want {
			t.Errorf("%v, %v: %s\nwant the last line %q", ready, err, errs, want)
		}
	})
}
