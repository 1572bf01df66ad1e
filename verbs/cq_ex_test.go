package verbs

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestV_CQX_01_V_CQX_02_V_CQX_06_Attributes(t *testing.T) {
	ctx, _ := openFake(t)
	ch := must(ctx.CreateCompChannel())(t)
	x, drv := newCQEx(t, ctx, CQInitAttrEx{
		CQE: 15, CQOptions: CQOptions{Context: "mine", Channel: ch, CompVector: 1}, WCFlags: WCExWithByteLen | WCExWithCVLAN,
		Flags: CreateCQIgnoreOverrun,
	})
	if x.Cap() != 16 || x.CQContext() != "mine" || x.Channel() != ch || x.Context() != ctx {
		t.Errorf("%+v", x)
	}
	if want := (CQExDriverInit{15, 1, WCExWithByteLen | WCExWithCVLAN, CreateCQIgnoreOverrun}); drv.init != want {
		t.Errorf("the driver got %+v", drv.init)
	}
	refused(t, ch.Close(), EBUSY)
	ok(t, x.Close())
	ok(t, ch.Close())
	ok(t, ctx.Close())
}

func TestV_CQX_01_Ranges(t *testing.T) {
	ctx, drv := openFake(t)
	other, _ := openFake(t)
	pd, otherPD := newPD(t, ctx), newPD(t, other)
	parent := must(other.AllocParentDomain(&ParentDomainInitAttr{PD: otherPD}))(t)
	for _, good := range []CQInitAttrEx{{CQE: 1}, {CQE: 4096}, {CQE: 1, WCFlags: CreateCQSupWCFlags, Flags: 3, CQOptions: CQOptions{CompVector: 1}}} {
		ok(t, must(ctx.CreateCQEx(&good))(t).Close())
	}
	for _, bad := range []*CQInitAttrEx{
		nil, {}, {CQE: -1}, {CQE: 4097},
		{CQE: 1, CQOptions: CQOptions{CompVector: 2}}, {CQE: 1, CQOptions: CQOptions{CompVector: -1}},
		{CQE: 1, WCFlags: 1 << 12}, {CQE: 1, WCFlags: 1 << 63}, {CQE: 1, Flags: 1 << 2},
		{CQE: 1, ParentDomain: pd}, {CQE: 1, ParentDomain: parent},
	} {
		_, err := ctx.CreateCQEx(bad)
		refused(t, err, EINVAL, "create_cq_ex")
	}
	drv.fail["CreateCQEx"] = ErrNotSupported
	_, err := ctx.CreateCQEx(&CQInitAttrEx{CQE: 1})
	refused(t, err, EOPNOTSUPP, "create_cq_ex")
	ctx.drv = struct{ ContextDriver }{drv}
	_, err = ctx.CreateCQEx(&CQInitAttrEx{CQE: 1})
	refused(t, err, ENOSYS, "create_cq_ex")
	ctx.drv = drv
	ok(t, pd.Close())
	ok(t, ctx.Close()) // nothing is left of what failed
	_, err = ctx.CreateCQEx(&CQInitAttrEx{CQE: 1})
	refused(t, err, EINVAL, "closed")
}

func TestV_CQX_03_V_CQX_04_V_CQX_05_Bits(t *testing.T) {
	checkBits(t, map[int]CreateCQWCFlags{
		0: WCExWithByteLen, 1: WCExWithImm, 2: WCExWithQPNum, 3: WCExWithSrcQP, 4: WCExWithSLID, 5: WCExWithSL, 6: WCExWithDLIDPathBits,
		7: WCExWithCompletionTimestamp, 8: WCExWithCVLAN, 9: WCExWithFlowTag, 10: WCExWithTMInfo, 11: WCExWithCompletionTimestampWallclock,
	})
	if WCStandardFlags != 0x7f || CreateCQSupWCFlags != 0xfff {
		t.Errorf("%#x, %#x", uint64(WCStandardFlags), uint64(CreateCQSupWCFlags))
	}
	checkBits(t, map[int]CreateCQFlags{0: CreateCQSingleThreaded, 1: CreateCQIgnoreOverrun})
	checkBits(t, map[int]CQInitAttrMask{0: CQInitFlags, 1: CQInitPD})
	checkBits(t, map[int]CQAttrMask{0: CQAttrModerate, 1: CQAttrReserved})
	if s := (WCExWithSL | WCExWithTMInfo | 1<<20).String(); s != "SL|TM_INFO|0x100000" {
		t.Error(s)
	}
	if s := cqInitAll.String(); s != "FLAGS|PD" {
		t.Error(s)
	}
}

