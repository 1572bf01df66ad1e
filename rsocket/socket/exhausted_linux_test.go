package socket

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// A Poll that fails because the process has no descriptor left leaves nothing at the sockets.
func TestPollWithoutDescriptors(t *testing.T) {
	a, _ := sock.Unserved()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for len(bells) > 0 { // kept by other polls
		(<-bells).Close()
	}
	fds := []PollFD{{Socket: &Socket{l: a}, Events: PollIn}, {FD: pipe[0], Events: PollIn}}
	free, err := unix.Dup(pipe[0])
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(free)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = Poll(fds, time.Minute)
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); e != nil {
		t.Fatal(e)
	}
	if err == nil || a.Watchers() != 0 {
		t.Errorf("%v, and %d waiters are left", err, a.Watchers())
	}
}
