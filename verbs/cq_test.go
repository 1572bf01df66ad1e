package verbs

import (
	"errors"
	"math"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestV_CQ_01_Cap(t *testing.T) { // also V-CQ-14
	vctx, _ := openFake(t)
	cq := must(vctx.CreateCQ(7, nil))(t)
	if cq.Cap() != 8 || cq.Context() != vctx {
		t.Errorf("cap %d; want the driver's", cq.Cap())
	}
	ok(t, cq.Resize(21))
	if cq.Cap() != 22 {
		t.Errorf("cap %d after resizing", cq.Cap())
	}
}

func TestV_CQ_02_Context(t *testing.T) {
	vctx, _ := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	cq, drv := newCQ(t, vctx, &CQOptions{Context: 42, Channel: ch, CompVector: 1})
	if cq.CQContext() != 42 || cq.Channel() != ch || drv.opts.CompVector != 1 {
		t.Errorf("context %v, vector %d", cq.CQContext(), drv.opts.CompVector)
	}
	drv.up.Completion()
	if got := must(ch.TryGetEvent())(t); got != cq || got.CQContext() != 42 {
		t.Errorf("%v", got)
	}
	cq.AckEvents(1)
}

func TestV_CQ_03_NoChannel(t *testing.T) {
	vctx, _ := openFake(t)
	cq, drv := newCQ(t, vctx, nil)
	ok(t, cq.ReqNotify(false))
	drv.up.Completion()
	ok(t, cq.Close())
}

// TestD_17_CQSize checks the range of cqe, 1 to max_cqe (V-CQ-09 and later for Resize).
func TestD_17_CQSize(t *testing.T) {
	vctx, drv := openFake(t)
	cq, _ := newCQ(t, vctx, nil)
	for _, cqe := range []int{0, -1, 4097, math.MaxInt} {
		_, err := vctx.CreateCQ(cqe, nil)
		refused(t, err, EINVAL, "create_cq", "1 to 4096")
		refused(t, cq.Resize(cqe), EINVAL, "resize_cq", "1 to 4096")
	}
	for _, cqe := range []int{1, 4096} {
		ok(t, must(vctx.CreateCQ(cqe, nil))(t).Close())
		ok(t, cq.Resize(cqe))
	}
	drv.fail["CreateCQ"] = ENOMEM
	_, err := vctx.CreateCQ(1, nil)
	refused(t, err, ENOMEM)
	ok(t, cq.Close())
	ok(t, vctx.Close()) // a failed call leaves no object
}

func TestD_02_CompVectorIsHalfOpen(t *testing.T) {
	vctx, _ := openFake(t)
	for _, v := range []int{-1, 2} {
		_, err := vctx.CreateCQ(1, &CQOptions{CompVector: v})
		refused(t, err, EINVAL, "0 to 1")
	}
	for _, v := range []int{0, 1} {
		must(vctx.CreateCQ(1, &CQOptions{CompVector: v}))(t)
	}
}

func TestV_CQ_ChannelOfTheSameContext(t *testing.T) {
	vctx, _ := openFake(t)
	other, _ := openFake(t)
	ch := must(other.CreateCompChannel())(t)
	_, err := vctx.CreateCQ(1, &CQOptions{Channel: ch})
	refused(t, err, EINVAL, "another context")
	closed := must(vctx.CreateCompChannel())(t)
	ok(t, closed.Close())
	_, err = vctx.CreateCQ(1, &CQOptions{Channel: closed})
	refused(t, err, EINVAL, "closed")
	ok(t, vctx.Close())
}

func TestV_CQ_15_FailedResizeChangesNothing(t *testing.T) {
	vctx, drv := openFake(t)
	cq, cqDrv := newCQ(t, vctx, nil)
	cqDrv.wcs = []WC{{WRID: 1}, {WRID: 2}}
	for _, errno := range []Errno{ENOMEM, EINVAL, EOPNOTSUPP} {
		drv.fail["Resize"] = errno
		refused(t, cq.Resize(100), errno, "resize_cq")
		if cq.Cap() != 16 {
			t.Errorf("cap %d", cq.Cap())
		}
	}
	drv.fail["Resize"] = EOPNOTSUPP
	refused(t, cq.Resize(100), ENOSYS) // D-23
	var wcs [4]WC
	if n := must(cq.Poll(wcs[:]))(t); n != 2 || wcs[1].WRID != 2 {
		t.Errorf("%d completions", n)
	}
}

func TestV_CQ_17_Sample(t *testing.T) { // E-08; V-CQ-11: without QPs
	vctx, _ := openFake(t)
	cq := must(vctx.CreateCQ(100, nil))(t)
	ok(t, cq.Resize(2000))
	ok(t, cq.Close())
}

func TestV_CQ_18_X_CQ_01_Moderate(t *testing.T) {
	vctx, _ := openFake(t)
	cq, drv := newCQ(t, vctx, nil)
	for _, m := range []ModerateCQ{{3, 50}, {100, 200}, {0, 0}} {
		ok(t, cq.Modify(&ModifyCQAttr{AttrMask: CQAttrModerate, Moderate: m}))
		if drv.moderation != m {
			t.Errorf("%+v", drv.moderation)
		}
	}
	ok(t, cq.Modify(&ModifyCQAttr{Moderate: ModerateCQ{1, 1}})) // changes nothing
	for _, bad := range []*ModifyCQAttr{
		nil,
		{AttrMask: CQAttrReserved},
		{AttrMask: CQAttrReserved | CQAttrModerate},
		{AttrMask: CQAttrModerate, Moderate: ModerateCQ{Count: 101}},
		{AttrMask: CQAttrModerate, Moderate: ModerateCQ{Period: 201}},
	} {
		refused(t, cq.Modify(bad), EINVAL, "modify_cq")
	}
	drv.fail["Moderate"] = syscall.ENOMEM
	refused(t, cq.Modify(&ModifyCQAttr{AttrMask: CQAttrModerate}), ENOMEM, "modify_cq")
	cq.drv = bareCQ{requiredCQ: drv}
	refused(t, cq.Modify(&ModifyCQAttr{AttrMask: CQAttrModerate}), ENOSYS, "modify_cq")
}

func TestV_CQ_19_DestroyNeedsQPsGone(t *testing.T) { // D-16; V-CQ-04: one CQ for several QPs, two CQs for one QP
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	recv, _ := newCQ(t, vctx, nil)
	a := must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq}))(t)
	b := must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: recv}))(t)
	refused(t, cq.Close(), EBUSY, "destroy_cq", "still used by 2 QPs")
	refused(t, recv.Close(), EBUSY, "still used by 1 QP (")
	if drv.called("DestroyCQ") {
		t.Error("the driver was called")
	}
	must(cq.Poll(make([]WC, 1)))(t)
	ok(t, a.Close())
	refused(t, cq.Close(), EBUSY, "still used by 1 QP (")
	ok(t, b.Close())
	drv.fail["DestroyCQ"] = syscall.EIO
	refused(t, cq.Close(), syscall.EIO)
	drv.fail["DestroyCQ"] = nil
	ok(t, cq.Close())
	ok(t, recv.Close())
}

