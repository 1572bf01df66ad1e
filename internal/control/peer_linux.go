package control

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// peer returns the credentials of the process at the other end of a socket: for a dialed one, of the listener.
func peer(c syscall.Conn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return nil, err
	}
	return cred, cerr
}

// mayAsk reports whether the other end belongs to root or to the user of the process.
func mayAsk(c *net.UnixConn) bool {
	cred, err := peer(c)
	return err == nil && (cred.Uid == 0 || int(cred.Uid) == syscall.Geteuid())
}

// genuine checks that the listener belongs to the user whose number is in the name. Any user can bind any name.
func genuine(c syscall.Conn, name string) (*unix.Ucred, error) {
	cred, err := peer(c)
	if err != nil {
		return nil, err
	}
	if uid, ok := owner(name); !ok || uid != int(cred.Uid) {
		return nil, fmt.Errorf("%q belongs to user %d, not to the user in its name: %w", name, cred.Uid, syscall.EPERM)
	}
	return cred, nil
}
