package verbs

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/observe"
)

func TestV_DEV_02_NoDevices(t *testing.T) {
	withProviders(t, &fakeProvider{name: "a"}, &fakeProvider{name: "b"})
	list, err := Devices()
	if err != nil || list == nil || len(list) != 0 {
		t.Errorf("%v, %v; want an empty list that is not nil", list, err)
	}
	_, err = Open("")
	refused(t, err, ENODEV, "no device", "verbena doctor")
}

func TestV_DEV_06_NoProviderIsENOSYS(t *testing.T) {
	withProviders(t)
	_, err := Devices()
	refused(t, err, ENOSYS, "import one")
	_, err = Open("")
	refused(t, err, ENOSYS)
}

// also V-DEV-12, V-QDEV-03: node_guid is the device's GUID
func TestV_DEV_08_V_DEV_12_V_APP_02_DeviceDescription(t *testing.T) {
	dev := newFakeDevice()
	withProviders(t, &fakeProvider{name: "a", devices: []DriverDevice{dev}})
	list := must(Devices())(t)
	d := list[0]
	if d.Name() != "vrb_fake0" || d.String() != "vrb_fake0" || d.NodeType() != NodeCA ||
		d.TransportType() != TransportIB ||
		d.Interface() != "fake0" || d.GUID().String() != "0200:00ff:fe00:0001" || d.GUID().Compact() != "020000fffe000001" {
		t.Errorf("%+v", d)
	}
	vctx := must(d.Open())(t)
	if vctx.Device() != d || vctx.NumCompVectors() != 2 {
		t.Errorf("device %v, %d vectors", vctx.Device(), vctx.NumCompVectors())
	}
	if attr := must(vctx.QueryDevice())(t); attr.NodeGUID != d.GUID() {
		t.Errorf("node GUID %v", attr.NodeGUID)
	}
	ok(t, vctx.Close())
}

