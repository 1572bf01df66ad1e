//go:build linux || darwin

package verbs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// readable reports whether poll finds a descriptor readable.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	ok(t, err)
	return n == 1 && p[0].Revents&unix.POLLIN != 0
}

func TestDescriptorOfAnEmptyQueue(t *testing.T) {
	vctx, drv := openFake(t)
	drv.up.PortEvent(EventPortErr, 1)
	must(vctx.TryGetAsyncEvent())(t)
	if readable(t, must(vctx.AsyncFD())(t)) {
		t.Error("readable without an event")
	}
	ok(t, vctx.Close())
}

// TestV_EV_04_V_CC_01_V_AE_03_Descriptor is also V-CC-01 and V-AE-03: the descriptor is readable exactly while there
// are events.
func TestV_EV_04_V_CC_01_V_AE_03_Descriptor(t *testing.T) {
	vctx, drv := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	cq, cqDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
	tests := map[string]struct {
		fd    func() (int, error)
		raise func()
		get   func() error
	}{
		"channel": {ch.FD, cqDrv.up.Completion, func() error { _, err := ch.TryGetEvent(); return err }},
		"context": {vctx.AsyncFD, func() { drv.up.PortEvent(EventPortErr, 1) },
			func() error { _, err := vctx.TryGetAsyncEvent(); return err }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.raise() // before FD creates the descriptor
			fd := must(tt.fd())(t)
			if again := must(tt.fd())(t); again != fd {
				t.Errorf("descriptor %d, then %d", fd, again)
			}
			for round := range 3 {
				if round > 0 {
					tt.raise()
				}
				tt.raise()
				for left := 2; left > 0; left-- {
					if !readable(t, fd) {
						t.Fatalf("round %d: not readable with %d events", round, left)
					}
					ok(t, tt.get())
				}
				if readable(t, fd) {
					t.Fatalf("round %d: readable without an event", round)
				}
				refused(t, tt.get(), EAGAIN)
			}
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("flags %#x, %v: not closed on exec", flags, err)
			}
		})
	}
	cqDrv.up.Completion()
	fd := must(ch.FD())(t)
	cq.AckEvents(6)
	ok(t, cq.Close())
	if readable(t, fd) {
		t.Error("readable after the CQ of the only event was destroyed")
	}
	ok(t, ch.Close())
	ok(t, vctx.Close())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the descriptor is open after Close of its channel")
	}
}

// TestDescriptorManyEvents raises more events than the buffer of a pipe can hold.
func TestDescriptorManyEvents(t *testing.T) {
	vctx, drv := openFake(t)
	fd := must(vctx.AsyncFD())(t)
	const n = 100000
	for range n {
		drv.up.PortEvent(EventPortErr, 1)
	}
	for range n {
		if _, err := vctx.TryGetAsyncEvent(); err != nil {
			t.Fatal(err)
		}
	}
	if readable(t, fd) {
		t.Error("readable without an event")
	}
	ok(t, vctx.Close())
}