func TestV_CQX_01_CompMask(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	x, drv := newCQEx(t, ctx, CQInitAttrEx{CompMask: CQInitPD, Flags: 1 << 9, ParentDomain: must(ctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd}))(t)})
	if drv.init.Flags != 0 || x.domain == nil {
		t.Errorf("%+v", drv.init)
	}
	x, drv = newCQEx(t, ctx, CQInitAttrEx{CompMask: CQInitFlags, Flags: CreateCQSingleThreaded, ParentDomain: pd})
	if drv.init.Flags != CreateCQSingleThreaded || x.domain != nil {
		t.Errorf("%+v", drv.init)
	}
	for _, bad := range []CQInitAttrEx{{CQE: 1, CompMask: 1 << 2}, {CQE: 1, CompMask: CQInitPD}} {
		_, err := ctx.CreateCQEx(&bad)
		refused(t, err, EINVAL, "create_cq_ex")
	}
}

func TestV_CQX_07_D_29_PlainView(t *testing.T) {
	ctx, _ := openFake(t)
	x, drv := newCQEx(t, ctx, CQInitAttrEx{})
	drv.wcs = []WC{{WRID: 5}}
	var wcs [2]WC
	if n, err := x.CQ.Poll(wcs[:]); n != 1 || err != nil || wcs[0].WRID != 5 {
		t.Error(n, err, wcs)
	}
	ok(t, x.ReqNotify(true))
	ok(t, x.Resize(20))
	if len(drv.armed) != 1 || x.Cap() != 20 {
		t.Error(drv.armed, x.Cap())
	}
	pd := newPD(t, ctx)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: x.CQ, RecvCQ: x.CQ}))(t)
	refused(t, x.Close(), EBUSY, "1 QP")
	ok(t, qp.Close())
	ok(t, x.Close())
	refused(t, x.StartPoll(nil), EINVAL, "start_poll", "closed")
}

func TestV_CQX_08_V_CQX_14_StartPoll(t *testing.T) {
	ctx, _ := openFake(t)
	x, drv := newCQEx(t, ctx, CQInitAttrEx{})
	for range 3 { // an empty CQ stays valid
		if err := x.StartPoll(nil); err != ErrNoCompletion { //nolint:errorlint // a loop may compare
			t.Fatal(err)
		}
		refused(t, x.StartPoll(&PollCQAttr{}), ENOENT)
	}
	refused(t, x.StartPoll(&PollCQAttr{CompMask: 1}), EINVAL, "start_poll")
	drv.fail["PollOne"] = syscall.EIO
	refused(t, x.StartPoll(nil), syscall.EIO, "start_poll")
	drv.fail["PollOne"] = nil
	drv.ex = []WCEx{{WC: WC{WRID: 1}}}
	ok(t, x.StartPoll(nil)) // the failures left no lock behind
	x.EndPoll()
	x.EndPoll() // no harm
	if want := []bool{false, false, false, false, false, false, false, false}; !reflect.DeepEqual(drv.more, want) {
		t.Error(drv.more)
	}
}