func TestDevicesOfSeveralProviders(t *testing.T) {
	dev := newFakeDevice()
	withProviders(t, &fakeProvider{name: "broken", err: syscall.EACCES},
		&fakeProvider{name: "good", devices: []DriverDevice{dev}})
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

// TestProviderWithoutDevices has a provider say by ENODEV why it has no devices, alone and beside one with devices.
func TestProviderWithoutDevices(t *testing.T) {
	absent := &fakeProvider{name: "absent", err: ENODEV}
	withProviders(t, absent, &fakeProvider{name: "good", devices: []DriverDevice{newFakeDevice()}})
	if list, err := Devices(); len(list) != 1 || err != nil {
		t.Errorf("%d devices, %v", len(list), err)
	}
	withProviders(t, absent, &fakeProvider{name: "empty"})
	list, err := Devices()
	refused(t, err, ENODEV, "provider absent")
	if len(list) != 0 {
		t.Errorf("%d devices", len(list))
	}
	_, err = Open("")
	refused(t, err, ENODEV, "provider absent")
}

// Without devices the error names a provider that the environment selects and the program lacks.
func TestSelectedProviderIsMissing(t *testing.T) {
	withProviders(t, &fakeProvider{name: "a"}, &fakeProvider{name: "b"})
	for selected, missing := range map[string]bool{"": false, "b": false, "c": true, "hw": true} {
		t.Setenv("VERBENA_PROVIDER", selected)
		list, err := Devices()
		if len(list) != 0 || (err != nil) != missing {
			t.Errorf("%q: %v, %v", selected, list, err)
		}
		if !missing {
			continue
		}
		refused(t, err, ENODEV, "VERBENA_PROVIDER="+selected, "only a, b", "import provider/"+selected)
		if hinted := strings.Contains(err.Error(), "make build-hw"); hinted != (selected == "hw") {
			t.Errorf("%s: the hint at the tools with adapters: %v", selected, err)
		}
	}
}

func TestRegisterTwicePanics(t *testing.T) {
	withProviders(t)
	register(&fakeProvider{name: "a"})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	register(&fakeProvider{name: "a"})
}

func TestOpenChoosesActivePort(t *testing.T) {
	broken, down, active := newFakeDevice(), newFakeDevice(), newFakeDevice()
	broken.info.Name, broken.openErr = "vrb_broken", syscall.EMFILE
	down.info.Name, down.ports[0].State, down.ports[1].State = "vrb_down", PortDown, PortInit
	active.info.Name, active.ports[0].State = "vrb_active", PortDown // its second one is active
	withProviders(t, &fakeProvider{name: "a", devices: []DriverDevice{broken, down, active}})
	vctx := must(Open(""))(t)
	if vctx.Device().Name() != "vrb_active" || !down.opened[0].called("Close") {
		t.Errorf("opened %v", vctx.Device())
	}
	active.ports[1].State = PortDown
	if vctx = must(Open(""))(t); vctx.Device().Name() != "vrb_down" {
		t.Errorf("opened %v; want the first that can be opened", vctx.Device())
	}
	if vctx = must(Open("vrb_active"))(t); vctx.Device().Name() != "vrb_active" {
		t.Errorf("opened %v", vctx.Device())
	}
	_, err := Open("vrb_broken")
	refused(t, err, syscall.EMFILE, "open_device", "vrb_broken")
	_, err = Open("vrb_none")
	refused(t, err, ENODEV, "vrb_broken, vrb_down, vrb_active")
}

// TestOpenReportsItsChoice: the event names the device and the reason, and the providers that have no devices.
func TestOpenReportsItsChoice(t *testing.T) {
	down, active := newFakeDevice(), newFakeDevice()
	down.info.Name, down.ports = "vrb_down", down.ports[:1]
	down.ports[0].State, down.attr.PhysPortCnt = PortDown, 1
	active.info.Name, active.ports, active.attr.PhysPortCnt = "vrb_active", active.ports[:1], 1
	absent := &fakeProvider{name: "absent", err: ENODEV}
	good := &fakeProvider{name: "good", devices: []DriverDevice{down, active}}
	withProviders(t, absent, good)
	ok(t, must(Open(""))(t).Close())
	if absent.listed != 1 {
		t.Errorf("without a handler the providers were asked %d times", absent.listed)
	}
	events := make(chan observe.Event, 4)
	stop := observe.Handle(func(e observe.Event) { events <- e })
	defer stop()
	for _, c := range []struct {
		state   PortState
		device  string
		reasons []string
	}{
		{PortActive, "vrb_active", []string{"the first with an active port", "provider absent"}},
		{PortDown, "vrb_down", []string{"no port is active", "provider absent"}},
	} {
		active.ports[0].State = c.state
		ok(t, must(Open(""))(t).Close())
		e := <-events
		if e.Name != observe.Device || e.Device != c.device {
			t.Errorf("%+v", e)
		}
		for _, r := range c.reasons {
			if !strings.Contains(e.Reason, r) {
				t.Errorf("%q does not have %q", e.Reason, r)
			}
		}
	}
	withProviders(t, good)
	ok(t, must(Open(""))(t).Close())
	if e := <-events; e.Reason != "the first that opens; no port is active" {
		t.Errorf("%q", e.Reason)
	}
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
	vctx, _ := openDevice(t, dev)
	if vctx.NumCompVectors() != 1 {
		t.Errorf("%d vectors", vctx.NumCompVectors())
	}
}

func TestV_CTX_05_CloseNeedsChildrenGone(t *testing.T) {
	vctx, drv := openFake(t)
	pd, ch := newPD(t, vctx), must(vctx.CreateCompChannel())(t)
	cq, _ := newCQ(t, vctx, nil)
	refused(t, vctx.Close(), EBUSY, "close_device", "still used by 1 PD, 1 CQ, 1 completion channel", "vrb_fake0")
	if drv.called("Close") {
		t.Error("the driver was called")
	}
	must(vctx.QueryPort(1))(t)
	ok(t, cq.Close())
	ok(t, ch.Close())
	ok(t, pd.Close())
	drv.fail["Close"] = syscall.EIO
	refused(t, vctx.Close(), syscall.EIO)
	drv.fail["Close"] = nil
	ok(t, vctx.Close())
	refused(t, vctx.Close(), EINVAL, "closed")
}

func TestOpenFailures(t *testing.T) {
	dev := newFakeDevice()
	dev.openErr = syscall.EADDRINUSE
	d := &Device{drv: dev, info: dev.Info()}
	_, err := d.Open()
	refused(t, err, syscall.EADDRINUSE, "open_device", "vrb_fake0")
}

// TestV_LIB_05_UseAfterClose calls every method of closed objects: each returns ErrClosed.
func TestV_LIB_05_UseAfterClose(t *testing.T) {
	vctx, _ := openFake(t)
	pd, ch := newPD(t, vctx), must(vctx.CreateCompChannel())(t)
	cq, _ := newCQ(t, vctx, &CQOptions{Channel: ch})
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 4, MaxSGE: 1}}))(t)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeUD, SendCQ: cq, RecvCQ: cq}))(t)
	mr := must(pd.RegMR(make([]byte, 8), AccessLocalWrite))(t)
	attr := AHAttr{PortNum: 1, IsGlobal: true, GRH: GlobalRoute{DGID: mustGID("::ffff:192.0.2.2"), SGIDIndex: 1}}
	ah := must(pd.CreateAH(&attr))(t)
	for _, c := range []interface{ Close() error }{ah, mr, qp, srq, cq, ch, pd, vctx} {
		ok(t, c.Close())
	}
	calls := map[string]func() error{
		"close_device":         vctx.Close,
		"query_device":         func() error { _, err := vctx.QueryDevice(); return err },
		"query_port":           func() error { _, err := vctx.QueryPort(1); return err },
		"query_gid":            func() error { _, err := vctx.QueryGID(1, 0); return err },
		"query_gid_ex":         func() error { _, err := vctx.QueryGIDEntry(1, 0); return err },
		"query_gid_table":      func() error { _, err := vctx.QueryGIDTable(); return err },
		"query_pkey":           func() error { _, err := vctx.QueryPKey(1, 0); return err },
		"get_pkey_index":       func() error { _, err := vctx.PKeyIndex(1, 0xffff); return err },
		"select_gid":           func() error { _, err := vctx.SelectGID(1, netip.MustParseAddr("192.0.2.2")); return err },
		"alloc_pd":             func() error { _, err := vctx.AllocPD(); return err },
		"create_cq":            func() error { _, err := vctx.CreateCQ(1, nil); return err },
		"create_comp_channel":  func() error { _, err := vctx.CreateCompChannel(); return err },
		"get_async_event":      func() error { _, err := vctx.TryGetAsyncEvent(); return err },
		"get_async_event 2":    func() error { _, err := vctx.GetAsyncEvent(t.Context()); return err },
		"async_fd":             func() error { _, err := vctx.AsyncFD(); return err },
		"init_ah_from_wc":      func() error { _, err := vctx.InitAHFromWC(1, &WC{}, nil); return err },
		"destroy_comp_channel": ch.Close,
		"get_cq_event":         func() error { _, err := ch.TryGetEvent(); return err },
		"get_cq_event 2":       func() error { _, err := ch.GetEvent(t.Context()); return err },
		"comp_channel_fd":      func() error { _, err := ch.FD(); return err },
		"dealloc_pd":           pd.Close,
		"reg_mr":               func() error { _, err := pd.RegMR(make([]byte, 8), 0); return err },
		"reg_mr_iova":          func() error { _, err := pd.RegMRIOVA(make([]byte, 8), 0, 0); return err },
		"create_ah":            func() error { _, err := pd.CreateAH(&attr); return err },
		"create_ah_from_wc":    func() error { _, err := pd.CreateAHFromWC(1, &WC{}, nil); return err },
		"create_srq": func() error {
			_, err := pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1,
				MaxSGE: 1}})
			return err
		},
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
	vctx, _ := openFake(t)
	if attr := must(vctx.QueryDevice())(t); attr != newFakeDevice().attr {
		t.Errorf("%+v", attr)
	}
}

