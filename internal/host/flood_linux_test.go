package host

import (
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A full queue of connections of verbena serve does not end the attempt to join at once.
func TestJoinDuringConnections(t *testing.T) {
	key, s, _ := testServer(t)
	path := s.ln.Addr().String()
	end := make(chan struct{})
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				var fds []int
				for range 200 {
					fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
					if err != nil {
						break
					}
					_ = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
					fds = append(fds, fd)
				}
				closeFDs(fds)
			}
		})
	}
	time.Sleep(time.Second)
	for range 5 {
		g, err := Join(key, Config{Open: opener(key), Deliver: func(Mail) {}})
		switch {
		case err == nil:
			g.Close()
		case errors.Is(err, unix.EAGAIN): // others: too many of this user, or a leader that is too busy to answer
			t.Error(err)
		}
	}
	close(end)
	flood.Wait()
}
