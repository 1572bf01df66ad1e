package verbs

import (
	"reflect"
	"slices"
	"testing"
)

// Statements about the shape of the API: what an object shows, and what nobody can ask it.

// methodsOf lists the exported methods of a value.
func methodsOf(v any) (names []string) {
	t := reflect.TypeOf(v)
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return names
}

// members checks that an object has these methods, which stand for the members of the C struct.
func members(t *testing.T, v any, want ...string) {
	t.Helper()
	have := methodsOf(v)
	for _, name := range want {
		if !slices.Contains(have, name) {
			t.Errorf("%T has no %s; it has %v", v, name, have)
		}
	}
}

// exportedFields lists the exported fields of a struct.
func exportedFields(v any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		if f.IsExported() {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestV_DEV_01_V_DEV_03_V_DEV_04_V_DEV_07_TheListIsTheCallers: a slice knows its length, and nothing frees it before its owner
// has let it go.
func TestV_DEV_01_V_DEV_03_V_DEV_04_V_DEV_07_TheListIsTheCallers(t *testing.T) {
	other := newFakeDevice()
	other.info.Name = "vrb_fake1"
	withProviders(t, &fakeProvider{name: "a", devices: []DeviceDriver{newFakeDevice(), other}})
	list := must(Devices())(t)
	if len(list) != 2 {
		t.Fatalf("%d devices", len(list))
	}
	kept := list[1]
	clear(list) // the program's way to free the list
	again := must(Devices())(t)
	if len(again) != 2 || again[1].Name() != kept.Name() {
		t.Errorf("the second list: %v", again)
	}
	ok(t, must(kept.Open())(t).Close()) // a device that was not opened outlives its list
	if f := exportedFields(Device{}); len(f) != 0 {
		t.Errorf("a device shows %v", f)
	}
	members(t, kept, "Name", "GUID", "Open")
}

func TestV_CTX_03_Members(t *testing.T) {
	ctx, _ := openFake(t)
	if ctx.Device().Name() != "vrb_fake0" || ctx.NumCompVectors() != 2 {
		t.Errorf("%v, %d vectors", ctx.Device(), ctx.NumCompVectors())
	}
	members(t, ctx, "Device", "NumCompVectors", "AsyncFD", "CmdFD")
}

// refcnt is how many CQs a channel has; Close counts them.
func TestV_CC_02_Members(t *testing.T) {
	ctx, _ := openFake(t)
	ch := must(ctx.CreateCompChannel())(t)
	members(t, ch, "Context", "FD")
	if ch.Context() != ctx {
		t.Error("another context")
	}
	a, _ := newCQ(t, ctx, &CQOptions{Channel: ch})
	b, _ := newCQ(t, ctx, &CQOptions{Channel: ch})
	refused(t, ch.Close(), EBUSY, "2 CQs")
	ok(t, a.Close())
	refused(t, ch.Close(), EBUSY, "1 CQ")
	ok(t, b.Close())
	ok(t, ch.Close())
}

// TestV_CQ_16_V_PD_04_NobodyCountsTheContent: a CQ tells its size, not its content, and a PD does not list its members. Whoever adds such a
// call says so here.
func TestV_CQ_16_V_PD_04_NobodyCountsTheContent(t *testing.T) {
	ctx, _ := openFake(t)
	cq, _ := newCQ(t, ctx, nil)
	for v, want := range map[any][]string{
		cq:            {"Cap"},
		newPD(t, ctx): {"Handle"}, // its own number
	} {
		typ := reflect.TypeOf(v)
		var found []string
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			if m.Type.NumIn() > 1 || m.Type.NumOut() != 1 {
				continue
			}
			switch out := m.Type.Out(0); out.Kind() {
			case reflect.Int, reflect.Uint, reflect.Uint32, reflect.Uint64, reflect.Slice, reflect.Map, reflect.Func:
				found = append(found, m.Name)
			}
		}
		if len(found) != len(want) || len(want) > 0 && !slices.Equal(found, want) {
			t.Errorf("%T counts or lists with %v; want %v", v, found, want)
		}
	}
}

// Query fills what the caller gets as a value: nothing is shared with the library.
func TestV_QDEV_01_TheAttributesAreTheCallers(t *testing.T) {
	ctx, _ := openFake(t)
	a := must(ctx.QueryDevice())(t)
	want := a
	a.MaxQP, a.FWVer, a.DeviceCapFlags = -1, "changed", 0
	if b := must(ctx.QueryDevice())(t); b != want || b == a {
		t.Errorf("%+v", b)
	}
}

func TestV_RECV_02_Fields(t *testing.T) {
	if f := exportedFields(RecvWR{}); !slices.Equal(f, []string{"WRID", "SGList"}) { // next and num_sge are in the slices
		t.Error(f)
	}
	if f := exportedFields(SGE{}); !slices.Equal(f, []string{"Addr", "Length", "LKey"}) {
		t.Error(f)
	}
	qp, drv := newQPIn(t, QPTypeRC, QPSInit)
	ok(t, qp.PostRecv(RecvWR{WRID: 1}, RecvWR{WRID: 2, SGList: []SGE{{Addr: 7, Length: 8, LKey: 9}}}))
	if !slices.Equal(drv.received, []uint64{1, 2}) {
		t.Error(drv.received)
	}
}

// D-12 and D-13: every query and destroy answers with an error value, D-24: masks are integers that may have any bit.
func TestD_12_D_13_D_24_ErrorsAndMasks(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	_, err := ctx.QueryGID(9, 0)
	refused(t, err, EINVAL, "query_gid")
	_, err = ctx.QueryPKey(9, 0)
	refused(t, err, EINVAL, "query_pkey")
	ok(t, srq.Close())
	refused(t, srq.Close(), EINVAL, "destroy_srq")
	_, err = srq.Query()
	refused(t, err, EINVAL, "query_srq")
	for _, mask := range []any{
		AccessFlags(0), QPAttrMask(0), SRQAttrMask(0), SendFlags(0), WCFlags(0), QPCreateFlags(0), SendOpsFlags(0), DeviceCapFlags(0),
	} {
		if k := reflect.TypeOf(mask).Kind(); k != reflect.Uint32 && k != reflect.Uint64 {
			t.Errorf("%T is a %v", mask, k)
		}
	}
}

// D-19: max_recv_wr counts receives, D-34: sq_psn belongs to datagrams too.
func TestD_19_D_34_SizesAndPSNs(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	cq, _ := newCQ(t, ctx, nil)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeUD, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 2, MaxRecvWR: 6, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	drv := qp.Driver().(*fakeQP)
	if drv.init.Cap.MaxRecvWR != 6 || drv.init.Cap.MaxSendWR != 2 {
		t.Errorf("%+v", drv.init.Cap)
	}
	forceState(qp, drv, QPSRTR)
	refused(t, qp.Modify(&QPAttr{QPState: QPSRTS}, QPAttrState), EINVAL, "QP_SQ_PSN")
	ok(t, qp.Modify(&QPAttr{QPState: QPSRTS, SQPSN: 0xffffff}, QPAttrState|QPAttrSQPSN))
	if drv.attr.SQPSN != 0xffffff {
		t.Errorf("%+v", drv.attr)
	}
}

// D-41: what the real library has beyond the manual's snapshot of its header.
func TestD_41_LaterAdditions(t *testing.T) {
	values(t, 7, NodeUnspecified)
	values(t, 4, TransportUnspecified)
	values(t, 20, EventDeviceSpeedChange)
	values(t, 14, WRFlush, WRAtomicWrite)
	values(t, 8, WCFlush, WCAtomicWrite)
	values(t, 1, FlushGlobal, FlushPersistent)
	values(t, 0, FlushRange, FlushMR)
}

func TestX_QDX_01_SupportedQPTypes(t *testing.T) {
	for typ, bit := range map[QPType]int{QPTypeRC: 2, QPTypeUC: 3, QPTypeUD: 4, QPTypeRawPacket: 8} {
		for b := range 32 {
			if got := IsQPTSupported(1<<b, typ); got != (b == bit) {
				t.Errorf("%v, bit %d: %v", typ, b, got)
			}
		}
	}
	if IsQPTSupported(1<<32-1, QPType(32)) || IsQPTSupported(0, QPTypeRC) {
		t.Error("a type that no bit stands for")
	}
}
