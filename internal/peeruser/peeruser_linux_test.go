package peeruser

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOf checks the process at the other end of a socket pair, which is this one.
func TestOf(t *testing.T) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(p[0]), "pair")
	defer f.Close()
	defer unix.Close(p[1])
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cred, err := Of(c.(*net.UnixConn))
	if err != nil || int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Geteuid() || !Own(cred) {
		t.Errorf("%+v, %v", cred, err)
	}
	if other := (&unix.Ucred{Pid: cred.Pid, Uid: cred.Uid + 1}); Own(other) {
		t.Errorf("%+v is of this user", other)
	}
}

// TestSameNamespace checks that a process that cannot be seen is not taken for one of the namespace.
func TestSameNamespace(t *testing.T) {
	if !sameNamespace(int32(os.Getpid())) {
		t.Error("this process is in another namespace")
	}
	for _, pid := range []int32{0, -1, 1<<31 - 1} {
		if sameNamespace(pid) {
			t.Errorf("process %d is in this namespace", pid)
		}
	}
}
