package verbs

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
)

func TestV_DEV_02_NoDevices(t *testing.T) {
	withProviders(t, &fakeProvider{name: "a"}, &fakeProvider{name: "b"})
	list, err := Devices()
	if err != nil || list == nil || len(list) != 0 {
		t.Errorf("%v, %v; want an empty list that is not nil", list, err)
	}
	_, err = Open("")
	refused(t, err, ENODEV, "no device")
}

func TestV_DEV_06_NoProviderIsENOSYS(t *testing.T) {
	withProviders(t)
	_, err := Devices()
	refused(t, err, ENOSYS, "import one")
	_, err = Open("")
	refused(t, err, ENOSYS)
}

func TestV_DEV_08_V_DEV_12_V_APP_02_DeviceDescription(t *testing.T) { // also V-DEV-12, V-QDEV-03: node_guid is the device's GUID
	dev := newFakeDevice()
	withProviders(t, &fakeProvider{name: "a", devices: []DeviceDriver{dev}})
	list := must(Devices())(t)
	d := list[0]
	if d.Name() != "vrb_fake0" || d.String() != "vrb_fake0" || d.NodeType() != NodeCA || d.TransportType() != TransportIB ||
		d.Interface() != "fake0" || d.GUID().String() != "0200:00ff:fe00:0001" || d.GUID().Compact() != "020000fffe000001" {
		t.Errorf("%+v", d)
	}
	ctx := must(d.Open())(t)
	if ctx.Device() != d || ctx.NumCompVectors() != 2 {
		t.Errorf("device %v, %d vectors", ctx.Device(), ctx.NumCompVectors())
	}
	if attr := must(ctx.QueryDevice())(t); attr.NodeGUID != d.GUID() {
		t.Errorf("node GUID %v", attr.NodeGUID)
	}
	ok(t, ctx.Close())
}

func TestDevicesOfSeveralProviders(t *testing.T) {
	dev := newFakeDevice()
	withProviders(t, &fakeProvider{name: "broken", err: syscall.EACCES}, &fakeProvider{name: "good", devices: []DeviceDriver{dev}})
	list, err := Devices()
	if len(list) != 1 {
		t.Errorf("%d devices", len(list))
	}
	refused(t, err, syscall.EACCES, "provider broken")
	ok(t, must(Open(""))(t).Close())
	_, err = Open("vrb_nope")
	refused(t, err, ENODEV, `"vrb_nope"`, "vrb_fake0", "broken")
	withProviders(t, &fakeProvider{name: "broken", err: syscall.EACCES})
	_, err = Open("")
	refused(t, err, syscall.EACCES)
}

func TestRegisterTwicePanics(t *testing.T) {
	withProviders(t)
	Register(&fakeProvider{name: "a"})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Register(&fakeProvider{name: "a"})
}

func TestOpenChoosesActivePort(t *testing.T) {
	broken, down, active := newFakeDevice(), newFakeDevice(), newFakeDevice()
	broken.info.Name, broken.openErr = "vrb_broken", syscall.EMFILE
	down.info.Name, down.ports[0].State = "vrb_down", PortDown
	active.info.Name = "vrb_active"
	withProviders(t, &fakeProvider{name: "a", devices: []DeviceDriver{broken, down, active}})
	ctx := must(Open(""))(t)
	if ctx.Device().Name() != "vrb_active" || !down.opened[0].called("Close") {
		t.Errorf("opened %v", ctx.Device())
	}
	active.ports[0].State = PortDown
	if ctx = must(Open(""))(t); ctx.Device().Name() != "vrb_down" {
		t.Errorf("opened %v; want the first that opens", ctx.Device())
	}
	if ctx = must(Open("vrb_active"))(t); ctx.Device().Name() != "vrb_active" {
		t.Errorf("opened %v", ctx.Device())
	}
	_, err := Open("vrb_broken")
	refused(t, err, syscall.EMFILE, "open_device", "vrb_broken")
	_, err = Open("vrb_none")
	refused(t, err, ENODEV, "vrb_broken, vrb_down, vrb_active")
}

func TestV_CTX_01_SeveralContexts(t *testing.T) {
	dev := newFakeDevice()
	d := &Device{drv: dev, info: dev.Info()}
	a, b := must(d.Open())(t), must(d.Open())(t)
	ok(t, a.Close())
	must(b.QueryDevice())(t)
	ok(t, b.Close())
}

