package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/seam"
)

// semaphore makes the descriptor that a C program reads.
func semaphore(t *testing.T, flags int) int {
	t.Helper()
	fd := must(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE|flags))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// drain returns how many units a descriptor holds.
func drain(t *testing.T, fd int) (units int) {
	t.Helper()
	for readable(t, fd) {
		if !readUnit(fd) {
			t.Fatal("a readable descriptor has no unit")
		}
		units++
	}
	return units
}

// readUnit reads one unit as a C program does: with a read that may block.
func readUnit(fd int) bool {
	var unit [8]byte
	for {
		n, err := unix.Read(fd, unit[:])
		if err == unix.EINTR {
			continue
		}
		return err == nil && n == 8 && binary.NativeEndian.Uint64(unit[:]) == 1
	}
}

// TestCountEvents counts the events of both kinds of queues, in blocking and other descriptors, before and after the
// call, and those that GetEvent takes.
func TestCountEvents(t *testing.T) {
	vctx, drv := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	cq, cqDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
	tests := map[string]struct {
		queue    any
		raise    func()
		try, get func() error
	}{
		"channel": {ch, cqDrv.up.Completion,
			func() error { _, err := ch.TryGetEvent(); return err },
			func() error { _, err := ch.GetEvent(context.Background()); return err }},
		"context": {vctx, func() { drv.up.PortEvent(EventPortErr, 1) },
			func() error { _, err := vctx.TryGetAsyncEvent(); return err },
			func() error { _, err := vctx.GetAsyncEvent(context.Background()); return err }},
	}
	for name, tt := range tests {
		for _, flags := range []int{0, unix.EFD_NONBLOCK} {
			t.Run(name, func(t *testing.T) {
				fd := semaphore(t, flags)
				tt.raise()
				ok(t, seam.CountEvents(tt.queue, fd))
				tt.raise()
				tt.raise()
				for left := 3; left > 1; left-- {
					if !readUnit(fd) {
						t.Fatalf("no unit, with %d events", left)
					}
					ok(t, tt.try())
				}
				ok(t, tt.get())
				if units := drain(t, fd); units != 0 {
					t.Errorf("%d units without an event", units)
				}
				refused(t, tt.try(), EAGAIN)
				tt.raise()
				if units := drain(t, fd); units != 1 {
					t.Errorf("%d units for one event", units)
				}
				ok(t, tt.try())
				ok(t, seam.CountEvents(tt.queue, -1))
				tt.raise()
				if units := drain(t, fd); units != 0 {
					t.Errorf("%d units after the end of the counting", units)
				}
				ok(t, tt.try())
			})
		}
	}
	refused(t, seam.CountEvents(ch, 1<<20), unix.EBADF)
	refused(t, seam.CountEvents(cq, 0), EINVAL)
	cq.AckEvents(100)
	ok(t, cq.Close())
	ok(t, ch.Close())
	refused(t, seam.CountEvents(ch, -1), EINVAL)
}

// TestCountEventsOfDestroyedCQ destroys one of two CQs: the units of its events are taken back. A unit that a reader
// has read already is taken back when the reader pops.
func TestCountEventsOfDestroyedCQ(t *testing.T) {
	for _, held := range []int{0, 1, 2} {
		vctx, _ := openFake(t)
		ch := must(vctx.CreateCompChannel())(t)
		a, aDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
		b, bDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
		fd := semaphore(t, 0)
		ok(t, seam.CountEvents(ch, fd))
		for range 2 {
			aDrv.up.Completion()
		}
		for range held {
			readUnit(fd)
		}
		ok(t, a.Close())
		if readable(t, fd) {
			t.Errorf("held %d: a unit is left of a destroyed CQ", held)
		}
		// The next event pays for itself, whoever pops it.
		bDrv.up.Completion()
		if !readable(t, fd) {
			t.Errorf("held %d: no unit for the event of the other CQ", held)
		}
		got := 0
		for range held {
			if _, err := ch.TryGetEvent(); err == nil {
				got++
			} else {
				refused(t, err, EAGAIN)
			}
		}
		if left := drain(t, fd); left+got != 1 {
			t.Errorf("held %d: %d events popped, %d units left of one event", held, got, left)
		}
		if got == 0 {
			must(ch.TryGetEvent())(t)
		}
		b.AckEvents(1)
		ok(t, b.Close())
		ok(t, ch.Close())
	}
}

