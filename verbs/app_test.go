package verbs

import (
	"slices"
	"syscall"
	"testing"
)

// TestV_APP_01_V_APP_03_V_LIB_01_Order creates and destroys every object in the manual's order.
func TestV_APP_01_V_APP_03_V_LIB_01_Order(t *testing.T) {
	dev := newFakeDevice()
	withProviders(t, &fakeProvider{name: "a", devices: []DriverDevice{dev}})
	vctx := must(Open("vrb_fake0"))(t)
	must(vctx.QueryDevice())(t)
	pd := newPD(t, vctx)
	mr := must(pd.RegMR(make([]byte, 64), AccessLocalWrite))(t)
	cq := must(vctx.CreateCQ(16, nil))(t)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: QPCap{MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	remote := QPInfo{Type: QPTypeRC, QPN: 5, GID: mustGID("::ffff:192.0.2.2"), MTU: MTU1024}
	ok(t, qp.Modify(&QPAttr{QPState: QPSInit, PortNum: 1}, QPAttrState|QPAttrPKeyIndex|QPAttrPort|QPAttrAccessFlags))
	ok(t, qp.PostRecv(RecvWR{SGList: []SGE{mr.SGE(0, 64)}}))
	ok(t, qp.Connect(remote, nil)) // continues from INIT
	ok(t, qp.PostSend(SendWR{Opcode: WRSend, SGList: []SGE{mr.SGE(0, 64)}}))
	must(cq.Poll(make([]WC, 1)))(t)
	for _, o := range []interface{ Close() error }{qp, cq, mr, pd, vctx} {
		ok(t, o.Close())
	}
	want := []string{"DestroyQP", "DestroyCQ", "Dereg", "Dealloc", "Close"}
	if calls := dev.opened[0].calls; !slices.Equal(calls[len(calls)-5:], want) {
		t.Errorf("the driver's last calls: %v", calls[len(calls)-5:])
	}
}

// TestV_PORT_13_Sample is the manual's sample E-02: the state of every port of every device.
func TestV_PORT_13_Sample(t *testing.T) {
	a, b := newFakeDevice(), newFakeDevice()
	b.info.Name, b.ports[1].State = "vrb_fake1", PortDown
	withProviders(t, &fakeProvider{name: "a", devices: []DriverDevice{a, b}})
	var got []string
	for _, d := range must(Devices())(t) {
		vctx := must(d.Open())(t)
		attr := must(vctx.QueryDevice())(t)
		for port := uint8(1); port <= attr.PhysPortCnt; port++ {
			got = append(got, d.Name()+" "+must(vctx.QueryPort(port))(t).State.String())
		}
		ok(t, vctx.Close())
	}
	want := []string{"vrb_fake0 active", "vrb_fake0 active", "vrb_fake1 active", "vrb_fake1 down"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestV_DEV_10_NamesAreUnique(t *testing.T) {
	withProviders(t, &fakeProvider{name: "a", devices: []DriverDevice{newFakeDevice()}},
		&fakeProvider{name: "b", devices: []DriverDevice{newFakeDevice()}})
	list, err := Devices()
	refused(t, err, syscall.EEXIST, "two devices are named vrb_fake0", "provider b")
	if len(list) != 1 {
		t.Errorf("%d devices", len(list))
	}
}

func TestV_AH_03_OneAHServesSeveralQPs(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	attr := goodAH()
	ah := must(pd.CreateAH(&attr))(t)
	for range 2 {
		qp, drv := newQP(t, pd, QPTypeUD)
		forceState(qp, drv, QPSRTS)
		ok(t, qp.PostSend(SendWR{Opcode: WRSend, AH: ah}))
	}
}

// TestV_AE_05_AlteredEvent: in C, acknowledging an altered event can block a destroy for ever; in Go it cannot.
func TestV_AE_05_AlteredEvent(t *testing.T) {
	vctx, objects, raise := affiliated(t)
	raise["QP"]()
	ev := must(vctx.TryGetAsyncEvent())(t)
	ev.Type, ev.QP, ev.Port = EventPortErr, nil, 9
	ev.Ack()
	AsyncEvent{}.Ack()
	ok(t, objects["QP"].Close())
}

func TestV_MC_05_DetachNamesTheGroup(t *testing.T) { // V-MC-01
	qp, drv := newQPIn(t, QPTypeUD, QPSRTS)
	a, b := mustGID("ff0e::1"), mustGID("::ffff:224.0.0.9")
	ok(t, qp.AttachMcast(a, 0))
	ok(t, qp.AttachMcast(b, 0))
	ok(t, qp.DetachMcast(a, 0))
	if !slices.Equal(drv.groups, []GID{b}) {
		t.Errorf("%v", drv.groups)
	}
}
