package verbs

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

func TestV_CQX_01_V_CQX_02_Attributes(t *testing.T) {
	vctx, _ := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	opts := CQOptions{
		Context: "mine", Channel: ch, CompVector: 1, WCFlags: WCExWithByteLen | WCExWithCVLAN, Flags: CreateCQIgnoreOverrun,
	}
	cq := must(vctx.CreateCQ(15, &opts))(t)
	if cq.Cap() != 16 || cq.CQContext() != "mine" || cq.Channel() != ch || cq.Context() != vctx {
		t.Errorf("%+v", cq)
	}
	if drv := cq.drv.(*fakeCQ); drv.opts != opts {
		t.Errorf("the driver got %+v", drv.opts)
	}
	refused(t, ch.Close(), EBUSY)
	ok(t, cq.Close())
	ok(t, ch.Close())
	ok(t, vctx.Close())
}

func TestV_CQX_01_Ranges(t *testing.T) {
	vctx, drv := openFake(t)
	other, _ := openFake(t)
	pd, otherPD := newPD(t, vctx), newPD(t, other)
	parent := must(other.AllocParentDomain(&ParentDomainInitAttr{PD: otherPD}))(t)
	type attr struct {
		cqe  int
		opts CQOptions
	}
	for _, good := range []attr{{cqe: 1}, {cqe: 4096},
		{1, CQOptions{WCFlags: CreateCQSupWCFlags, Flags: 3, CompVector: 1}}} {
		ok(t, must(vctx.CreateCQ(good.cqe, &good.opts))(t).Close())
	}
	for _, bad := range []attr{
		{}, {cqe: -1}, {cqe: 4097},
		{1, CQOptions{CompVector: 2}}, {1, CQOptions{CompVector: -1}},
		{1, CQOptions{WCFlags: 1 << 12}}, {1, CQOptions{WCFlags: 1 << 63}}, {1, CQOptions{Flags: 1 << 2}},
		{1, CQOptions{ParentDomain: pd}}, {1, CQOptions{ParentDomain: parent}},
	} {
		_, err := vctx.CreateCQ(bad.cqe, &bad.opts)
		refused(t, err, EINVAL, "create_cq")
	}
	drv.fail["CreateCQ"] = ErrNotSupported
	_, err := vctx.CreateCQ(1, &CQOptions{WCFlags: WCExWithTMInfo})
	refused(t, err, EOPNOTSUPP, "create_cq")
	ok(t, pd.Close())
	ok(t, vctx.Close()) // a failed call leaves no object
	_, err = vctx.CreateCQ(1, nil)
	refused(t, err, EINVAL, "closed")
}

func TestV_CQX_03_V_CQX_04_V_CQX_05_Bits(t *testing.T) {
	checkBits(t, map[int]CreateCQWCFlags{
		0: WCExWithByteLen, 1: WCExWithImm, 2: WCExWithQPNum, 3: WCExWithSrcQP, 4: WCExWithSLID, 5: WCExWithSL,
		6: WCExWithDLIDPathBits,
		7: WCExWithCompletionTimestamp, 8: WCExWithCVLAN, 9: WCExWithFlowTag, 10: WCExWithTMInfo,
		11: WCExWithCompletionTimestampWallclock,
	})
	if WCStandardFlags != 0x7f || CreateCQSupWCFlags != 0xfff {
		t.Errorf("%#x, %#x", uint64(WCStandardFlags), uint64(CreateCQSupWCFlags))
	}
	checkBits(t, map[int]CreateCQFlags{0: CreateCQSingleThreaded, 1: CreateCQIgnoreOverrun})
	checkBits(t, map[int]CQAttrMask{0: CQAttrModerate, 1: CQAttrReserved})
	if s := (WCExWithSL | WCExWithTMInfo | 1<<20).String(); s != "SL|TM_INFO|0x100000" {
		t.Error(s)
	}
}

func TestV_CQX_06_V_CQX_07_D_29_ExtendedCQIsACQ(t *testing.T) {
	vctx, _ := openFake(t)
	cq, drv := withBatches(t, vctx, CQOptions{WCFlags: WCExWithByteLen})
	drv.wcs = []WC{{WRID: 5}}
	var wcs [2]WC
	if n, err := cq.Poll(wcs[:]); n != 1 || err != nil || wcs[0].WRID != 5 {
		t.Error(n, err, wcs)
	}
	ok(t, cq.ReqNotify(true))
	ok(t, cq.Resize(20))
	if len(drv.armed) != 1 || cq.Cap() != 20 {
		t.Error(drv.armed, cq.Cap())
	}
	pd := newPD(t, vctx)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq}))(t)
	refused(t, cq.Close(), EBUSY, "1 QP")
	ok(t, qp.Close())
	ok(t, cq.Close())
	refused(t, cq.StartPoll(&wcs[0]), EINVAL, "start_poll", "closed")
}

