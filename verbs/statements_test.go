package verbs

import (
	"reflect"
	"slices"
	"testing"
)

// Tests of the shape of the API: the methods and fields that objects have, and those that they must not have.

// methodsOf returns the names of the exported methods of a value.
func methodsOf(v any) (names []string) {
	t := reflect.TypeOf(v)
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return names
}

// members checks that an object has these methods, one per member of the C struct.
func members(t *testing.T, v any, want ...string) {
	t.Helper()
	have := methodsOf(v)
	for _, name := range want {
		if !slices.Contains(have, name) {
			t.Errorf("%T has no %s; it has %v", v, name, have)
		}
	}
}

// exportedFields returns the names of the exported fields of a struct.
func exportedFields(v any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		if f.IsExported() {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestV_DEV_01_V_DEV_03_V_DEV_04_V_DEV_07_DevicesReturnsANewSlice: the caller owns the slice, and its devices stay
// valid without it.
func TestV_DEV_01_V_DEV_03_V_DEV_04_V_DEV_07_DevicesReturnsANewSlice(t *testing.T) {
	other := newFakeDevice()
	other.info.Name = "vrb_fake1"
	withProviders(t, &fakeProvider{name: "a", devices: []DriverDevice{newFakeDevice(), other}})
	list := must(Devices())(t)
	if len(list) != 2 {
		t.Fatalf("%d devices", len(list))
	}
	kept := list[1]
	clear(list) // like freeing the list in C
	again := must(Devices())(t)
	if len(again) != 2 || again[1].Name() != kept.Name() {
		t.Errorf("the second list: %v", again)
	}
	ok(t, must(kept.Open())(t).Close()) // a device can be opened after its list is freed
	if f := exportedFields(Device{}); len(f) != 0 {
		t.Errorf("a device has exported fields: %v", f)
	}
	members(t, kept, "Name", "GUID", "Open")
}

func TestV_CTX_03_Members(t *testing.T) {
	vctx, _ := openFake(t)
	if vctx.Device().Name() != "vrb_fake0" || vctx.NumCompVectors() != 2 {
		t.Errorf("%v, %d vectors", vctx.Device(), vctx.NumCompVectors())
	}
	members(t, vctx, "Device", "NumCompVectors", "AsyncFD", "CmdFD")
}

// refcnt in C is the number of CQs of a channel; here Close returns EBUSY while there are any.
func TestV_CC_02_Members(t *testing.T) {
	vctx, _ := openFake(t)
	ch := must(vctx.CreateCompChannel())(t)
	members(t, ch, "Context", "FD")
	if ch.Context() != vctx {
		t.Error("another context")
	}
	a, _ := newCQ(t, vctx, &CQOptions{Channel: ch})
	b, _ := newCQ(t, vctx, &CQOptions{Channel: ch})
	refused(t, ch.Close(), EBUSY, "2 CQs")
	ok(t, a.Close())
	refused(t, ch.Close(), EBUSY, "1 CQ")
	ok(t, b.Close())
	ok(t, ch.Close())
}

// TestV_CQ_16_V_PD_04_NoCountOfContent: a CQ reports its size but not the number of its completions, and a PD does not
// list its objects. A new method that does must be added to this test.
func TestV_CQ_16_V_PD_04_NoCountOfContent(t *testing.T) {
	vctx, _ := openFake(t)
	cq, _ := newCQ(t, vctx, nil)
	for v, want := range map[any][]string{
		cq:             {"Cap"},
		newPD(t, vctx): {"Handle"}, // the PD's number
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
			t.Errorf("%T has the methods %v; want %v", v, found, want)
		}
	}
}

// QueryDevice returns a value that shares no memory with the library.
func TestV_QDEV_01_QueryReturnsACopy(t *testing.T) {
	vctx, _ := openFake(t)
	a := must(vctx.QueryDevice())(t)
	want := a
	a.MaxQP, a.FWVer, a.DeviceCapFlags = -1, "changed", 0
	if b := must(vctx.QueryDevice())(t); b != want || b == a {
		t.Errorf("%+v", b)
	}
}

func TestV_RECV_02_Fields(t *testing.T) {
	if f := exportedFields(RecvWR{}); !slices.Equal(f, []string{"WRID", "SGList"}) { // slices replace next and num_sge
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

// D-12 and D-13: every query and destroy returns an error. D-24: masks are integers that can hold any bit.
func TestD_12_D_13_D_24_ErrorsAndMasks(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	_, err := vctx.QueryGID(9, 0)
	refused(t, err, EINVAL, "query_gid")
	_, err = vctx.QueryPKey(9, 0)
	refused(t, err, EINVAL, "query_pkey")
	ok(t, srq.Close())
	refused(t, srq.Close(), EINVAL, "destroy_srq")
	_, err = srq.Query()
	refused(t, err, EINVAL, "query_srq")
	for _, mask := range []any{
		AccessFlags(0), QPAttrMask(0), SRQAttrMask(0), SendFlags(0), WCFlags(0), QPCreateFlags(0), SendOpsFlags(0),
		DeviceCapFlags(0),
	} {
		if k := reflect.TypeOf(mask).Kind(); k != reflect.Uint32 && k != reflect.Uint64 {
			t.Errorf("%T is a %v", mask, k)
		}
	}
}

// D-19: max_recv_wr counts receives. D-34: sq_psn applies to datagrams too.
func TestD_19_D_34_SizesAndPSNs(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeUD, SendCQ: cq, RecvCQ: cq,
		Cap: QPCap{MaxSendWR: 2, MaxRecvWR: 6, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	drv := qp.drv.(*fakeQP)
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

// D-41: additions of the C library after the manual's version of its header.
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
		t.Error("a QP type without a bit")
	}
}