func TestV_PORT_01_PortNumbers(t *testing.T) {
	vctx, drv := openFake(t)
	for port, good := range map[uint8]bool{0: false, 1: true, 2: true, 3: false, 255: false} {
		attr, err := vctx.QueryPort(port)
		if good && (err != nil || attr != drv.dev.ports[port-1]) {
			t.Errorf("port %d: %+v, %v", port, attr, err)
		}
		if !good {
			refused(t, err, EINVAL, "must be 1 to 2")
		}
	}
	drv.fail["QueryPort"] = ENOMEM
	_, err := vctx.QueryPort(1)
	refused(t, err, ENOMEM, "query_port")
}

func TestV_PORT_02_NothingIsCached(t *testing.T) {
	vctx, drv := openFake(t)
	must(vctx.QueryPort(1))(t)
	drv.dev.ports[0].State = PortDown
	if attr := must(vctx.QueryPort(1))(t); attr.State != PortDown {
		t.Errorf("state %v", attr.State)
	}
}

func TestV_GID_01_IndexRange(t *testing.T) {
	vctx, drv := openFake(t)
	for _, e := range []struct {
		port  uint8
		index int
	}{{0, 0}, {3, 0}, {1, -1}, {1, 16}} {
		_, err := vctx.QueryGID(e.port, e.index)
		refused(t, err, EINVAL, "query_gid", ": must be ")
	}
	_, err := vctx.QueryGID(1, 16)
	refused(t, err, EINVAL, "GID index 16: must be 0 to 15")
	if g := must(vctx.QueryGID(2, 1))(t); g != drv.dev.gids[1].GID {
		t.Errorf("GID %v", g)
	}
	// X-GID-01: empty entries are zero, also those that the driver does not list.
	for _, i := range []int{2, 15} {
		if g := must(vctx.QueryGID(1, i))(t); !g.IsZero() {
			t.Errorf("entry %d is %v", i, g)
		}
		_, err := vctx.QueryGIDEntry(1, i)
		refused(t, err, ENODATA, "empty")
	}
	e := must(vctx.QueryGIDEntry(1, 1))(t)
	if e.Index != 1 || e.Port != 1 || e.Type != GIDTypeRoCEv2 || e.NetDev != "fake0" {
		t.Errorf("entry %+v", e)
	}
	drv.fail["GIDTable"] = syscall.EMFILE
	_, err = vctx.QueryGID(1, 0)
	refused(t, err, syscall.EMFILE)
}