func TestV_CQX_09_V_CQX_10_V_CQX_11_NextPoll(t *testing.T) {
	ctx, _ := openFake(t)
	x, drv := newCQEx(t, ctx, CQInitAttrEx{})
	refused(t, x.NextPoll(), EINVAL, "next_poll", "StartPoll must come first")
	drv.ex = []WCEx{{WC: WC{WRID: 1}}, {WC: WC{WRID: 2, Status: WCLocLenErr}}, {WC: WC{WRID: 3}}}
	ok(t, x.StartPoll(nil))
	if x.WRID != 1 || x.Status != WCSuccess || x.Err() != nil {
		t.Errorf("%+v", x)
	}
	ok(t, x.NextPoll())
	if x.WRID != 2 || x.Status != WCLocLenErr || !errors.Is(x.Err(), WCLocLenErr) {
		t.Errorf("%+v", x)
	}
	x.EndPoll()
	refused(t, x.NextPoll(), EINVAL)
	ok(t, x.StartPoll(nil)) // what the first batch left
	if x.WRID != 3 || x.Status != WCSuccess {
		t.Errorf("%+v", x)
	}
	if err := x.NextPoll(); err != ErrNoCompletion { //nolint:errorlint // a loop may compare
		t.Error(err)
	}
	drv.fail["PollOne"] = syscall.EIO
	refused(t, x.NextPoll(), syscall.EIO)
	drv.fail["PollOne"] = nil
	drv.ex = []WCEx{{}}
	ok(t, x.NextPoll()) // the batch is still open after an error
	x.EndPoll()
	if want := []bool{false, true, false, true, true, true}; !reflect.DeepEqual(drv.more, want) {
		t.Error(drv.more)
	}
}

func TestV_CQX_10_BatchesExcludeEachOther(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	td := must(ctx.AllocTD(nil))(t)
	parent := must(ctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd, TD: td}))(t)
	for _, c := range []struct {
		init  CQInitAttrEx
		waits bool
	}{
		{CQInitAttrEx{}, true},
		{CQInitAttrEx{Flags: CreateCQSingleThreaded}, false},
		{CQInitAttrEx{ParentDomain: parent}, false}, // as TestV_TD_02_V_TD_03_D_28_V_WR_07_NoLocksWithinATD has it
		{CQInitAttrEx{ParentDomain: must(ctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd}))(t)}, true},
	} {
		x, drv := newCQEx(t, ctx, c.init)
		drv.ex = make([]WCEx, 2)
		ok(t, x.StartPoll(nil))
		if !c.waits {
			ok(t, x.StartPoll(nil)) // nothing is locked: the program keeps the rules, or not
			x.EndPoll()
			ok(t, x.Close())
			continue
		}
		var done sync.WaitGroup
		var second time.Time
		done.Go(func() {
			ok(t, x.StartPoll(nil))
			second = time.Now()
			x.EndPoll()
		})
		time.Sleep(10 * time.Millisecond)
		end := time.Now()
		x.EndPoll()
		done.Wait()
		if second.Before(end) {
			t.Error("two batches at once")
		}
		ok(t, x.Close())
	}
	refused(t, td.Close(), EBUSY)
	ok(t, parent.Close()) // its CQs are gone
	ok(t, td.Close())
}

