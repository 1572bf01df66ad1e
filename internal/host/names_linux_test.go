package host

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The errno must be found as one, too: verbs calls an error without one EIO.
func TestOtherUserIsEACCES(t *testing.T) {
	err := names{}.otherUser(&unix.Ucred{})
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno != syscall.EACCES || !errors.Is(err, syscall.EACCES) || !errors.Is(err, errOtherUser) {
		t.Errorf("%v (%v)", err, errno)
	}
}
