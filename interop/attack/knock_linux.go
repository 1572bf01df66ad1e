package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/refuse"
	"github.com/verbena-rdma/verbena/internal/untrusted/lingering"
	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// outsider is a user outside the group of the case.
const outsider = 2003

// knock connects to sockets as often as it can, for 8 s, and closes the connections in batches. Every second one has
// sent something.
func knock(names []string) error {
	var connected, full, refused atomic.Int64
	end := time.Now().Add(8 * time.Second)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := i; time.Now().Before(end); n++ {
				var fds []int
				for k := range 200 {
					fd, err := connectTo(names[n%len(names)])
					switch {
					case err == nil:
						connected.Add(1)
					case errors.Is(err, unix.EAGAIN):
						full.Add(1)
					default:
						refused.Add(1)
					}
					if fd < 0 {
						break
					}
					if fds = append(fds, fd); err == nil && k%2 == 0 {
						_ = unix.Send(fd, []byte("J"), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
					}
				}
				for _, fd := range fds {
					_ = unix.Close(fd)
				}
			}
		})
	}
	all.Wait()
	fmt.Printf("knocked: %d connections, %d at a full queue, %d refused\n", connected.Load(), full.Load(), refused.Load())
	return nil
}

// connectTo connects to a socket of one of the kinds that programs use. The descriptor is open also with an error, or
// negative.
func connectTo(name string) (fd int, err error) {
	for _, kind := range []int{unix.SOCK_SEQPACKET, unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		if fd, err = unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return -1, err
		}
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: name}); !errors.Is(err, unix.EPROTOTYPE) {
			return fd, err
		}
		_ = unix.Close(fd)
	}
	return -1, err
}

// give sends sockets, whose close waits for a minute, to other sockets for 8 s.
func give(names []string) error {
	given, refused, release := 0, 0, []func(){}
	var reasons []string
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		fd, err := connectTo(names[(given+refused)%len(names)])
		if err == nil {
			free, e := lingering.Give(fd, 2, time.Minute)
			release, err = append(release, free), e
		}
		if err == nil {
			given += 2
		} else {
			refused++
			if why := err.Error(); !slices.Contains(reasons, why) {
				reasons = append(reasons, why)
			}
		}
		if len(release)%3 != 0 && fd >= 0 { // others stay open
			_ = unix.Close(fd)
		}
	}
	fmt.Printf("given: %d sockets, %d times refused: %s\n", given, refused, strings.Join(reasons, ", "))
	for _, f := range release {
		f()
	}
	return nil
}

// serveFor starts serve with the group of the case, and returns it and its socket.
func (p *place) serveFor() (serve *program, socket string, err error) {
	run, err := os.MkdirTemp(p.dir, "run")
	if err == nil {
		err = os.Chmod(run, 0o755) //nolint:gosec // as /run/verbena is
	}
	if err == nil {
		err = os.Setenv("VERBENA_RUN", run)
	}
	if err != nil {
		return nil, "", err
	}
	serve, err = p.start(p.command("", "role", "older", p.verbena, "serve", "-d", "a", "-g", fmt.Sprint(group)))
	if err == nil {
		err = serve.Until("shared in", 20*time.Second)
	}
	if err != nil {
		return nil, "", err
	}
	found, err := filepath.Glob(filepath.Join(run, "*", "socket"))
	if err != nil || len(found) != 1 {
		return nil, "", fmt.Errorf("the socket of serve: %v, %w", found, err)
	}
	return serve, found[0], nil
}

// hellos measures how long programs of a user take to join and to send themselves a message.
func (p *place) hellos(uid uint32, tool string) (longest time.Duration, err error) {
	for range 4 {
		begin := time.Now()
		cmd := p.command(tool, "role", "hello")
		cmd.Env = append(os.Environ(), "VERBENA_DEVICES=a=127.0.0.1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: group}}
		out, status, err := p.finish(20*time.Second, cmd)
		if err == nil && status != 0 {
			err = errors.New(proc.FirstLine(out))
		}
		if err != nil {
			return 0, err
		}
		longest = max(longest, time.Since(begin))
	}
	return longest, nil
}

// abstractAnd returns the abstract sockets of programs, and path.
func abstractAnd(path ...string) ([]string, error) {
	b, err := os.ReadFile("/proc/net/unix")
	names := path
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 8 && strings.HasPrefix(f[7], "@verbena") && !slices.Contains(names, f[7]) {
			names = append(names, f[7])
		}
	}
	return names, err
}

// older executes a program without SO_PASSRIGHTS, by which a socket refuses descriptors since Linux 6.16.
func older(args []string) error {
	const soPassRights = 83
	return refuse.ExecOnOlder(soPassRights, args[0], args, os.Environ())
}

// An assault is an attack on the sockets of serve, or of the process that leads.
type assault struct {
	role    string
	uid     uint32 // of the attacker
	serve   bool
	printed string // by the attacker
}

// run measures how long an honest program takes before and during the attack: at most a second more. Afterwards serve
// ends within 5 s of SIGTERM, and has not more threads than it may use for sockets that wait.
func (a assault) run(p *place) (string, error) {
	if os.Getenv(oneUser) != "" {
		return "", fmt.Errorf("%w: it needs root, for several users", errCannot)
	}
	tool, err := p.tool()
	if err != nil {
		return "", err
	}
	var target *program
	var paths []string
	honest := uint32(0)
	if a.serve {
		honest = other
		defer os.Unsetenv("VERBENA_RUN")
		var socket string
		target, socket, err = p.serveFor()
		paths = []string{socket}
	} else {
		target, err = p.start(p.command("", "role", "older", tool, "role", "hold"))
		if err == nil {
			err = target.Until("hello\n", 20*time.Second)
		}
	}
	if err != nil {
		return "", err
	}
	before, err := p.hellos(honest, tool)
	if err != nil {
		return "", err
	}
	names, err := abstractAnd(paths...)
	if err != nil {
		return "", err
	}
	attacker := p.as(a.uid, tool, append([]string{"role", a.role}, names...)...)
	time.Sleep(time.Second)
	during, err := p.hellos(honest, tool)
	threads := threadsOf(target.Cmd.Process.Pid)
	if !attacker.EndsWithin(40 * time.Second) {
		err = errors.Join(err, fmt.Errorf("the attacker did not end"))
	}
	_, counts, ok := strings.Cut(attacker.Out.String(), a.printed)
	figures := fmt.Sprintf("a program takes %v before, at most %v during the attack; %d threads; %s",
		before.Round(time.Millisecond), during.Round(time.Millisecond), threads, strings.TrimSpace(counts))
	begin := time.Now()
	_ = target.Cmd.Process.Signal(syscall.SIGTERM)
	ended := target.EndsWithin(5 * time.Second)
	switch {
	case err != nil:
		return figures, err
	case !ok:
		return figures, fmt.Errorf("the attacker did not run: %s", proc.FirstLine(attacker.Out.String()))
	case during > before+time.Second:
		return figures, fmt.Errorf("more than a second longer")
	case threads > mostThreads:
		return figures, fmt.Errorf("more than %d threads", mostThreads)
	case !ended:
		return figures, fmt.Errorf("it did not end within %v of SIGTERM", time.Since(begin))
	}
	return figures, nil
}

// mostThreads is the limit of internal/untrusted, and threads of the runtime.
const mostThreads = 64 + 40

func threadsOf(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, text, _ := strings.Cut(string(b), "\nThreads:")
	text, _, _ = strings.Cut(text, "\n")
	n, _ := strconv.Atoi(strings.TrimSpace(text))
	return n
}