func TestV_CTX_04_AtLeastOneCompVector(t *testing.T) {
	dev := newFakeDevice()
	dev.vectors = 0
	ctx, _ := openDevice(t, dev)
	if ctx.NumCompVectors() != 1 {
		t.Errorf("%d vectors", ctx.NumCompVectors())
	}
}

func TestV_CTX_05_CloseNeedsChildrenGone(t *testing.T) {
	ctx, drv := openFake(t)
	pd, ch := newPD(t, ctx), must(ctx.CreateCompChannel())(t)
	cq, _ := newCQ(t, ctx, nil)
	refused(t, ctx.Close(), EBUSY, "close_device", "still used by 1 PD, 1 CQ, 1 completion channel", "vrb_fake0")
	if drv.called("Close") {
		t.Error("the driver was asked")
	}
	must(ctx.QueryPort(1))(t)
	ok(t, cq.Close())
	ok(t, ch.Close())
	ok(t, pd.Close())
	drv.fail["Close"] = syscall.EIO
	refused(t, ctx.Close(), syscall.EIO)
	drv.fail["Close"] = nil
	ok(t, ctx.Close())
	refused(t, ctx.Close(), EINVAL, "closed")
}

func TestOpenFailures(t *testing.T) {
	dev := newFakeDevice()
	dev.openErr = syscall.EADDRINUSE
	d := &Device{drv: dev, info: dev.Info()}
	_, err := d.Open()
	refused(t, err, syscall.EADDRINUSE, "open_device", "vrb_fake0")
}

