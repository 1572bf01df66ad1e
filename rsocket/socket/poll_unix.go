//go:build linux || darwin

package socket

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/notify"
	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// systemFDs returns the ordinary descriptors of a poll, and their indexes.
func systemFDs(fds []PollFD) (list []unix.PollFd, at []int) {
	for i, f := range fds {
		if f.Socket == nil {
			list = append(list, unix.PollFd{Fd: int32(f.FD), Events: int16(f.Events)})
			at = append(at, i)
		}
	}
	return list, at
}

// pollSystem sets the events of the ordinary descriptors. It waits at most ms milliseconds, a negative number for no
// limit, and ends when extra is readable.
func pollSystem(fds []PollFD, ms int, extra *notify.FD) error {
	list, at := systemFDs(fds)
	if len(list) == 0 && extra == nil {
		return nil
	}
	if extra != nil {
		list = append(list, unix.PollFd{Fd: int32(extra.Num()), Events: unix.POLLIN})
	}
	for {
		_, err := unix.Poll(list, ms)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if extra == nil {
		for i, j := range at {
			fds[j].Revents = Events(list[i].Revents)
		}
	}
	return nil
}

// watchSystem wakes w when an ordinary descriptor has an event, until stop is called.
func watchSystem(fds []PollFD, w *sock.Waiter) (stop func(), err error) {
	if list, _ := systemFDs(fds); len(list) == 0 {
		return func() {}, nil
	}
	end, err := notify.New()
	if err != nil {
		return nil, err
	}
	own := append([]PollFD(nil), fds...)
	var done sync.WaitGroup
	over := make(chan struct{})
	done.Go(func() {
		for {
			_ = pollSystem(own, -1, end)
			w.Wake()
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond): // Poll has had time to look
			}
		}
	})
	return func() {
		close(over)
		end.Raise()
		done.Wait()
		end.Close()
	}, nil
}
