package verbs

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// oneShotCQ is a driver's CQ that notifies once per ReqNotify, like a device.
type oneShotCQ struct {
	DriverUnsupported
	up DriverCQEvents

	mu    sync.Mutex
	wcs   []WC
	armed bool
	err   error  // of Poll, when the CQ is empty
	pause func() // called at the beginning of Poll and ReqNotify
}

func (c *oneShotCQ) Cap() int       { return 16 }
func (c *oneShotCQ) Destroy() error { return nil }

func (c *oneShotCQ) Poll(wcs []WC) (int, error) {
	c.pause()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(wcs, c.wcs)
	if c.wcs = c.wcs[n:]; n == 0 {
		return 0, c.err
	}
	return n, nil
}

func (c *oneShotCQ) ReqNotify(bool) error {
	c.pause()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
	return nil
}

func (c *oneShotCQ) push(id uint64) {
	c.mu.Lock()
	c.wcs = append(c.wcs, WC{WRID: id})
	raise := c.armed
	c.armed = false
	c.mu.Unlock()
	if raise {
		c.up.Completion()
	}
}

func newOneShot(t testing.TB, opts *CQOptions) (*CQ, *oneShotCQ) {
	t.Helper()
	vctx, _ := openFake(t)
	return newOneShotIn(t, vctx, opts)
}

func newOneShotIn(t testing.TB, vctx *Context, opts *CQOptions) (*CQ, *oneShotCQ) {
	t.Helper()
	cq, _ := newCQ(t, vctx, opts)
	drv := &oneShotCQ{up: (*cqEvents)(cq), pause: func() {}}
	cq.drv = drv
	return cq, drv
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq, drv := newOneShot(t, nil)
		ctx := t.Context()
		var wcs [2]WC
		drv.push(1)
		if n, err := cq.Wait(ctx, wcs[:]); n != 1 || err != nil || wcs[0].WRID != 1 || drv.armed {
			t.Errorf("a completion before Wait: %d, %v, %v", n, err, wcs)
		}
		time.AfterFunc(time.Second, func() { drv.push(2) })
		if n, err := cq.Wait(ctx, wcs[:]); n != 1 || err != nil || wcs[0].WRID != 2 {
			t.Errorf("a completion during Wait: %d, %v, %v", n, err, wcs)
		}
		_, err := cq.Wait(ctx, nil)
		refused(t, err, EINVAL, "wait_cq", "wcs is empty")
	})
}

// Wait returns when its context ends, the CQ is closed, the device fails or the CQ has an error, but completions first.
func TestWaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(cq *CQ, drv *oneShotCQ, cancel func())
		want error
	}{
		"context": {func(_ *CQ, _ *oneShotCQ, cancel func()) { cancel() }, context.Canceled},
		"close":   {func(cq *CQ, _ *oneShotCQ, _ func()) { _ = cq.Close() }, ErrClosed},
		"device": {func(cq *CQ, _ *oneShotCQ, _ func()) { (*contextEvents)(cq.ctx).DeviceEvent(EventDeviceFatal) },
			syscall.EIO},
		"CQ in error": {func(_ *CQ, drv *oneShotCQ, _ func()) {
			drv.mu.Lock()
			drv.err = syscall.EOVERFLOW
			drv.mu.Unlock()
			drv.up.Error()
		}, syscall.EOVERFLOW},
	} {
		synctest.Test(t, func(t *testing.T) {
			cq, drv := newOneShot(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			for range 3 {
				done.Go(func() {
					var wcs [1]WC
					if n, err := cq.Wait(ctx, wcs[:]); n != 0 || !errors.Is(err, c.want) {
						t.Errorf("%s: %d, %v", name, n, err)
					}
				})
			}
			synctest.Wait()
			c.end(cq, drv, cancel)
			done.Wait()
			var wcs [1]WC
			if _, err := cq.Wait(ctx, wcs[:]); !errors.Is(err, c.want) {
				t.Errorf("%s: afterwards: %v", name, err)
			}
			if !cq.lifetime.closed.Load() {
				drv.push(7)
				if n, err := cq.Wait(ctx, wcs[:]); n != 1 || err != nil {
					t.Errorf("%s: a queued completion: %d, %v", name, n, err)
				}
			}
			cancel()
		})
	}
}