// TestV_CQ_21_DestroyWaitsForCompEvents: Close waits for retrieved events and drops the others (V-CQ-22).
func TestV_CQ_21_DestroyWaitsForCompEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vctx, _ := openFake(t)
		ch := must(vctx.CreateCompChannel())(t)
		cq, drv := newCQ(t, vctx, &CQOptions{Channel: ch})
		other, otherDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
		for range 3 {
			drv.up.Completion()
		}
		otherDrv.up.Completion()
		must(ch.TryGetEvent())(t)
		must(ch.TryGetEvent())(t)
		closed := false
		go func() {
			ok(t, cq.Close())
			closed = true
		}()
		time.Sleep(time.Hour)
		cq.AckEvents(0)
		cq.AckEvents(-5)
		cq.AckEvents(1)
		synctest.Wait()
		if closed {
			t.Fatal("closed with an event that is not acknowledged")
		}
		drv.up.Completion() // is dropped
		cq.AckEvents(1)
		synctest.Wait()
		if !closed {
			t.Fatal("not closed although all events are acknowledged")
		}
		if got := must(ch.TryGetEvent())(t); got != other {
			t.Error("want only the event of the other CQ")
		}
		_, err := ch.TryGetEvent()
		refused(t, err, EAGAIN)
		other.AckEvents(100) // more than retrieved: acknowledges all
		ok(t, other.Close())
		ok(t, ch.Close())
	})
}

func TestSurplusAcksAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vctx, _ := openFake(t)
		ch := must(vctx.CreateCompChannel())(t)
		cq, drv := newCQ(t, vctx, &CQOptions{Channel: ch})
		cq.AckEvents(5)
		drv.up.Completion()
		must(ch.TryGetEvent())(t)
		done := false
		go func() { ok(t, cq.Close()); done = true }()
		synctest.Wait()
		if done {
			t.Error("closed with an event that is not acknowledged")
		}
		cq.AckEvents(1)
	})
}

func TestV_CC_05_DestroyNeedsCQsGone(t *testing.T) {
	vctx, _ := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	a, drv := newCQ(t, vctx, &CQOptions{Channel: ch})
	b, _ := newCQ(t, vctx, &CQOptions{Channel: ch})
	refused(t, ch.Close(), EBUSY, "destroy_comp_channel", "still used by 2 CQs")
	drv.up.Completion()
	must(ch.TryGetEvent())(t).AckEvents(1)
	ok(t, a.Close())
	ok(t, b.Close())
	ok(t, ch.Close())
}

