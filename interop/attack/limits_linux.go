package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/refuse"
	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// processes starts programs on one address, with few and many shards.
func processes(p *place) (string, error) {
	const most = 200
	var figures []string
	least := most
	for _, procs := range []string{"2", "16", "64"} {
		n, why := 0, ""
		for ; n < most; n++ {
			cmd := p.command("", "role", "hold")
			cmd.Env = append(os.Environ(), "GOMAXPROCS="+procs, "VERBENA_DEVICES=a=127.0.0.1")
			g, err := p.start(cmd)
			if err != nil {
				return "", err
			}
			if err := g.Until("hello", 20*time.Second); err != nil {
				why = err.Error()
				break
			}
		}
		p.stopAll()
		least = min(least, n)
		figures = append(figures, fmt.Sprintf("%d with GOMAXPROCS=%s", n, procs))
		if why != "" {
			figures = append(figures, why)
		}
	}
	text := strings.Join(figures, "; ")
	if least < most {
		return text, fmt.Errorf("fewer than %d", most)
	}
	return text, nil
}

// descriptorSweep runs a program with each limit of descriptors: it works, or it ends with an error of one line.
func descriptorSweep(p *place) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	first, worked, refused := 0, 0, 0
	var bad []string
	for i := range 2 * 289 {
		n, procs := 12+i/2, []string{"2", "16"}[i%2] // each shard has its own descriptors
		cmd := p.limited(n, self, "role", "hello")
		cmd.Env = append(os.Environ(), "GOMAXPROCS="+procs)
		out, status, err := p.finish(30*time.Second, cmd)
		switch {
		case err != nil:
			bad = append(bad, fmt.Sprintf("%d: %v", n, err))
		case crashed(out):
			bad = append(bad, fmt.Sprintf("%d: %s", n, proc.FirstLine(out)))
		case status == 0:
			worked++
			if first == 0 {
				first = n
			}
		case !strings.Contains(out, "too many open files"):
			bad = append(bad, fmt.Sprintf("%d: the error does not name the reason: %s", n, proc.FirstLine(out)))
		default:
			refused++
		}
		if len(bad) > 5 {
			break
		}
	}
	figures := fmt.Sprintf("%d runs work, from %d descriptors on; %d end with an error", worked, first, refused)
	if len(bad) > 0 {
		return figures, fmt.Errorf("%s", strings.Join(bad, "; "))
	}
	return figures, nil
}

// calls are the system calls that filters refuse to programs. Go's runtime itself needs epoll_create1, eventfd2, mmap
// and futex.
var calls = map[string]uintptr{
	"memfd_create": unix.SYS_MEMFD_CREATE, "vmsplice": unix.SYS_VMSPLICE, "splice": unix.SYS_SPLICE,
	"tee": unix.SYS_TEE, "pipe2": unix.SYS_PIPE2, "recvmmsg": unix.SYS_RECVMMSG, "sendmmsg": unix.SYS_SENDMMSG,
	"timerfd_create": unix.SYS_TIMERFD_CREATE, "flock": unix.SYS_FLOCK, "socketpair": unix.SYS_SOCKETPAIR,
	"sched_getaffinity": unix.SYS_SCHED_GETAFFINITY, "getsockopt": unix.SYS_GETSOCKOPT,
	"setsockopt": unix.SYS_SETSOCKOPT,
	"prctl":      unix.SYS_PRCTL, "membarrier": unix.SYS_MEMBARRIER, "io_uring_setup": unix.SYS_IO_URING_SETUP,
	"process_vm_readv": unix.SYS_PROCESS_VM_READV, "pidfd_open": unix.SYS_PIDFD_OPEN,
}

// refusedRole executes a program to which a call is refused.
func refusedRole(args []string) error {
	errno, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	call, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	return refuse.Exec(unix.Errno(errno), []uintptr{uintptr(call)}, args[2], args[2:], os.Environ())
}

// refusedCalls runs a program without each call, with shared memory and without: it works, or its error names the
// call.
func refusedCalls(p *place) (string, error) {
	var names, bad, named []string
	for name := range calls {
		names = append(names, name)
	}
	sort.Strings(names)
	works := 0
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
			for _, shm := range []string{"0", "1"} {
				number := strconv.Itoa(int(calls[name]))
				cmd := p.command(self, "role", "refused", strconv.Itoa(int(errno)), number, self, "role", "hello")
				cmd.Env = append(os.Environ(), "VERBENA_SHM="+shm)
				out, status, err := p.finish(time.Minute, cmd)
				switch {
				case err == nil && status == 0:
					works++
				case err == nil && !crashed(out) && strings.Contains(out, name):
					named = append(named, name)
				case strings.Contains(out, "seccomp:"):
					return "", fmt.Errorf("%w: %s", errCannot, proc.FirstLine(out))
				default:
					bad = append(bad, fmt.Sprintf("%s %v VERBENA_SHM=%s: %v %s", name, errno, shm, err, proc.FirstLine(out)))
				}
			}
		}
	}
	figures := fmt.Sprintf("%d of %d work, %d errors name the call: %s", works, 4*len(names), len(named),
		strings.Join(named, " "))
	if len(bad) > 0 {
		return figures, fmt.Errorf("%s", strings.Join(bad, "; "))
	}
	return figures, nil
}