func TestV_CQX_08_StartPoll(t *testing.T) {
	vctx, _ := openFake(t)
	cq, drv := withBatches(t, vctx, CQOptions{})
	var wc WC
	for range 3 { // an empty CQ stays valid
		if err := cq.StartPoll(&wc); err != ErrNoCompletion { //nolint:errorlint // a loop may compare
			t.Fatal(err)
		}
		refused(t, cq.StartPoll(&wc), ENOENT)
	}
	drv.fail["PollOne"] = syscall.EIO
	refused(t, cq.StartPoll(&wc), syscall.EIO, "start_poll")
	drv.fail["PollOne"] = nil
	drv.ex = []WC{{WRID: 1}}
	ok(t, cq.StartPoll(&wc)) // after a failure no lock is held
	cq.EndPoll()
	cq.EndPoll() // has no effect
	if want := []bool{false, false, false, false, false, false, false, false}; !reflect.DeepEqual(drv.more, want) {
		t.Error(drv.more)
	}
	cq.drv = bareCQ{requiredCQ: drv}
	refused(t, cq.StartPoll(&wc), EOPNOTSUPP, "batches")
}

func TestV_CQX_09_V_CQX_10_V_CQX_11_NextPoll(t *testing.T) {
	vctx, _ := openFake(t)
	cq, drv := withBatches(t, vctx, CQOptions{}, WC{WRID: 1}, WC{WRID: 2, Status: WCLocLenErr}, WC{WRID: 3})
	var wc WC
	refused(t, cq.NextPoll(&wc), EINVAL, "next_poll", "call StartPoll first")
	ok(t, cq.StartPoll(&wc))
	if wc.WRID != 1 || wc.Status != WCSuccess || wc.Err() != nil {
		t.Errorf("%+v", wc)
	}
	ok(t, cq.NextPoll(&wc))
	if wc.WRID != 2 || wc.Status != WCLocLenErr || !errors.Is(wc.Err(), WCLocLenErr) {
		t.Errorf("%+v", wc)
	}
	cq.EndPoll()
	refused(t, cq.NextPoll(&wc), EINVAL)
	ok(t, cq.StartPoll(&wc)) // the completions after the first batch
	if wc.WRID != 3 || wc.Status != WCSuccess {
		t.Errorf("%+v", wc)
	}
	if err := cq.NextPoll(&wc); err != ErrNoCompletion { //nolint:errorlint // a loop may compare
		t.Error(err)
	}
	drv.fail["PollOne"] = syscall.EIO
	refused(t, cq.NextPoll(&wc), syscall.EIO)
	drv.fail["PollOne"] = nil
	drv.ex = []WC{{}}
	ok(t, cq.NextPoll(&wc)) // the batch is still open after an error
	cq.EndPoll()
	if want := []bool{false, true, false, true, true, true}; !reflect.DeepEqual(drv.more, want) {
		t.Error(drv.more)
	}
}

func TestV_CQX_10_BatchesExcludeEachOther(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	td := must(vctx.AllocTD())(t)
	parent := must(vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd, TD: td}))(t)
	for _, c := range []struct {
		opts  CQOptions
		waits bool
	}{
		{CQOptions{}, true},
		{CQOptions{Flags: CreateCQSingleThreaded}, false},
		{CQOptions{ParentDomain: parent}, false}, // like TestV_TD_02_V_TD_03_D_28_V_WR_07_NoLocksWithinATD
		{CQOptions{ParentDomain: must(vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd}))(t)}, true},
	} {
		cq, _ := withBatches(t, vctx, c.opts, WC{}, WC{})
		var wc WC
		ok(t, cq.StartPoll(&wc))
		if !c.waits {
			ok(t, cq.StartPoll(&wc)) // no lock is held: the program must not poll concurrently
			cq.EndPoll()
			ok(t, cq.Close())
			continue
		}
		var done sync.WaitGroup
		var second time.Time
		done.Go(func() {
			var wc WC
			ok(t, cq.StartPoll(&wc))
			second = time.Now()
			cq.EndPoll()
		})
		time.Sleep(10 * time.Millisecond)
		end := time.Now()
		cq.EndPoll()
		done.Wait()
		if second.Before(end) {
			t.Error("two batches are open at the same time")
		}
		ok(t, cq.Close())
	}
	refused(t, td.Close(), EBUSY)
	ok(t, parent.Close()) // its CQs are closed
	ok(t, td.Close())
}

