package host

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// withoutDescriptors lets the process open only the free descriptors below the given one, or none if it is 0, until the
// end of the test.
func withoutDescriptors(t *testing.T, below int) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	next := old
	next.Cur = uint64(below)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &next); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
}

// connectors returns unconnected sockets, and a function that connects one to the leader of a group.
func connectors(t *testing.T, key Key, n int) (fds []int, connect func(fd int)) {
	t.Helper()
	for range n {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		fds = append(fds, fd)
	}
	return fds, func(fd int) {
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: key.name()}); err != nil {
			t.Error(err)
		}
	}
}

// TestSilentMembersWithoutDescriptors checks that members that do not send their request delay no other one while the
// leader has no descriptors left: the other one is told the reason.
func TestSilentMembersWithoutDescriptors(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	<-testMember(t, key).led
	testMember(t, key) // the leader has its spare descriptor
	fds, connect := connectors(t, key, 101)
	free, err := unix.Dup(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	withoutDescriptors(t, free)
	for _, fd := range fds {
		connect(fd)
	}
	honest := fds[len(fds)-1]
	limit := unix.NsecToTimeval(int64(5 * time.Second))
	if err := unix.SetsockoptTimeval(honest, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	_ = unix.Send(honest, (&frame{kind: kindJoin, id: version, slot: -1}).bytes(), unix.MSG_NOSIGNAL)
	b := make([]byte, maxFrame)
	read := func() (n int, err error) {
		for err = unix.EINTR; err == unix.EINTR; { // no signal restarts a read with a time limit
			n, err = unix.Read(honest, b)
		}
		return n, err
	}
	n, err := read()
	if errors.Is(err, unix.ECONNRESET) { // the request came between the leader's last look and its end
		n, err = read()
	}
	if f, ok := parseFrame(b[:max(n, 0)]); err != nil || !ok || f.errno != unix.EMFILE {
		t.Errorf("%+v, %v: must be EMFILE", f, err)
	}
}

// TestLeaderEndsWithoutDescriptors checks that a process that has not started, with too few descriptors to lead,
// says so when its leader has ended, and leads once it can.
func TestLeaderEndsWithoutDescriptors(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	leader := testMember(t, key)
	member := unstarted(t, key)
	leader.Close()
	free, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	t.Run("few", func(t *testing.T) {
		withoutDescriptors(t, free+5) // the vault has more
		claimed := make(chan error, 1)
		go func() {
			_, err := member.Claim(-1)
			claimed <- err
		}()
		select {
		case err := <-claimed:
			if !errors.Is(err, unix.EMFILE) {
				t.Errorf("%v, want EMFILE", err)
			}
		case <-time.After(10 * timeout):
			t.Fatal("the claim does not end")
		}
	})
	member.claim(t, -1)
}

// TestNoSpareDescriptor checks that a member that cannot even be rejected keeps no core busy.
func TestNoSpareDescriptor(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	var tries atomic.Int64
	old := openSpare
	openSpare = func() int { tries.Add(1); return old() }
	t.Cleanup(func() { openSpare = old })
	key := ownKey()
	<-testMember(t, key).led
	testMember(t, key) // the leader has its spare descriptor
	fds, connect := connectors(t, key, 1)
	withoutDescriptors(t, 0)
	tries.Store(0)
	begun := time.Now()
	connect(fds[0])
	for tries.Load() == 0 {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the leader does not try")
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond)
	if n, took := tries.Load(), time.Since(begun); time.Duration(n) > took/pause+10 {
		t.Errorf("%d tries in %v", n, took)
	}
}
