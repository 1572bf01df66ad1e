package soft

import (
	"reflect"
	"testing"

	"github.com/verbena-rdma/verbena/internal/engine"
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
		e.SRQ = transport.NewRecvQueue(1, 1, true, 0)
		var fresh, old verbs.WC
		old = used()
		toWC(&fresh, &e)
		toWC(&old, &e)
		if !reflect.DeepEqual(fresh, old) {
			t.Errorf("toWC over an old completion: %+v\nwant %+v", old, fresh)
		}
		freshEx, oldEx := verbs.WC{}, used()
		for _, wc := range []*verbs.WC{&freshEx, &oldEx} {
			q := &cq{CQ: new(engine.Engine).NewCQ(1, 0, nil)}
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