func TestV_CQX_12_V_CQX_13_X_CQX_01_X_CQX_02_D_25_ReadersOfWhatWasAskedFor(t *testing.T) {
	full := WCEx{
		WC: WC{
			WRID: 1, Opcode: WCRecv, VendorErr: 2, ByteLen: 3, ImmData: 4, InvalidatedRKey: 5, QPNum: 6, SrcQP: 7, WCFlags: WCWithImm,
			PKeyIndex: 8, SLID: 9, SL: 10, DLIDPathBits: 11,
		},
		Timestamp: 12, Wallclock: 13, FlowTag: 14, CVLAN: 15, TM: TMInfo{16, 17},
	}
	readers := []struct {
		flag CreateCQWCFlags // 0: always readable
		read func(x *CQEx) any
		want any
	}{
		{0, func(x *CQEx) any { return x.ReadOpcode() }, WCRecv},
		{0, func(x *CQEx) any { return x.ReadVendorErr() }, uint32(2)},
		{0, func(x *CQEx) any { return x.ReadWCFlags() }, WCWithImm},
		{0, func(x *CQEx) any { return x.ReadPKeyIndex() }, uint16(8)},
		{WCExWithByteLen, func(x *CQEx) any { return x.ReadByteLen() }, uint32(3)},
		{WCExWithImm, func(x *CQEx) any { return x.ReadImmData() }, uint32(4)},
		{WCExWithImm, func(x *CQEx) any { return x.ReadInvalidatedRKey() }, uint32(5)},
		{WCExWithQPNum, func(x *CQEx) any { return x.ReadQPNum() }, uint32(6)},
		{WCExWithSrcQP, func(x *CQEx) any { return x.ReadSrcQP() }, uint32(7)},
		{WCExWithSLID, func(x *CQEx) any { return x.ReadSLID() }, uint32(9)},
		{WCExWithSL, func(x *CQEx) any { return x.ReadSL() }, uint8(10)},
		{WCExWithDLIDPathBits, func(x *CQEx) any { return x.ReadDLIDPathBits() }, uint8(11)},
		{WCExWithCompletionTimestamp, func(x *CQEx) any { return x.ReadCompletionTS() }, uint64(12)},
		{WCExWithCompletionTimestampWallclock, func(x *CQEx) any { return x.ReadCompletionWallclockNS() }, uint64(13)},
		{WCExWithFlowTag, func(x *CQEx) any { return x.ReadFlowTag() }, uint32(14)},
		{WCExWithCVLAN, func(x *CQEx) any { return x.ReadCVLAN() }, uint16(15)},
		{WCExWithTMInfo, func(x *CQEx) any { return x.ReadTMInfo() }, TMInfo{16, 17}},
	}
	ctx, _ := openFake(t)
	for bit := -1; bit < 12; bit++ {
		var flags CreateCQWCFlags
		if bit >= 0 {
			flags = 1 << bit
		}
		x, drv := newCQEx(t, ctx, CQInitAttrEx{WCFlags: flags})
		drv.ex = []WCEx{full}
		ok(t, x.StartPoll(nil))
		for i, r := range readers {
			want := r.want
			if r.flag != 0 && r.flag != flags {
				want = reflect.Zero(reflect.TypeOf(want)).Interface()
			}
			if got := r.read(x); got != want {
				t.Errorf("flags %v, reader %d: %v, want %v", flags, i, got, want)
			}
		}
		x.EndPoll()
	}
}

func TestCQExAllocatesNothing(t *testing.T) {
	ctx, _ := openFake(t)
	x, drv := newCQEx(t, ctx, CQInitAttrEx{WCFlags: CreateCQSupWCFlags})
	batch := make([]WCEx, 4)
	drv.more = make([]bool, 0, 2000)
	n := 0
	if a := testing.AllocsPerRun(100, func() {
		drv.ex = batch
		err := x.StartPoll(nil)
		for ; err == nil; err = x.NextPoll() {
			n++
		}
		x.EndPoll()
		if err := x.StartPoll(nil); err != ErrNoCompletion { //nolint:errorlint // a loop may compare
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
	ctx, drv := openFake(t)
	_, err := ctx.QueryRTValues()
	refused(t, err, EOPNOTSUPP, "query_rt_values_ex")
	ctx.drv = clockedContext{drv}
	if v := must(ctx.QueryRTValues())(t); v.RawClock != 77 {
		t.Errorf("%+v", v)
	}
	drv.fail["RawClock"] = syscall.EIO
	_, err = ctx.QueryRTValues()
	refused(t, err, syscall.EIO, "query_rt_values_ex")
	ok(t, ctx.Close())
	_, err = ctx.QueryRTValues()
	refused(t, err, EINVAL, "closed")
}
