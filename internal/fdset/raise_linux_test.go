package fdset

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestRaise(t *testing.T) {
	defer SetFloor(0)
	for _, floor := range []int{0, 200, 1 << 30} { // none of 2^30 is free
		SetFloor(floor)
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		want := func(got int) bool { return floor == 200 && got >= floor || floor != 200 && got < 200 }
		raised := Raise(fd)
		dup, err := Dup(raised)
		if err != nil || !want(raised) || !want(dup) {
			t.Errorf("floor %d: Raise(%d) is %d, Dup of it %d (%v)", floor, fd, raised, dup, err)
		}
		if raised != fd && unix.Close(fd) != unix.EBADF {
			t.Errorf("floor %d: the descriptor %d is still open", floor, fd)
		}
		if flags, err := unix.FcntlInt(uintptr(dup), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("floor %d: flags %#x (%v): must have FD_CLOEXEC", floor, flags, err)
		}
		_, _ = unix.Close(raised), unix.Close(dup)
	}
	if got := Raise(-1); got != -1 {
		t.Errorf("Raise(-1) is %d", got)
	}
}