// TestV_LIB_05_UseAfterClose calls everything of closed objects: an error that says so, never a panic.
func TestV_LIB_05_UseAfterClose(t *testing.T) {
	ctx, _ := openFake(t)
	pd, ch := newPD(t, ctx), must(ctx.CreateCompChannel())(t)
	cq, _ := newCQ(t, ctx, &CQOptions{Channel: ch})
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 4, MaxSGE: 1}}))(t)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeUD, SendCQ: cq, RecvCQ: cq}))(t)
	mr := must(pd.RegMR(make([]byte, 8), AccessLocalWrite))(t)
	attr := AHAttr{PortNum: 1, IsGlobal: true, GRH: GlobalRoute{DGID: mustGID("::ffff:192.0.2.2"), SGIDIndex: 1}}
	ah := must(pd.CreateAH(&attr))(t)
	for _, c := range []interface{ Close() error }{ah, mr, qp, srq, cq, ch, pd, ctx} {
		ok(t, c.Close())
	}
	calls := map[string]func() error{
		"close_device":         ctx.Close,
		"query_device":         func() error { _, err := ctx.QueryDevice(); return err },
		"query_port":           func() error { _, err := ctx.QueryPort(1); return err },
		"query_gid":            func() error { _, err := ctx.QueryGID(1, 0); return err },
		"query_gid_ex":         func() error { _, err := ctx.QueryGIDEntry(1, 0); return err },
		"query_gid_table":      func() error { _, err := ctx.QueryGIDTable(); return err },
		"query_pkey":           func() error { _, err := ctx.QueryPKey(1, 0); return err },
		"get_pkey_index":       func() error { _, err := ctx.PKeyIndex(1, 0xffff); return err },
		"select_gid":           func() error { _, err := ctx.SelectGID(netip.MustParseAddr("192.0.2.2")); return err },
		"alloc_pd":             func() error { _, err := ctx.AllocPD(); return err },
		"create_cq":            func() error { _, err := ctx.CreateCQ(1, nil); return err },
		"create_comp_channel":  func() error { _, err := ctx.CreateCompChannel(); return err },
		"get_async_event":      func() error { _, err := ctx.TryGetAsyncEvent(); return err },
		"get_async_event 2":    func() error { _, err := ctx.GetAsyncEvent(t.Context()); return err },
		"async_fd":             func() error { _, err := ctx.AsyncFD(); return err },
		"init_ah_from_wc":      func() error { _, err := ctx.InitAHFromWC(1, &WC{}, nil); return err },
		"destroy_comp_channel": ch.Close,
		"get_cq_event":         func() error { _, err := ch.TryGetEvent(); return err },
		"get_cq_event 2":       func() error { _, err := ch.GetEvent(t.Context()); return err },
		"comp_channel_fd":      func() error { _, err := ch.FD(); return err },
		"dealloc_pd":           pd.Close,
		"reg_mr":               func() error { _, err := pd.RegMR(make([]byte, 8), 0); return err },
		"reg_mr_iova":          func() error { _, err := pd.RegMRIOVA(make([]byte, 8), 0, 0); return err },
		"create_ah":            func() error { _, err := pd.CreateAH(&attr); return err },
		"create_ah_from_wc":    func() error { _, err := pd.CreateAHFromWC(1, &WC{}, nil); return err },
		"create_srq":           func() error { _, err := pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}); return err },
		"create_qp": func() error {
			_, err := pd.CreateQP(&QPInitAttr{Type: QPTypeUD, SendCQ: cq, RecvCQ: cq})
			return err
		},
		"destroy_cq":    cq.Close,
		"poll_cq":       func() error { _, err := cq.Poll(make([]WC, 1)); return err },
		"req_notify_cq": func() error { return cq.ReqNotify(false) },
		"resize_cq":     func() error { return cq.Resize(4) },
		"modify_cq":     func() error { return cq.Modify(&ModifyCQAttr{}) },
		"destroy_srq":   srq.Close,
		"post_srq_recv": func() error { return srq.PostRecv(RecvWR{}) },
		"modify_srq":    func() error { return srq.Modify(&SRQAttr{}, 0) },
		"query_srq":     func() error { _, err := srq.Query(); return err },
		"destroy_qp":    qp.Close,
		"modify_qp":     func() error { return qp.Modify(&QPAttr{}, QPAttrState) },
		"query_qp":      func() error { _, _, err := qp.Query(0); return err },
		"post_send":     func() error { return qp.PostSend(SendWR{}) },
		"post_recv":     func() error { return qp.PostRecv(RecvWR{}) },
		"attach_mcast":  func() error { return qp.AttachMcast(mustGID("ff0e::1"), 0) },
		"detach_mcast":  func() error { return qp.DetachMcast(mustGID("ff0e::1"), 0) },
		"dereg_mr":      mr.Close,
		"rereg_mr":      func() error { return mr.Rereg(ReregChangeAccess, nil, nil, 0) },
		"destroy_ah":    ah.Close,
	}
	for name, call := range calls {
		err := call()
		if !errors.Is(err, ErrClosed) || !errors.Is(err, os.ErrClosed) || !errors.Is(err, EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cq.AckEvents(1)
	_, _, _, _ = mr.SGE(0, 1), mr.Length(), qp.State(), cq.Cap()
}

func TestV_QDEV_02_DeviceAttributes(t *testing.T) {
	ctx, _ := openFake(t)
	if attr := must(ctx.QueryDevice())(t); attr != newFakeDevice().attr {
		t.Errorf("%+v", attr)
	}
}

func TestV_PORT_01_PortNumbers(t *testing.T) {
	ctx, drv := openFake(t)
	for port, good := range map[uint8]bool{0: false, 1: true, 2: true, 3: false, 255: false} {
		attr, err := ctx.QueryPort(port)
		if good && (err != nil || attr != drv.dev.ports[port-1]) {
			t.Errorf("port %d: %+v, %v", port, attr, err)
		}
		if !good {
			refused(t, err, EINVAL, "ports are 1 to 2")
		}
	}
	drv.fail["QueryPort"] = ENOMEM
	_, err := ctx.QueryPort(1)
	refused(t, err, ENOMEM, "query_port")
}

func TestV_PORT_02_NothingIsCached(t *testing.T) {
	ctx, drv := openFake(t)
	must(ctx.QueryPort(1))(t)
	drv.dev.ports[0].State = PortDown
	if attr := must(ctx.QueryPort(1))(t); attr.State != PortDown {
		t.Errorf("state %v", attr.State)
	}
}

func TestV_GID_01_IndexRange(t *testing.T) {
	ctx, drv := openFake(t)
	for _, e := range []struct {
		port  uint8
		index int
	}{{0, 0}, {3, 0}, {1, -1}, {1, 16}} {
		_, err := ctx.QueryGID(e.port, e.index)
		refused(t, err, EINVAL, "query_gid")
	}
	if g := must(ctx.QueryGID(2, 1))(t); g != drv.dev.gids[1].GID {
		t.Errorf("GID %v", g)
	}
	// X-GID-01: empty entries are zero, inside and beyond what the driver lists.
	for _, i := range []int{2, 15} {
		if g := must(ctx.QueryGID(1, i))(t); !g.IsZero() {
			t.Errorf("entry %d is %v", i, g)
		}
		_, err := ctx.QueryGIDEntry(1, i)
		refused(t, err, ENODATA, "empty")
	}
	e := must(ctx.QueryGIDEntry(1, 1))(t)
	if e.Index != 1 || e.Port != 1 || e.Type != GIDTypeRoCEv2 || e.NetDev != "fake0" {
		t.Errorf("entry %+v", e)
	}
	drv.fail["GIDTable"] = syscall.EMFILE
	_, err := ctx.QueryGID(1, 0)
	refused(t, err, syscall.EMFILE)
}

func TestQueryGIDTable(t *testing.T) {
	ctx, drv := openFake(t)
	table := must(ctx.QueryGIDTable())(t)
	if len(table) != 6 || table[0].Port != 1 || table[3].Port != 2 || table[2].Index != 3 || table[5].GID != drv.dev.gids[3].GID {
		t.Errorf("%+v", table)
	}
}

func TestSelectGID(t *testing.T) {
	ctx, _ := openFake(t)
	choice := must(ctx.SelectGID(netip.MustParseAddr("192.0.2.9")))(t)
	if choice.Index != 1 || choice.Reason == "" {
		t.Errorf("%+v", choice)
	}
	_, err := ctx.SelectGID(netip.Addr{})
	refused(t, err, EINVAL, "empty")
}

func TestV_PKEY_01_IndexRange(t *testing.T) {
	ctx, _ := openFake(t)
	for _, e := range []struct {
		port  uint8
		index int
	}{{0, 0}, {3, 0}, {1, -1}, {1, 2}} {
		_, err := ctx.QueryPKey(e.port, e.index)
		refused(t, err, EINVAL, "query_pkey")
	}
	if p := must(ctx.QueryPKey(1, 1))(t); p != 0x8001 {
		t.Errorf("P_Key %#x", p)
	}
}

func TestV_PKEY_07_D_11_Index(t *testing.T) { // D-11: the P_Key itself is the argument
	ctx, drv := openFake(t)
	if i := must(ctx.PKeyIndex(2, 0x8001))(t); i != 1 {
		t.Errorf("index %d", i)
	}
	i, err := ctx.PKeyIndex(1, 0x0001)
	refused(t, err, ENOENT, "0x0001")
	if i != -1 {
		t.Errorf("index %d", i)
	}
	_, err = ctx.PKeyIndex(9, 0xffff)
	refused(t, err, EINVAL)
	drv.fail["PKeyTable"] = syscall.EMFILE
	_, err = ctx.PKeyIndex(1, 0xffff)
	refused(t, err, syscall.EMFILE)
}

func TestV_GEN_02_GUIDAndGID(t *testing.T) {
	g := must(ParseGUID("0200:00ff:fe00:0001"))(t)
	if g.Uint64() != 0x020000fffe000001 || must(ParseGUID(g.Compact()))(t) != g {
		t.Errorf("%v", g)
	}
	for _, bad := range []string{"", "1", "0200:00ff:fe00:000g", "0200:00ff:fe00:00011"} {
		_, err := ParseGUID(bad)
		refused(t, err, EINVAL)
	}
	v4 := GIDFromAddr(netip.MustParseAddr("192.0.2.1"))
	if v4.String() != "::ffff:192.0.2.1" || v4.Hex() != "0000:0000:0000:0000:0000:ffff:c000:0201" || v4.Addr().String() != "192.0.2.1" {
		t.Errorf("%v %v %v", v4, v4.Hex(), v4.Addr())
	}
	v6 := GIDFromAddr(netip.MustParseAddr("fe80::1%eth0"))
	if v6.String() != "fe80::1" || v6.SubnetPrefix() != 0xfe80<<48 || v6.InterfaceID() != 1 {
		t.Errorf("%v", v6)
	}
	if !GIDFromAddr(netip.Addr{}).IsZero() {
		t.Error("the GID of no address is not zero")
	}
	for _, bad := range []string{"", "x", "fe80::1%eth0", "1.2.3"} {
		_, err := ParseGID(bad)
		refused(t, err, EINVAL)
	}
	var back GID
	text, _ := v4.MarshalText()
	ok(t, back.UnmarshalText(text))
	if back != v4 {
		t.Errorf("%v", back)
	}
	if back.UnmarshalText([]byte("x")) == nil || back != v4 {
		t.Error("a bad text changed the GID")
	}
	for text, multi := range map[string]bool{
		"ff02::1": true, "ff0e::ffff:224.0.0.1": true, "::ffff:224.0.0.1": true, "::ffff:239.255.255.255": true, "::ffff:240.0.0.1": false,
		"::ffff:223.0.0.1": false, "fe80::1": false, "::224.0.0.1": false,
	} {
		if mustGID(text).IsMulticast() != multi {
			t.Errorf("%s: multicast %v", text, !multi)
		}
	}
}