// Wait takes no event from a channel of the CQ.
func TestWaitWithChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vctx, _ := openFake(t)
		ch := must(vctx.CreateCompChannel())(t)
		cq, drv := newOneShotIn(t, vctx, &CQOptions{Channel: ch})
		ctx := t.Context()
		wait := func() {
			t.Helper()
			time.AfterFunc(time.Second, func() { drv.push(1) })
			if n, err := cq.Wait(ctx, make([]WC, 1)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		wait()
		if _, err := ch.TryGetEvent(); !errors.Is(err, EAGAIN) {
			t.Errorf("an event without ReqNotify: %v", err)
		}
		ok(t, cq.ReqNotify(false))
		for range 10 {
			wait()
		}
		if got := must(ch.TryGetEvent())(t); got != cq {
			t.Error("the event is another CQ's")
		}
		cq.AckEvents(1)
		if _, err := ch.TryGetEvent(); !errors.Is(err, EAGAIN) {
			t.Errorf("a second event: %v", err)
		}
		ok(t, cq.ReqNotify(false))
		drv.push(1)
		must(ch.TryGetEvent())(t)
		cq.AckEvents(1)
		ok(t, cq.Close())
	})
}

// A completion just before ReqNotify raises no event, so Wait must poll after ReqNotify.
func TestWaitPollsAfterReqNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for before := range 5 {
			cq, drv := newOneShot(t, nil)
			calls := 0
			drv.pause = func() {
				if calls == before {
					drv.push(7)
				}
				calls++
			}
			var wcs [1]WC
			if before > 2 { // Wait sleeps before this call
				time.AfterFunc(time.Second, func() { drv.push(7) })
			}
			if n, err := cq.Wait(t.Context(), wcs[:]); n != 1 || err != nil { // a deadlock fails the test
				t.Errorf("before call %d: %d, %v", before, n, err)
			}
		}
	})
}

// Completions come at random times, and some waiters time out: no waiter may sleep while there is a completion.
func TestWaitLosesNoWakeUp(t *testing.T) {
	for name, every := range map[string]int{"no time-outs": 0, "half of the waiters time out": 2} {
		t.Run(name, func(t *testing.T) { stressWait(t, every) })
	}
}

// stressWait has 8 goroutines wait. If every is not 0, one of every so many uses short time-outs.
func stressWait(t *testing.T, every int) {
	const total, waiters = 5000, 8
	cq, drv := newOneShot(t, nil)
	drv.pause = func() {
		if rand.IntN(4) == 0 {
			runtime.Gosched()
		}
	}
	var taken atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range waiters {
		all.Go(func() {
			wcs := make([]WC, 1+i%3)
			for ctx.Err() == nil {
				limited, stop := ctx, func() {}
				if every > 0 && i%every == 1 {
					limited, stop = context.WithTimeout(ctx, time.Duration(rand.IntN(50))*time.Microsecond)
				}
				n, err := cq.Wait(limited, wcs)
				stop()
				taken.Add(int64(n))
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					t.Error(err)
					return
				}
			}
		})
	}
	for sent := 0; sent < total; {
		for range min(1+rand.IntN(4), total-sent) {
			drv.push(uint64(sent))
			sent++
		}
		for begin := time.Now(); taken.Load() < int64(sent); { // the waiters must take all without a further completion
			if time.Since(begin) > 20*time.Second {
				t.Errorf("%d completions, but the waiters returned %d", sent, taken.Load())
				sent = total
				break
			}
			runtime.Gosched()
		}
	}
	cancel()
	all.Wait()
}

// The waiters have no time limit and take one completion each, so each is woken only by the event or by another waiter.
func TestWaitersWakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq, drv := newOneShot(t, nil)
		var done sync.WaitGroup
		for range 100 {
			done.Go(func() {
				if n, err := cq.Wait(t.Context(), make([]WC, 1)); n != 1 || err != nil {
					t.Error(n, err)
				}
			})
		}
		synctest.Wait()
		drv.mu.Lock()
		drv.wcs = make([]WC, 99) // one event for 100 completions
		drv.mu.Unlock()
		drv.push(99)
		done.Wait() // a deadlock fails the test
	})
}

func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq, drv := newOneShot(t, nil)
		for i := range 5 {
			drv.push(uint64(i))
		}
		next := uint64(0)
		for wc, err := range cq.All(t.Context()) {
			if err != nil || wc.WRID != next {
				t.Fatal(wc, err)
			}
			if next++; next == 3 {
				break // the other completions stay in the CQ
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var last error
		for wc, err := range cq.All(ctx) {
			if last = err; err == nil && wc.WRID != next {
				t.Fatal(wc)
			}
			next++
		}
		if !errors.Is(last, context.DeadlineExceeded) || next != 6 {
			t.Error(last, next)
		}
	})
}

func BenchmarkWait(b *testing.B) {
	cq, drv := newOneShot(b, nil)
	drv.wcs = make([]WC, 0, 16)
	var wcs [1]WC
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		drv.wcs = drv.wcs[:0:16]
		drv.wcs = append(drv.wcs[:0], WC{})
		if _, err := cq.Wait(ctx, wcs[:]); err != nil {
			b.Fatal(err)
		}
	}
}
