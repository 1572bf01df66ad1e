package control

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/peeruser"
)

// mayAsk reports whether a process that connects belongs to root or to the user of this one.
func mayAsk(cred *unix.Ucred) bool { return cred.Uid == 0 || peeruser.Own(cred) }

// genuine checks that the listener belongs to the user whose number is in the name. Any user can bind any name.
func genuine(c syscall.Conn, name string) (*unix.Ucred, error) {
	cred, err := peeruser.Of(c)
	if err != nil {
		return nil, err
	}
	uid, ok := owner(name)
	if !ok || uid != int(cred.Uid) || uid == os.Geteuid() && !peeruser.Own(cred) {
		return nil, fmt.Errorf("%q belongs to user %d, not to the user in its name: %w", name, cred.Uid, syscall.EPERM)
	}
	return cred, nil
}