func TestV_CQX_12_V_CQX_13_X_CQX_01_X_CQX_02_D_25_RequestedFields(t *testing.T) {
	full := WC{
		WRID: 1, Opcode: WCRecv, VendorErr: 2, ByteLen: 3, ImmData: 4, InvalidatedRKey: 5, QPNum: 6, SrcQP: 7,
		WCFlags:   WCWithImm,
		PKeyIndex: 8, SLID: 9, SL: 10, DLIDPathBits: 11,
		Timestamp: 12, Wallclock: 13, FlowTag: 14, CVLAN: 15, TM: TMInfo{16, 17},
	}
	fields := []struct {
		flag CreateCQWCFlags // 0: always filled
		read func(wc *WC) any
	}{
		{0, func(wc *WC) any { return wc.Opcode }},
		{0, func(wc *WC) any { return wc.VendorErr }},
		{0, func(wc *WC) any { return wc.WCFlags }},
		{0, func(wc *WC) any { return wc.PKeyIndex }},
		{WCExWithByteLen, func(wc *WC) any { return wc.ByteLen }},
		{WCExWithImm, func(wc *WC) any { return wc.ImmData }},
		{WCExWithImm, func(wc *WC) any { return wc.InvalidatedRKey }},
		{WCExWithQPNum, func(wc *WC) any { return wc.QPNum }},
		{WCExWithSrcQP, func(wc *WC) any { return wc.SrcQP }},
		{WCExWithSLID, func(wc *WC) any { return wc.SLID }},
		{WCExWithSL, func(wc *WC) any { return wc.SL }},
		{WCExWithDLIDPathBits, func(wc *WC) any { return wc.DLIDPathBits }},
		{WCExWithCompletionTimestamp, func(wc *WC) any { return wc.Timestamp }},
		{WCExWithCompletionTimestampWallclock, func(wc *WC) any { return wc.Wallclock }},
		{WCExWithFlowTag, func(wc *WC) any { return wc.FlowTag }},
		{WCExWithCVLAN, func(wc *WC) any { return wc.CVLAN }},
		{WCExWithTMInfo, func(wc *WC) any { return wc.TM }},
	}
	vctx, _ := openFake(t)
	for bit := range 12 {
		flags := CreateCQWCFlags(1) << bit
		cq, drv := withBatches(t, vctx, CQOptions{WCFlags: flags}, full)
		drv.wcs = []WC{full}
		var batch, polled WC
		ok(t, cq.StartPoll(&batch))
		cq.EndPoll()
		if n := must(cq.Poll(unsafe.Slice(&polled, 1)))(t); n != 1 {
			t.Fatal(n)
		}
		for i, f := range fields {
			want := f.read(&full)
			zero := reflect.Zero(reflect.TypeOf(want)).Interface()
			if f.flag != 0 && f.flag != flags {
				want = zero
			}
			if got := f.read(&batch); got != want {
				t.Errorf("flags %v, field %d: %v, want %v", flags, i, got, want)
			}
			if f.flag&WCStandardFlags != 0 {
				want = f.read(&full) // Poll always fills these
			}
			if got := f.read(&polled); got != want {
				t.Errorf("flags %v, field %d of Poll: %v, want %v", flags, i, got, want)
			}
		}
	}
}

func TestBatchesAllocateNothing(t *testing.T) {
	vctx, _ := openFake(t)
	cq, drv := withBatches(t, vctx, CQOptions{WCFlags: CreateCQSupWCFlags})
	batch := make([]WC, 4)
	drv.more = make([]bool, 0, 2000)
	n := 0
	if a := testing.AllocsPerRun(100, func() {
		drv.ex = batch
		var wc WC
		err := cq.StartPoll(&wc)
		for ; err == nil; err = cq.NextPoll(&wc) {
			n++
		}
		cq.EndPoll()
		if err := cq.StartPoll(&wc); err != ErrNoCompletion { //nolint:errorlint // a loop may compare
			t.Fatal(err)
		}
	}); a != 0 || n != 404 {
		t.Errorf("%v allocations, %d completions", a, n)
	}
	if !strings.Contains(ErrNoCompletion.Error(), "ENOENT") {
		t.Error(ErrNoCompletion)
	}
}

type clockedContext struct{ *fakeContext }

func (c clockedContext) RawClock() (uint64, error) { return 77, c.call("RawClock") }

func TestQueryRTValues(t *testing.T) {
	vctx, drv := openFake(t)
	_, err := vctx.QueryRTValues()
	refused(t, err, EOPNOTSUPP, "query_rt_values_ex")
	vctx.drv = clockedContext{drv}
	if v := must(vctx.QueryRTValues())(t); v.RawClock != 77 {
		t.Errorf("%+v", v)
	}
	drv.fail["RawClock"] = syscall.EIO
	_, err = vctx.QueryRTValues()
	refused(t, err, syscall.EIO, "query_rt_values_ex")
	ok(t, vctx.Close())
	_, err = vctx.QueryRTValues()
	refused(t, err, EINVAL, "closed")
}
