package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inHosts is set for a test that runs in namespaces of its own.
const inHosts = "VERBENA_TEST_HOSTS"

// hosts are network namespaces that stand for hosts: a and b, joined by a cable (a veth pair), 10.9.0.1 and 10.9.0.2,
// fd09::1 and fd09::2.
type hosts struct {
	*testing.T
	exe string
	n   int // devices made
}

// onHosts runs a test in user, mount and network namespaces of its own, in which it is root. It is skipped where a
// process cannot have them.
func onHosts(t *testing.T, mtuA, mtuB int, f func(h *hosts)) {
	t.Helper()
	if os.Getenv(inHosts) == "" {
		reexec(t)
		return
	}
	h := &hosts{T: t, exe: link(t, "verbena")}
	if err := unix.Mount("run", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	h.host("a")
	h.host("b")
	h.cable("a", "b", mtuA, mtuB, "10.9.0.1/24", "10.9.0.2/24", "fd09::1/64", "fd09::2/64")
	f(h)
}

// reexec runs the test again in new namespaces.
func reexec(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the test needs the command %s: %v", tool, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // 45 s under the race detector on 2 cores
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v="+fmt.Sprint(testing.Verbose()))
	cmd.Env = append(os.Environ(), inHosts+"=1")
	ids := func(id int) []syscall.SysProcIDMap {
		if os.Geteuid() == 0 {
			return []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65535}}
		}
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: ids(os.Getuid()), GidMappings: ids(os.Getgid()), GidMappingsEnableSetgroups: os.Geteuid() == 0,
		Pdeathsig: syscall.SIGKILL,
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Skipf("no namespaces for this process: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("in namespaces: %v\n%s", err, out.String())
	} else if testing.Verbose() {
		t.Log(out.String())
	}
}

// sh runs a shell command, which must succeed.
func (h *hosts) sh(format string, args ...any) {
	h.Helper()
	line := fmt.Sprintf(format, args...)
	if out, err := exec.CommandContext(h.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
		h.Fatalf("%s: %v: %s", line, err, out)
	}
}

// host makes a host, with a loopback interface.
func (h *hosts) host(name string) {
	h.Helper()
	h.sh("ip netns add %s && ip -n %s link set lo up", name, name)
}

// cable joins two hosts. addrs are those of one end and of the other, in turns.
func (h *hosts) cable(a, b string, mtuA, mtuB int, addrs ...string) {
	h.Helper()
	h.n++
	devs := [2]string{fmt.Sprintf("v%d%s", h.n, a), fmt.Sprintf("v%d%s", h.n, b)}
	h.sh("ip link add %s netns %s type veth peer name %s netns %s", devs[0], a, devs[1], b)
	for i, addr := range addrs {
		nodad := ""
		if strings.Contains(addr, ":") {
			nodad = "nodad"
		}
		h.sh("ip -n %s addr add %s dev %s %s", []string{a, b}[i%2], addr, devs[i%2], nodad)
	}
	h.sh("ip -n %s link set %s mtu %d up", a, devs[0], mtuA)
	h.sh("ip -n %s link set %s mtu %d up", b, devs[1], mtuB)
}

// command is a command of the program on a host, which is killed after two minutes.
func (h *hosts) command(host string, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), 2*time.Minute)
	h.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", host, h.exe}, args...)...)
	cmd.Env = append(os.Environ(), "VERBENA_RUN=/run/verbena-"+host)
	out = new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// run runs a command of the program on a host to its end.
func (h *hosts) run(host string, args ...string) (out string, status int) {
	h.Helper()
	cmd, buf := h.command(host, args...)
	_ = cmd.Run()
	return buf.String(), cmd.ProcessState.ExitCode()
}

// start starts a server on a host and waits until it listens. stop kills it.
func (h *hosts) start(host string, args ...string) (stop func()) {
	h.Helper()
	cmd, _ := h.begin(host, args...)
	return func() {
		h.Helper()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		h.await(host, false)
	}
}

// serve is start for a server that ends by itself. wait waits for that.
func (h *hosts) serve(host string, args ...string) (wait func()) {
	h.Helper()
	cmd, out := h.begin(host, args...)
	return func() {
		h.Helper()
		if err := cmd.Wait(); err != nil {
			h.Errorf("%v: %v: %s", args, err, out)
		}
		h.await(host, false)
	}
}

func (h *hosts) begin(host string, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	h.Helper()
	cmd, out = h.command(host, args...)
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.await(host, true)
	h.listens(host, args[0])
	return cmd, out
}

// listens waits until a tool listens on a host.
func (h *hosts) listens(host, tool string) {
	h.Helper()
	h.until(tool+" listens on host "+host, func() bool {
		list, _ := h.run(host, "rdma", "resource", "show", "cm_id")
		return strings.Contains(list, " state LISTEN ")
	})
}

// until waits for a condition.
func (h *hosts) until(what string, ok func() bool) {
	h.Helper()
	for begin := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			h.Fatalf("not after 20 s: %s", what)
		}
	}
}

// await waits until a program of the host receives RoCEv2 packets, or none does.
func (h *hosts) await(host string, want bool) {
	h.Helper()
	h.awaitPort(host, 4791, want)
}

// sends waits until a host has sent a thousand more packets by an interface.
func (h *hosts) sends(host, dev string) {
	h.Helper()
	sent := func() (n int) {
		out, err := exec.CommandContext(h.Context(), "ip", "netns", "exec", host, "cat",
			"/sys/class/net/"+dev+"/statistics/tx_packets").CombinedOutput()
		if _, bad := fmt.Sscan(string(out), &n); err != nil || bad != nil {
			h.Fatalf("packets of %s: %v, %s", dev, err, out)
		}
		return n
	}
	before := sent()
	h.until(dev+" sends", func() bool { return sent() > before+1000 })
}

// awaitPort waits until a UDP or TCP port of a host is in use, or is not.
func (h *hosts) awaitPort(host string, port int, want bool) {
	h.Helper()
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
		got, _ := exec.CommandContext(h.Context(), "ip", "netns", "exec", host, "cat", "/proc/net/udp", "/proc/net/udp6",
			"/proc/net/tcp", "/proc/net/tcp6").Output()
		if strings.Contains(string(got), fmt.Sprintf(":%04X ", port)) == want {
			return
		}
	}
	h.Fatalf("port %d of host %s after 20 s: in use %v, want %v", port, host, !want, want)
}
