package verbs

import (
	"encoding/binary"
	"syscall"
	"testing"
)

func goodAH() AHAttr {
	return AHAttr{PortNum: 1, IsGlobal: true, GRH: GlobalRoute{DGID: mustGID("::ffff:192.0.2.2"), SGIDIndex: 1,
		HopLimit: 64}}
}

func TestV_AH_01_Create(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	attr := goodAH()
	ah := must(pd.CreateAH(&attr))(t)
	if ah.PD() != pd || ah.Attr() != attr || ah.drv.(*fakeAH).attr != attr {
		t.Errorf("%+v", ah)
	}
	drv.fail["DestroyAH"] = syscall.EIO
	refused(t, ah.Close(), syscall.EIO, "destroy_ah", "AH to ::ffff:192.0.2.2")
	drv.fail["DestroyAH"] = nil
	ok(t, ah.Close())
	_, err := pd.CreateAH(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateAH"] = ENOMEM
	_, err = pd.CreateAH(&attr)
	refused(t, err, ENOMEM, "create_ah")
	ok(t, pd.Close())
}

// TestV_AH_02_GRHRequired is also V-KC-09: RoCE needs a GRH with or without the flag.
func TestV_AH_02_GRHRequired(t *testing.T) {
	for _, tt := range []struct {
		link  LinkLayer
		flags PortFlags
		need  bool
	}{
		{LinkLayerEthernet, QPFGRHRequired, true}, {LinkLayerEthernet, 0, true}, {LinkLayerInfiniBand, QPFGRHRequired, true},
		{LinkLayerInfiniBand, 0, false}, {LinkLayerUnspecified, 0, false},
	} {
		dev := newFakeDevice()
		dev.ports[0].LinkLayer, dev.ports[0].Flags = tt.link, tt.flags
		vctx, _ := openDevice(t, dev)
		pd := newPD(t, vctx)
		_, err := pd.CreateAH(&AHAttr{PortNum: 1, DLID: 3})
		if tt.need {
			refused(t, err, EINVAL, "set IsGlobal")
		} else {
			ok(t, err)
		}
		attr := goodAH()
		must(pd.CreateAH(&attr))(t)
	}
}

func TestV_AH_05_Ranges(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	tests := map[string]struct{ good, bad func(*AHAttr) }{
		"port":             {func(a *AHAttr) { a.PortNum = 2 }, func(a *AHAttr) { a.PortNum = 3 }},
		"port 0":           {func(a *AHAttr) { a.PortNum = 1 }, func(a *AHAttr) { a.PortNum = 0 }},
		"SL":               {func(a *AHAttr) { a.SL = 15 }, func(a *AHAttr) { a.SL = 16 }},
		"source path bits": {func(a *AHAttr) { a.SrcPathBits = 127 }, func(a *AHAttr) { a.SrcPathBits = 128 }},
		"flow label":       {func(a *AHAttr) { a.GRH.FlowLabel = 0xfffff }, func(a *AHAttr) { a.GRH.FlowLabel = 0x100000 }},
		"SGID index":       {func(a *AHAttr) { a.GRH.SGIDIndex = 3 }, func(a *AHAttr) { a.GRH.SGIDIndex = 16 }},
		"SGID index -1":    {func(a *AHAttr) { a.GRH.SGIDIndex = 0 }, func(a *AHAttr) { a.GRH.SGIDIndex = -1 }},
		"entry 2":          {func(a *AHAttr) { a.GRH.SGIDIndex = 0 }, func(a *AHAttr) { a.GRH.SGIDIndex = 2 }},
		"entry 15":         {func(a *AHAttr) { a.GRH.SGIDIndex = 0 }, func(a *AHAttr) { a.GRH.SGIDIndex = 15 }},
		"destination GID":  {func(a *AHAttr) { a.GRH.DGID = mustGID("ff0e::1") }, func(a *AHAttr) { a.GRH.DGID = GID{} }},
	}
	for text, tt := range tests {
		attr := goodAH()
		tt.good(&attr)
		ok(t, must(pd.CreateAH(&attr))(t).Close())
		tt.bad(&attr)
		_, err := pd.CreateAH(&attr)
		refused(t, err, EINVAL, text)
	}
	ok(t, pd.Close())
}

// grhV6 is the GRH in the receive buffer with InfiniBand and RoCEv2 over IPv6.
func grhV6(src, dst string) []byte {
	b := make([]byte, 40)
	binary.BigEndian.PutUint32(b, 6<<28|0x5a<<20|0x12345)
	b[6], b[7] = 17, 33
	s, d := mustGID(src), mustGID(dst)
	copy(b[8:], s[:])
	copy(b[24:], d[:])
	return b
}

// grhV4 is the same with RoCEv2 over IPv4: 20 undefined bytes and an IPv4 header.
func grhV4(src, dst string) []byte {
	b := make([]byte, 40)
	h := b[20:]
	h[0], h[1], h[8], h[9] = 0x45, 0x6c, 44, 17
	s, d := mustGID("::ffff:"+src), mustGID("::ffff:"+dst)
	copy(h[12:], s[12:])
	copy(h[16:], d[12:])
	binary.BigEndian.PutUint16(h[10:], uint16(^ipv4Sum(h)))
	return b
}

func TestV_AH_06_InitFromWC(t *testing.T) { // X-AH-01
	vctx, _ := openFake(t)
	wc := WC{WCFlags: WCGRH, SLID: 9, SL: 3, DLIDPathBits: 5}
	got := must(vctx.InitAHFromWC(2, &wc, grhV6("2001:db8::2", "2001:db8::1")))(t)
	want := AHAttr{DLID: 9, SL: 3, SrcPathBits: 5, PortNum: 2, IsGlobal: true,
		GRH: GlobalRoute{DGID: mustGID("2001:db8::2"), FlowLabel: 0x12345, SGIDIndex: 3, HopLimit: 33, TrafficClass: 0x5a}}
	if got != want {
		t.Errorf("IPv6: %+v", got)
	}
	got = must(vctx.InitAHFromWC(2, &wc, grhV4("192.0.2.2", "192.0.2.1")))(t)
	want.GRH = GlobalRoute{DGID: mustGID("::ffff:192.0.2.2"), SGIDIndex: 1, HopLimit: 44, TrafficClass: 0x6c}
	if got != want {
		t.Errorf("IPv4: %+v", got)
	}
	// The 20 bytes in front of an IPv4 header are undefined, even if they look like IPv6.
	b := grhV4("192.0.2.2", "192.0.2.1")
	b[0] = 0x60
	if got = must(vctx.InitAHFromWC(2, &wc, b))(t); got != want {
		t.Errorf("IPv4 after 0x60: %+v", got)
	}
	// An IPv6 source address may look like an IPv4 header, but not with its checksum.
	b = grhV6("2001:db8::2", "2001:db8::1")
	b[20] = 0x45
	if got = must(vctx.InitAHFromWC(2, &wc, b))(t); got.GRH.SGIDIndex != 3 {
		t.Errorf("IPv6 that looks like IPv4: %+v", got)
	}
}

func TestV_AH_07_Restrictions(t *testing.T) {
	vctx, drv := openFake(t)
	good := grhV6("2001:db8::2", "2001:db8::1")
	for _, wc := range []*WC{nil, {Status: WCWRFlushErr, WCFlags: WCGRH}} {
		_, err := vctx.InitAHFromWC(1, wc, good)
		refused(t, err, EINVAL, "init_ah_from_wc", "not a successful receive")
	}
	for _, grh := range [][]byte{nil, good[:39]} {
		_, err := vctx.InitAHFromWC(1, &WC{WCFlags: WCGRH}, grh)
		refused(t, err, EINVAL, "must be 40 or more")
	}
	_, err := vctx.InitAHFromWC(1, &WC{WCFlags: WCGRH}, make([]byte, 40))
	refused(t, err, EINVAL, "no network header")
	for _, port := range []uint8{0, 3} {
		_, err = vctx.InitAHFromWC(port, &WC{WCFlags: WCGRH}, good)
		refused(t, err, EINVAL, "must be 1 to 2")
	}
	for _, multi := range [][]byte{grhV6("2001:db8::2", "ff0e::1"), grhV4("192.0.2.2", "224.0.0.7")} {
		_, err = vctx.InitAHFromWC(1, &WC{WCFlags: WCGRH}, multi)
		refused(t, err, EINVAL, "multicast group")
	}
	// Without the flag the header is ignored.
	if got := must(vctx.InitAHFromWC(1, &WC{SLID: 4}, nil))(t); got != (AHAttr{DLID: 4, PortNum: 1}) {
		t.Errorf("%+v", got)
	}
	drv.fail["GIDTable"] = syscall.EMFILE
	_, err = vctx.InitAHFromWC(1, &WC{WCFlags: WCGRH}, good)
	refused(t, err, syscall.EMFILE)
	pd := newPD(t, vctx)
	_, err = pd.CreateAHFromWC(1, &WC{WCFlags: WCGRH}, nil)
	refused(t, err, EINVAL, "create_ah_from_wc", "must be 40 or more")
	if drv.called("CreateAH") {
		t.Error("an AH of a completion without a header")
	}
	ok(t, pd.Close())
}

func TestV_AH_09_DestinationMustBeLocal(t *testing.T) {
	vctx, _ := openFake(t)
	for _, grh := range [][]byte{grhV6("2001:db8::2", "2001:db8::99"), grhV4("192.0.2.2", "192.0.2.99"),
		grhV6("2001:db8::2", "::")} {
		_, err := vctx.InitAHFromWC(1, &WC{WCFlags: WCGRH}, grh)
		refused(t, err, EINVAL, "not in the GID table of port 1")
	}
}

func TestV_AH_10_CreateFromWC(t *testing.T) { // E-15
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	wc, grh := WC{WCFlags: WCGRH, SL: 2}, grhV4("192.0.2.2", "192.0.2.1")
	ah := must(pd.CreateAHFromWC(1, &wc, grh))(t)
	if want := must(vctx.InitAHFromWC(1, &wc, grh))(t); ah.Attr() != want {
		t.Errorf("%+v", ah.Attr())
	}
	_, err := pd.CreateAHFromWC(1, &wc, grh[:10])
	refused(t, err, EINVAL, "create_ah_from_wc")
	_, err = pd.CreateAHFromWC(1, &WC{}, nil) // no GRH, which this port needs
	refused(t, err, EINVAL, "create_ah_from_wc", "no GRH")
	ok(t, ah.Close())
	ok(t, pd.Close())
}

func FuzzParseGRH(f *testing.F) {
	f.Add(grhV6("2001:db8::2", "2001:db8::1"))
	f.Add(grhV4("192.0.2.2", "192.0.2.1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseGRH(b)
		if err == nil && h.flowLabel > 0xfffff {
			t.Errorf("%+v", h)
		}
	})
}

// The expected numbers are those of the C library.
func TestFlowLabelToUDPSourcePort(t *testing.T) {
	for label, want := range map[uint32]uint16{
		0: 0xc000, 1: 0xc001, 0x3fff: 0xffff, 0x4000: 0xc001, 0xfffff: 0xffc0, 0x12345: 0xe341, 0x100001: 0xc001,
		0xffffffff: 0xffc0,
	} {
		if got := FlowLabelToUDPSourcePort(label); got != want {
			t.Errorf("label %#x: %#x, want %#x", label, got, want)
		}
	}
}

func TestStaticRates(t *testing.T) {
	for value, want := range map[StaticRate]struct {
		name       string
		mbps, mult int
	}{
		0: {"MAX", -1, -1}, 1: {"StaticRate(1)", -1, -1}, 2: {"2_5_GBPS", 2500, 1}, 3: {"10_GBPS", 10000, 4}, 4: {"30_GBPS",
			30000, 12},
		5: {"5_GBPS", 5000, 2}, 6: {"20_GBPS", 20000, 8}, 7: {"40_GBPS", 40000, 16}, 8: {"60_GBPS", 60000, 24},
		9:  {"80_GBPS", 80000, 32},
		10: {"120_GBPS", 120000, 48}, 11: {"14_GBPS", 14062, -1}, 12: {"56_GBPS", 56250, -1}, 13: {"112_GBPS", 112500, -1},
		14: {"168_GBPS", 168750, -1}, 15: {"25_GBPS", 25781, -1}, 16: {"100_GBPS", 103125, -1}, 17: {"200_GBPS", 206250, -1},
		18: {"300_GBPS", 309375, -1}, 19: {"28_GBPS", 28125, 11}, 20: {"50_GBPS", 53125, 20}, 21: {"400_GBPS", 425000, 160},
		22: {"600_GBPS", 637500, 240}, 23: {"800_GBPS", 850000, 320}, 24: {"1200_GBPS", 1275000, 480},
		25: {"StaticRate(25)", -1, -1}, 255: {"StaticRate(255)", -1, -1},
	} {
		if value.String() != want.name || value.Mbps() != want.mbps || value.Mult() != want.mult {
			t.Errorf("%d: %v, %d, %d", uint8(value), value, value.Mbps(), value.Mult())
		}
		if want.mbps > 0 && StaticRateOfMbps(want.mbps) != value || want.mult > 0 && StaticRateOfMult(want.mult) != value {
			t.Errorf("%v: the rate of its Mb/s or its multiple is another", value)
		}
	}
	for _, none := range []int{-1, 0, 3, 2501} {
		if StaticRateOfMbps(none) != RateMax || StaticRateOfMult(none) != RateMax {
			t.Errorf("%d", none)
		}
	}
}
