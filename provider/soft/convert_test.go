package soft

import (
	"reflect"
	"runtime"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestPollOverwritesEveryField: a completion overwrites every field of an earlier one in the same WC.
func TestPollOverwritesEveryField(t *testing.T) {
	used := func() (wc verbs.WC) {
		fillFields(t, reflect.ValueOf(&wc).Elem())
		return wc
	}
	for _, e := range []transport.CQE{
		{},
		{WRID: 7, Op: transport.CQRecv, Flags: transport.WithImm, Imm: 5},
		{WRID: 7, Op: transport.CQRecv, Flags: transport.WithInv, Imm: 5},
		{WRID: 7, Status: transport.RetryExcErr, Cause: &transport.Failure{QPN: 3}},
		{WRID: 7, Frame: true, Tag: 9, AppCtx: 2},
	} {
		e.RQ = transport.NewRecvQueue(1, 1, true, 0)
		var fresh, old verbs.WC
		old = used()
		toWC(&fresh, &e)
		toWC(&old, &e)
		if !reflect.DeepEqual(fresh, old) {
			t.Errorf("toWC over an old completion: %+v\nwant %+v", old, fresh)
		}
		freshEx, oldEx := verbs.WC{}, used()
		for _, wc := range []*verbs.WC{&freshEx, &oldEx} {
			q := new(cq)
			new(engine.Engine).InitCQ(&q.CQ, 1, 0, nil)
			push := e
			q.Push(&push)
			if found, err := q.PollOne(wc, true); !found || err != nil {
				t.Fatal(found, err)
			}
		}
		if !reflect.DeepEqual(freshEx, oldEx) {
			t.Errorf("PollOne over an old completion: %+v\nwant %+v", oldEx, freshEx)
		}
	}
}

// fillFields sets every field of v, including fields added later.
func fillFields(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case f.Kind() == reflect.Struct:
			fillFields(t, f)
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case f.CanInt():
			f.SetInt(1)
		case f.CanUint():
			f.SetUint(1)
		default:
			t.Fatalf("a field of type %v", f.Type())
		}
	}
}

// TestMergeCopiesWhatIsNamed: an attribute of a QP is kept unless the mask names it.
func TestMergeCopiesWhatIsNamed(t *testing.T) {
	all := verbs.QPAttr{QPAccessFlags: 1, QKey: 2, PathMTU: 3, RetryCnt: 4, RNRRetry: 5, RQPSN: 6, MaxRdAtomic: 7,
		MinRNRTimer: 8, SQPSN: 9, MaxDestRdAtomic: 10, DestQPNum: 11}
	fields := map[verbs.QPAttrMask]verbs.QPAttr{
		verbs.QPAttrAccessFlags: {QPAccessFlags: 1}, verbs.QPAttrQKey: {QKey: 2}, verbs.QPAttrPathMTU: {PathMTU: 3},
		verbs.QPAttrRetryCnt: {RetryCnt: 4}, verbs.QPAttrRNRRetry: {RNRRetry: 5}, verbs.QPAttrRQPSN: {RQPSN: 6},
		verbs.QPAttrMaxQPRdAtomic: {MaxRdAtomic: 7}, verbs.QPAttrMinRNRTimer: {MinRNRTimer: 8},
		verbs.QPAttrSQPSN: {SQPSN: 9}, verbs.QPAttrMaxDestRdAtomic: {MaxDestRdAtomic: 10},
		verbs.QPAttrDestQPN: {DestQPNum: 11},
	}
	var every verbs.QPAttrMask
	for mask, want := range fields {
		var to verbs.QPAttr
		if merge(&to, &all, mask); !reflect.DeepEqual(to, want) {
			t.Errorf("%v: %+v, want %+v", mask, to, want)
		}
		every |= mask
	}
	to := all
	if merge(&to, &verbs.QPAttr{}, ^every); !reflect.DeepEqual(to, all) {
		t.Errorf("without one of them: %+v", to)
	}
	if merge(&to, &verbs.QPAttr{}, every); !reflect.DeepEqual(to, verbs.QPAttr{}) {
		t.Errorf("with all of them: %+v", to)
	}
}

// TestRouteMTUOfAFailure: the MTU of the route is looked up only for a packet that was too long.
func TestRouteMTUOfAFailure(t *testing.T) {
	if toWCError(nil) != nil {
		t.Error("a failure without a description")
	}
	for _, errno := range []syscall.Errno{0, syscall.ECONNREFUSED, syscall.EMSGSIZE} {
		f := &transport.Failure{Peer: "127.0.0.1", First: &transport.Failure{Reason: "earlier"}}
		f.Refused = link.RefusalOf(errno, f.Refused.Len())
		e := toWCError(f)
		if got := e.RouteMTU > 0; got != (errno == syscall.EMSGSIZE) && (runtime.GOOS == "linux" || got) {
			t.Errorf("%v: route MTU %d", errno, e.RouteMTU)
		}
		if e.First == nil || e.First.Reason != "earlier" || e.Refused != errno {
			t.Errorf("%+v", e)
		}
	}
}
