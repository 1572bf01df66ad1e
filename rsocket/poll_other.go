//go:build !linux && !darwin

package rsocket

import "syscall"

// pollSystem fills in what the ordinary descriptors have, of which there may be none here.
func pollSystem(fds []PollFD, _ int, _ *struct{}) error {
	for _, f := range fds {
		if f.Socket == nil {
			return fail("rpoll", syscall.EOPNOTSUPP, "only sockets of this package can be polled on this system")
		}
	}
	return nil
}

func watchSystem([]PollFD, *waiter) (stop func(), err error) { return func() {}, nil }