func TestV_CC_03_OneChannelForSeveralCQs(t *testing.T) { // V-EV-01: the event names its CQ, oldest first
	vctx, _ := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	if ch.Context() != vctx {
		t.Error("context")
	}
	a, aDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
	b, bDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
	bDrv.up.Completion()
	aDrv.up.Completion()
	if x, y := must(ch.TryGetEvent())(t), must(ch.TryGetEvent())(t); x != b || y != a {
		t.Errorf("%v, %v", x, y)
	}
}

func TestV_CC_04_WaiterIsWoken(t *testing.T) { // V-EV-01
	synctest.Test(t, func(t *testing.T) {
		vctx, _ := openFake(t)
		ch := must(vctx.CreateCompChannel())(t)
		cq, drv := newCQ(t, vctx, &CQOptions{Channel: ch})
		var got *CQ
		go func() { got = must(ch.GetEvent(t.Context()))(t) }()
		time.Sleep(time.Minute)
		if got != nil {
			t.Fatal("GetEvent returned without an event")
		}
		drv.up.Completion()
		synctest.Wait()
		if got != cq {
			t.Error("GetEvent did not return")
		}
		cq.AckEvents(1)
		ok(t, cq.Close())
	})
}

func TestV_EV_04_TryIsEAGAIN(t *testing.T) {
	vctx, _ := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	_, err := ch.TryGetEvent()
	refused(t, err, EAGAIN, "get_cq_event")
}

func TestV_NTF_ReqNotifyReachesDriver(t *testing.T) {
	vctx, drv := openFake(t)
	cq, cqDrv := newCQ(t, vctx, nil)
	ok(t, cq.ReqNotify(true))
	ok(t, cq.ReqNotify(false))
	if len(cqDrv.armed) != 2 || !cqDrv.armed[0] || cqDrv.armed[1] {
		t.Errorf("%v", cqDrv.armed)
	}
	drv.fail["ReqNotify"] = syscall.EIO
	refused(t, cq.ReqNotify(false), syscall.EIO, "req_notify_cq")
}

func TestV_POLL_01_Poll(t *testing.T) { // V-POLL-02, V-KC-04
	vctx, drv := openFake(t)
	cq, cqDrv := newCQ(t, vctx, nil)
	cqDrv.wcs = []WC{{WRID: 1}, {WRID: 2}, {WRID: 3}}
	wcs := make([]WC, 2)
	if n := must(cq.Poll(nil))(t); n != 0 {
		t.Errorf("%d completions for an empty slice", n)
	}
	if n := must(cq.Poll(wcs))(t); n != 2 || wcs[0].WRID != 1 || wcs[1].WRID != 2 {
		t.Errorf("%d: %v", n, wcs)
	}
	if n := must(cq.Poll(wcs))(t); n != 1 || wcs[0].WRID != 3 {
		t.Errorf("%d: %v", n, wcs)
	}
	if n := must(cq.Poll(wcs))(t); n != 0 {
		t.Errorf("%d completions from an empty CQ", n)
	}
	drv.fail["Poll"] = syscall.EIO
	_, err := cq.Poll(wcs)
	refused(t, err, syscall.EIO, "poll_cq", "CQ of 16 entries of vrb_fake0")
}

// TestV_LIB_04_Concurrency: many goroutines use and close the same objects, under the race detector.
func TestV_LIB_04_Concurrency(t *testing.T) {
	vctx, _ := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	pd := newPD(t, vctx)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				cq, err := vctx.CreateCQ(4, &CQOptions{Channel: ch})
				if err != nil {
					t.Error(err)
					return
				}
				drv := cq.drv.(*fakeCQ)
				qp, err := pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq})
				if err != nil {
					t.Error(err)
					return
				}
				up := qp.drv.(*fakeQP).up
				var inner sync.WaitGroup
				inner.Go(func() { drv.up.Completion(); up.Event(EventCommEst); up.StateChanged(QPSErr) })
				inner.Go(func() { _ = qp.Modify(&QPAttr{QPState: QPSErr}, QPAttrState) })
				inner.Go(func() { _ = qp.PostSend(SendWR{Opcode: WRSend}); _, _, _ = qp.Query(0) })
				inner.Go(func() { _ = cq.ReqNotify(false); _ = cq.Cap() })
				inner.Wait()
				if got, err := ch.TryGetEvent(); err == nil {
					got.AckEvents(1)
				}
				if ev, err := vctx.TryGetAsyncEvent(); err == nil {
					ev.Ack()
				}
				var closing sync.WaitGroup
				results := make([]error, 2)
				for i := range results {
					closing.Go(func() { results[i] = qp.Close() })
				}
				closing.Wait()
				if (results[0] == nil) == (results[1] == nil) {
					t.Errorf("two closes: %v, %v", results[0], results[1])
				}
				if err := cq.Close(); err != nil && !errors.Is(err, EBUSY) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	ok(t, pd.Close())
	ok(t, ch.Close())
	ok(t, vctx.Close())
}
