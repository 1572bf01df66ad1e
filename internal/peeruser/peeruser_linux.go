package peeruser

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of returns the process at the other end of a socket: for a dialed one, the process that listens.
func Of(c syscall.Conn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(cerr, err)
}

// Own reports whether a process belongs to the user of this one.
//
// In a user namespace the kernel shows all users who have no number there under one number, which may be that of a user
// of the namespace, nobody. A process with that number is known to be of this user only if it is in the same namespace.
func Own(cred *unix.Ucred) bool {
	return int(cred.Uid) == os.Geteuid() && (cred.Uid != overflow() || allMapped() || sameNamespace(cred.Pid))
}

// overflow returns the number that stands for users without one. It is read once: a host sets it when it starts.
var overflow = sync.OnceValue(func() uint32 {
	const usual = 65534
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return usual
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 32)
	if err != nil {
		return usual
	}
	return uint32(n)
})

// allMapped reports whether every user has a number in the user namespace of this process.
func allMapped() bool {
	const users = 1<<32 - 1
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	var mapped uint64
	for line := range bytes.Lines(b) {
		var inside, outside, n uint64
		if _, err := fmt.Sscan(string(line), &inside, &outside, &n); err != nil {
			return false
		}
		mapped += n
	}
	return mapped >= users
}

// sameNamespace reports whether a process is in the user namespace of this one. It is false for a process that cannot
// be seen, or that this one may not inspect.
func sameNamespace(pid int32) bool {
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil || pid <= 0 {
		return false
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	return err == nil && own == other
}
