package rdmacm

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// A descriptor is readable while there are events, and is the same one at each call.
func TestDescriptorOfAChannel(t *testing.T) {
	ch := newChannel(nil)
	for _, events := range []int{0, 1, 2} {
		if events > 0 {
			ch.push(&Event{Type: EventUser, owner: new(ID)})
		}
		fd, err := ch.FD()
		if err != nil {
			t.Skip(err)
		}
		if again, err := ch.FD(); again != fd || err != nil {
			t.Errorf("descriptor %d, then %d, %v", fd, again, err)
		}
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(set, 0); err != nil || (n > 0) != (events > 0) {
			t.Errorf("%d events: readable %v, %v", events, n > 0, err)
		}
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
}

// A channel counts its events in any open descriptor, until it is closed.
func TestDescriptorsToCountIn(t *testing.T) {
	ch := newChannel(nil)
	if err := ch.count(0); err != nil || ch.units == (notify.Semaphore{}) {
		t.Errorf("descriptor 0: %v, %+v", err, ch.units)
	}
	if err := ch.count(-1); err != nil || ch.units != (notify.Semaphore{}) {
		t.Errorf("no descriptor: %v, %+v", err, ch.units)
	}
	if err := ch.count(1 << 30); !errors.Is(err, syscall.EBADF) {
		t.Errorf("an unknown descriptor: %v", err)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	if err := ch.count(0); !errors.Is(err, ErrClosed) || ch.units != (notify.Semaphore{}) {
		t.Errorf("a closed channel: %v, %+v", err, ch.units)
	}
}
