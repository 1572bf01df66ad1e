//go:build !linux && !darwin

package socket

import (
	"syscall"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// pollSystem fills in what the ordinary descriptors have, of which there may be none here.
func pollSystem(fds []PollFD, _ int, _ *struct{}) error {
	for _, f := range fds {
		if f.Socket == nil {
			return sock.Fail("rpoll", syscall.EOPNOTSUPP, "only sockets of this package can be polled on this system")
		}
	}
	return nil
}

func watchSystem([]PollFD, *sock.Waiter) (stop func(), err error) { return func() {}, nil }
