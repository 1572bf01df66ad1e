//go:build linux || darwin

package verbs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// readable asks poll whether a descriptor is readable.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	ok(t, err)
	return n == 1 && p[0].Revents&unix.POLLIN != 0
}

// TestV_EV_04_V_CC_01_V_AE_03_Descriptor is also V-CC-01 and V-AE-03: the descriptor is readable exactly while there are events.
func TestV_EV_04_V_CC_01_V_AE_03_Descriptor(t *testing.T) {
	ctx, drv := openFake(t)
	ch := must(ctx.CreateCompChannel())(t)
	cq, cqDrv := newCQ(t, ctx, &CQOptions{Channel: ch})
	tests := map[string]struct {
		fd    func() (int, error)
		raise func()
		get   func() error
	}{
		"channel": {ch.FD, cqDrv.up.Completion, func() error { _, err := ch.TryGetEvent(); return err }},
		"context": {ctx.AsyncFD, func() { drv.up.PortEvent(EventPortErr, 1) }, func() error { _, err := ctx.TryGetAsyncEvent(); return err }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.raise() // before the descriptor exists
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
	ok(t, ctx.Close())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the descriptor outlives its channel")
	}
}

// TestDescriptorManyEvents raises more events than a pipe or a counter could hold one by one.
func TestDescriptorManyEvents(t *testing.T) {
	ctx, drv := openFake(t)
	fd := must(ctx.AsyncFD())(t)
	const n = 100000
	for range n {
		drv.up.PortEvent(EventPortErr, 1)
	}
	for range n {
		if _, err := ctx.TryGetAsyncEvent(); err != nil {
			t.Fatal(err)
		}
	}
	if readable(t, fd) {
		t.Error("readable without an event")
	}
	ok(t, ctx.Close())
}