func TestQueryGIDTable(t *testing.T) {
	vctx, drv := openFake(t)
	table := must(vctx.QueryGIDTable())(t)
	if len(table) != 6 || table[0].Port != 1 || table[3].Port != 2 || table[2].Index != 3 ||
		table[5].GID != drv.dev.gids[3].GID {
		t.Errorf("%+v", table)
	}
}

func TestSelectGID(t *testing.T) {
	vctx, _ := openFake(t)
	choice := must(vctx.SelectGID(1, netip.MustParseAddr("192.0.2.9")))(t)
	if choice.Index != 1 || choice.Reason == "" {
		t.Errorf("%+v", choice)
	}
	_, err := vctx.SelectGID(1, netip.Addr{})
	refused(t, err, EINVAL, "not valid")
}

func TestV_PKEY_01_IndexRange(t *testing.T) {
	vctx, _ := openFake(t)
	for _, e := range []struct {
		port  uint8
		index int
	}{{0, 0}, {3, 0}, {1, -1}, {1, 2}} {
		_, err := vctx.QueryPKey(e.port, e.index)
		refused(t, err, EINVAL, "query_pkey")
	}
	if p := must(vctx.QueryPKey(1, 1))(t); p != 0x8001 {
		t.Errorf("P_Key %#x", p)
	}
}

func TestV_PKEY_07_D_11_Index(t *testing.T) { // D-11: the argument is a P_Key, not an index
	vctx, drv := openFake(t)
	if i := must(vctx.PKeyIndex(2, 0x8001))(t); i != 1 {
		t.Errorf("index %d", i)
	}
	i, err := vctx.PKeyIndex(1, 0x0001)
	refused(t, err, ENOENT, "0x0001")
	if i != -1 {
		t.Errorf("index %d", i)
	}
	_, err = vctx.PKeyIndex(9, 0xffff)
	refused(t, err, EINVAL)
	drv.fail["PKeyTable"] = syscall.EMFILE
	_, err = vctx.PKeyIndex(1, 0xffff)
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
	if v4.String() != "::ffff:192.0.2.1" || v4.Hex() != "0000:0000:0000:0000:0000:ffff:c000:0201" ||
		v4.Addr().String() != "192.0.2.1" {
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
		t.Error("an invalid text changed the GID")
	}
	for text, multi := range map[string]bool{
		"ff02::1": true, "ff0e::ffff:224.0.0.1": true, "::ffff:224.0.0.1": true, "::ffff:239.255.255.255": true,
		"::ffff:240.0.0.1": false,
		"::ffff:223.0.0.1": false, "fe80::1": false, "::224.0.0.1": false,
	} {
		if mustGID(text).IsMulticast() != multi {
			t.Errorf("%s: multicast %v", text, !multi)
		}
	}
}