// TestCountEventsWithBlockedReaders has readers block in read(2) while events come and CQs with events are destroyed.
// No reader stays behind, no event is left, and no unit without an event.
func TestCountEventsWithBlockedReaders(t *testing.T) {
	const readers, rounds, burst = 8, 300, 7
	vctx, _ := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	kept, keptDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
	fd := semaphore(t, 0)
	ok(t, seam.CountEvents(ch, fd))

	var got atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for readUnit(fd) && !stop.Load() {
				cq, err := ch.TryGetEvent()
				switch {
				case err == nil:
					if cq == kept {
						got.Add(1)
					}
					cq.AckEvents(1)
				case !errors.Is(err, EAGAIN):
					t.Error(err)
				}
			}
		})
	}
	for range rounds {
		cq, drv := newCQ(t, vctx, &CQOptions{Channel: ch})
		var ev sync.WaitGroup
		ev.Go(func() {
			for range burst {
				drv.up.Completion()
			}
		})
		for range burst {
			keptDrv.up.Completion()
		}
		ok(t, cq.Close())
		ev.Wait()
	}
	await(t, func() bool { return got.Load() == rounds*burst })
	await(t, func() bool { return !readable(t, fd) })
	stop.Store(true)
	for range readers {
		_, err := unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1))
		ok(t, err)
	}
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	// A reader that has ended by the unit of a destroyed CQ's event, read before, leaves one. The queue takes one back
	// for it when another reader pops.
	await(t, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		if !readable(t, fd) {
			_, err := unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1))
			ok(t, err)
		}
		return false
	})
	if units := drain(t, fd); units > readers {
		t.Errorf("%d units without an event", units)
	}
	ok(t, kept.Close())
	ok(t, ch.Close())
}

// Events that were taken before the counting do not count.
func TestCountEventsThatAreLeft(t *testing.T) {
	vctx, drv := openFake(t)
	for range 5 {
		drv.up.PortEvent(EventPortErr, 1)
	}
	for range 2 {
		must(vctx.TryGetAsyncEvent())(t)
	}
	fd := semaphore(t, unix.EFD_NONBLOCK)
	ok(t, seam.CountEvents(vctx, fd))
	if units := drain(t, fd); units != 3 {
		t.Errorf("%d units for 3 events", units)
	}
	ok(t, vctx.Close())
}

// The removal of the device counts as one event, so that a reader learns of it, whether the counting began before or
// after it.
func TestCountEventsAfterRemoval(t *testing.T) {
	for _, first := range []bool{false, true} {
		vctx, drv := openFake(t)
		ch := must(vctx.CreateCompChannel())(t)
		fd, async := semaphore(t, unix.EFD_NONBLOCK), semaphore(t, unix.EFD_NONBLOCK)
		remove := func() { drv.up.DeviceEvent(EventDeviceFatal) }
		if first {
			remove()
		}
		ok(t, seam.CountEvents(ch, fd))
		ok(t, seam.CountEvents(vctx, async))
		if !first {
			remove()
		}
		if units := drain(t, fd); units != 1 {
			t.Errorf("removed before %v: %d units of a channel", first, units)
		}
		if units := drain(t, async); units != 2 { // the event of the removal, and its end
			t.Errorf("removed before %v: %d units of the context", first, units)
		}
		for range 2 { // each reader gives the unit back for the next one
			_, err := ch.TryGetEvent()
			refused(t, err, unix.EIO)
			if units := drain(t, fd); units != 1 {
				t.Errorf("%d units after TryGetEvent", units)
			}
		}
	}
}

// await waits until a condition holds.
func await(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !what(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 20 s")
		}
	}
}
