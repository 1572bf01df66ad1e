//go:build !linux && !darwin

package socket

import (
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/notify"
	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// systemFDs are the ordinary descriptors of a poll, of which there may be none here.
type systemFDs struct{}

func (systemFDs) set(fds []PollFD) error {
	for i := range fds {
		if fds[i].Socket == nil {
			return sock.Fail("rpoll", syscall.EOPNOTSUPP, "only sockets of this package can be polled on this system")
		}
	}
	return nil
}

func (systemFDs) none() bool                     { return true }
func (systemFDs) look([]PollFD) error            { return nil }
func (systemFDs) wait(*notify.FD, time.Duration) {}

type bellStore struct{}

var bells bellStore

func (bellStore) take() (*notify.FD, error) { return notify.New() }
func (bellStore) give(*notify.FD)           {}
