//go:build linux || darwin

package socket

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// systemFDs are the ordinary descriptors of a poll.
type systemFDs struct {
	list []unix.PollFd
	at   []int // their indexes
}

// set takes the ordinary descriptors of a list, and room for one more.
func (s *systemFDs) set(fds []PollFD) error {
	n := 0
	for i := range fds {
		if fds[i].Socket == nil {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	s.list, s.at = make([]unix.PollFd, 0, n+1), make([]int, 0, n)
	for i, f := range fds {
		if f.Socket == nil {
			s.list = append(s.list, unix.PollFd{Fd: int32(f.FD), Events: int16(f.Events)})
			s.at = append(s.at, i)
		}
	}
	return nil
}

func (s *systemFDs) none() bool { return len(s.list) == 0 }

// look sets the events that the descriptors have now.
func (s *systemFDs) look(fds []PollFD) error {
	if s.none() {
		return nil
	}
	for {
		if _, err := unix.Poll(s.list, 0); err == nil {
			break
		} else if err != unix.EINTR {
			return err
		}
	}
	for i, j := range s.at {
		fds[j].Revents = Events(s.list[i].Revents)
	}
	return nil
}

// wait waits until a descriptor has an event, the bell is readable or a signal comes, at most d. The next look finds an
// error.
func (s *systemFDs) wait(bell *notify.FD, d time.Duration) {
	list := append(s.list, unix.PollFd{Fd: int32(bell.Num()), Events: unix.POLLIN})
	_, _ = unix.Poll(list, int((d+time.Millisecond-1)/time.Millisecond))
}

// A bellStore keeps descriptors for the next callers, since each poll needs one for a short time.
type bellStore chan *notify.FD

var bells = make(bellStore, 16)

func (b bellStore) take() (*notify.FD, error) {
	select {
	case bell := <-b:
		return bell, nil
	default:
		return notify.New()
	}
}

func (b bellStore) give(bell *notify.FD) {
	select {
	case b <- bell:
	default:
		bell.Close()
	}
}
