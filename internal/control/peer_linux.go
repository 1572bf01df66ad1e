package control

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// peer tells who has the other end of a socket: of one that was dialed, who listens there.
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

// mayAsk admits the process's user and root.
func mayAsk(c *net.UnixConn) bool {
	cred, err := peer(c)
	return err == nil && (cred.Uid == 0 || int(cred.Uid) == syscall.Geteuid())
}

// genuine checks that the user whose number is in the name listens there. Anybody can take any name.
func genuine(c syscall.Conn, name string) (*unix.Ucred, error) {
	cred, err := peer(c)
	if err != nil {
		return nil, err
	}
	if uid, ok := owner(name); !ok || uid != int(cred.Uid) {
		return nil, fmt.Errorf("%s is user %d's, who is not the one of that name: %w", name, cred.Uid, syscall.EPERM)
	}
	return cred, nil
}
