package verbs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestV_AE_01_OldestFirst(t *testing.T) { // also V-CTX-02, V-AE-11
	vctx, drv := openFake(t)
	drv.up.PortEvent(EventPortErr, 1)
	drv.up.DeviceEvent(EventDeviceFatal)
	drv.up.PortEvent(EventGIDChange, 2)
	want := []AsyncEvent{{Type: EventPortErr, Port: 1}, {Type: EventDeviceFatal}, {Type: EventGIDChange, Port: 2}}
	for i, w := range want {
		ev := must(vctx.TryGetAsyncEvent())(t)
		if ev != w {
			t.Errorf("event %d: %+v", i, ev)
		}
		ev.Ack()
	}
}

func TestV_AE_02_GetBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vctx, drv := openFake(t)
		var at time.Duration
		start := time.Now()
		go func() {
			must(vctx.GetAsyncEvent(t.Context()))(t)
			at = time.Since(start)
		}()
		time.Sleep(time.Hour)
		drv.up.PortEvent(EventPortActive, 1)
		synctest.Wait()
		if at != time.Hour {
			t.Errorf("returned after %v", at)
		}
	})
}

func TestV_AE_02_GetEndsWithItsContext(t *testing.T) {
	vctx, drv := openFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := vctx.GetAsyncEvent(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	drv.up.PortEvent(EventPortErr, 1)
	must(vctx.GetAsyncEvent(ctx))(t) // an event that is queued is returned
}

func TestV_AE_03_TryIsEAGAIN(t *testing.T) {
	vctx, _ := openFake(t)
	_, err := vctx.TryGetAsyncEvent()
	refused(t, err, EAGAIN, "get_async_event")
}

// TestV_AE_04_OneEventOneCaller: many goroutines wait for many events, and each event is returned once.
func TestV_AE_04_OneEventOneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vctx, drv := openFake(t)
		const n = 50
		var mu sync.Mutex
		seen := map[uint8]int{}
		for range n {
			go func() {
				ev := must(vctx.GetAsyncEvent(t.Context()))(t)
				mu.Lock()
				seen[ev.Port]++
				mu.Unlock()
			}()
		}
		synctest.Wait()
		for port := range uint8(n) {
			drv.up.PortEvent(EventPortErr, port)
		}
		synctest.Wait()
		if len(seen) != n {
			t.Errorf("%d of %d events returned", len(seen), n)
		}
		if _, err := vctx.TryGetAsyncEvent(); !errors.Is(err, EAGAIN) {
			t.Errorf("an event is still queued: %v", err)
		}
	})
}

func TestCloseEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vctx, drv := openFake(t)
		ch := must(vctx.CreateCompChannel())(t)
		errs := make(chan error, 4)
		for range 2 {
			go func() { _, err := vctx.GetAsyncEvent(t.Context()); errs <- err }()
			go func() { _, err := ch.GetEvent(t.Context()); errs <- err }()
		}
		synctest.Wait()
		ok(t, ch.Close())
		ok(t, vctx.Close())
		for range 4 {
			if err := <-errs; !errors.Is(err, ErrClosed) {
				t.Errorf("%v", err)
			}
		}
		drv.up.DeviceEvent(EventDeviceFatal) // is dropped
	})
}

// affiliated returns a context with a CQ, a QP and an SRQ, and functions that raise an event of each.
func affiliated(t *testing.T) (vctx *Context, objects map[string]interface{ Close() error }, raise map[string]func()) {
	vctx, _ = openFake(t)
	pd := newPD(t, vctx)
	cq, cqDrv := newCQ(t, vctx, nil)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 4, MaxSGE: 1}}))(t)
	qp, qpDrv := newQP(t, pd, QPTypeRC)
	return vctx, map[string]interface{ Close() error }{"CQ": cq, "QP": qp, "SRQ": srq}, map[string]func(){
		"CQ":  cqDrv.up.Error,
		"QP":  func() { qpDrv.up.Event(EventCommEst) },
		"SRQ": func() { srq.drv.(*fakeSRQ).up.Event(EventSRQLimitReached) },
	}
}

// TestV_AE_06_DestroyWaitsForAcks is also V-AE-07, V-CQ-20, V-QPD-05 and V-SRQ-17.
func TestV_AE_06_DestroyWaitsForAcks(t *testing.T) {
	for _, name := range []string{"CQ", "QP", "SRQ"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				vctx, objects, raise := affiliated(t)
				raise[name]()
				raise[name]()
				raise[name]()
				first, second := must(vctx.TryGetAsyncEvent())(t), must(vctx.TryGetAsyncEvent())(t)
				closed := false
				go func() {
					ok(t, objects[name].Close())
					closed = true
				}()
				for _, ack := range []func(){func() {}, first.Ack, first.Ack, func() { copied := first; copied.Ack() }} {
					ack()
					time.Sleep(time.Hour)
					synctest.Wait()
					if closed {
						t.Fatal("closed with an event that is not acknowledged")
					}
				}
				// The third event, which was not retrieved, is dropped, and so are later ones.
				raise[name]()
				if _, err := vctx.TryGetAsyncEvent(); !errors.Is(err, EAGAIN) {
					t.Errorf("an event of an object that is being closed: %v", err)
				}
				second.Ack()
				synctest.Wait()
				if !closed {
					t.Error("not closed although all events are acknowledged")
				}
			})
		})
	}
}

func TestV_AE_09_ElementOfEachType(t *testing.T) {
	vctx, objects, raise := affiliated(t)
	for name, object := range objects {
		raise[name]()
		ev := must(vctx.TryGetAsyncEvent())(t)
		var got []any
		if ev.CQ != nil {
			got = append(got, ev.CQ)
		}
		if ev.QP != nil {
			got = append(got, ev.QP)
		}
		if ev.SRQ != nil {
			got = append(got, ev.SRQ)
		}
		if len(got) != 1 || got[0] != object || ev.Port != 0 {
			t.Errorf("%s: %+v", name, ev)
		}
		ev.Ack()
		ok(t, object.Close())
	}
}

func TestV_AE_10_OnlyTheContextOfTheObject(t *testing.T) {
	vctx, _, raise := affiliated(t)
	other, _ := openFake(t)
	raise["QP"]()
	if _, err := other.TryGetAsyncEvent(); !errors.Is(err, EAGAIN) {
		t.Errorf("%v", err)
	}
	must(vctx.TryGetAsyncEvent())(t)
}

func TestEventsOfOthersSurviveClose(t *testing.T) {
	vctx, objects, raise := affiliated(t)
	for _, name := range []string{"QP", "CQ", "QP", "SRQ"} {
		raise[name]()
	}
	ok(t, objects["QP"].Close())
	for _, want := range []EventType{EventCQErr, EventSRQLimitReached} {
		if ev := must(vctx.TryGetAsyncEvent())(t); ev.Type != want {
			t.Errorf("%v; want %v", ev.Type, want)
		}
	}
	_, err := vctx.TryGetAsyncEvent()
	refused(t, err, EAGAIN)
}
