package verbs

import (
	"net/netip"
	"syscall"
	"testing"
)

func TestConnect(t *testing.T) { // V-QPM-07
	ctxA, _ := openFake(t)
	ctxB, _ := openFake(t)
	for _, typ := range []QPType{QPTypeRC, QPTypeUC} {
		a, drvA := newQP(t, newPD(t, ctxA), typ)
		b, drvB := newQP(t, newPD(t, ctxB), typ)
		infoA, infoB := must(a.LocalInfo())(t), must(b.LocalInfo())(t)
		if again := must(a.LocalInfo())(t); again != infoA {
			t.Errorf("LocalInfo returned %v, then %v", infoA, again)
		}
		if infoA.GID != mustGID("::ffff:192.0.2.1") || infoA.QPN != a.QPN() || infoA.MTU != MTU1024 || infoA.PSN > 0xffffff {
			t.Errorf("info %v", infoA)
		}
		ok(t, a.Connect(infoB, nil))
		infoA.MTU = MTU512
		ok(t, b.Connect(infoA, &ConnectOptions{Timeout: 10, HopLimit: 3}))
		if a.State() != QPSRTS || b.State() != QPSRTS {
			t.Errorf("states %v, %v", a.State(), b.State())
		}
		if drvA.attr.SQPSN != infoA.PSN || drvB.modifies != 3 {
			t.Errorf("PSN %#x, %d modifies", drvA.attr.SQPSN, drvB.modifies)
		}
		refused(t, a.Connect(infoB, nil), EINVAL, "not possible in RTS")
	}
}

func TestConnectValues(t *testing.T) {
	vctx, _ := openFake(t)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	var steps []QPAttr
	drv.onModify = func(a *QPAttr, _ QPAttrMask) error { steps = append(steps, *a); return nil }
	local := must(qp.LocalInfoFor(netip.MustParseAddr("192.0.2.9")))(t)
	remote := QPInfo{Type: QPTypeRC, QPN: 0x99, PSN: 0x777, GID: mustGID("::ffff:192.0.2.9"), MTU: MTU512, RdAtomic: 3}
	ok(t, qp.Connect(remote, &ConnectOptions{RetryCnt: 2, MinRNRTimer: 5, TrafficClass: 9, Access: AccessRemoteWrite}))
	rtr, rts := steps[1], steps[2]
	if steps[0].QPAccessFlags != AccessRemoteWrite || rtr.DestQPNum != 0x99 || rtr.RQPSN != 0x777 ||
		rtr.PathMTU != MTU512 || rtr.MinRNRTimer != 5 ||
		rtr.MaxDestRdAtomic != 16 || !rtr.AHAttr.IsGlobal || rtr.AHAttr.GRH.DGID != remote.GID ||
		rtr.AHAttr.GRH.SGIDIndex != 1 ||
		rtr.AHAttr.GRH.HopLimit != 64 || rtr.AHAttr.GRH.TrafficClass != 9 {
		t.Errorf("INIT %+v\nRTR %+v", steps[0], rtr)
	}
	if rts.SQPSN != local.PSN || rts.Timeout != 14 || rts.RetryCnt != 2 || rts.RNRRetry != 7 || rts.MaxRdAtomic != 3 {
		t.Errorf("RTS %+v", rts)
	}
}

func TestConnectZero(t *testing.T) {
	vctx, _ := openFake(t)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	var steps []QPAttr
	drv.onModify = func(a *QPAttr, _ QPAttrMask) error { steps = append(steps, *a); return nil }
	opts := ConnectOptions{Timeout: Zero, RetryCnt: Zero, RNRRetry: Zero, MinRNRTimer: Zero, Access: AccessLocalWrite}
	ok(t, qp.Connect(QPInfo{Type: QPTypeRC, QPN: 0x99, GID: mustGID("::ffff:192.0.2.9"), MTU: MTU512}, &opts))
	rtr, rts := steps[1], steps[2]
	if rtr.MinRNRTimer != 0 || rts.Timeout != 0 || rts.RetryCnt != 0 || rts.RNRRetry != 0 ||
		steps[0].QPAccessFlags != AccessLocalWrite {
		t.Errorf("INIT %+v\nRTR %+v\nRTS %+v", steps[0], rtr, rts)
	}
}

// Connect without LocalInfo fails as it does if no GID reaches the peer, and the QP stays in RESET.
func TestConnectWithoutAGID(t *testing.T) {
	dev := newFakeDevice()
	dev.gids = dev.gids[:2] // IPv4 and link-local
	dev.gids[0] = GIDEntry{}
	vctx, _ := openDevice(t, dev)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	err := qp.Connect(QPInfo{Type: QPTypeRC, QPN: 5, GID: mustGID("2001:db8::9"), MTU: MTU512}, nil)
	refused(t, err, syscall.ENETUNREACH)
	if qp.State() != QPSReset || drv.modifies != 0 {
		t.Errorf("state %v, %d modifies", qp.State(), drv.modifies)
	}
}

func TestConnectDefaults(t *testing.T) {
	defaults := ConnectOptions{Access: AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic, Timeout: 14, RetryCnt: 7,
		RNRRetry: 7, MinRNRTimer: 12, HopLimit: 64, QKey: 0x11111111}
	given := ConnectOptions{Access: AccessLocalWrite, MTU: MTU256, Timeout: 1, RetryCnt: 2, RNRRetry: 3, MinRNRTimer: 4,
		HopLimit: 5, TrafficClass: 6, QKey: 7}
	for _, c := range []struct {
		opts *ConnectOptions
		want ConnectOptions
	}{{nil, defaults}, {&ConnectOptions{}, defaults}, {&given, given}} {
		if got := c.opts.withDefaults(); got != c.want {
			t.Errorf("%+v\nwant %+v", got, c.want)
		}
	}
}

func TestConnectUD(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	qp, drv := newQP(t, pd, QPTypeUD)
	ok(t, qp.Connect(QPInfo{}, &ConnectOptions{QKey: 5}))
	if qp.State() != QPSRTS || drv.modifies != 3 {
		t.Errorf("state %v", qp.State())
	}
	attr := must(qp.AHAttrTo(QPInfo{Type: QPTypeUD, GID: mustGID("::ffff:192.0.2.7")}, nil))(t)
	ah := must(pd.CreateAH(&attr))(t)
	ok(t, ah.Close())
}

// LocalInfo of a UD QP has the Q_Key that the QP checks, whether Connect or Modify has set it, before or after.
func TestLocalInfoHasTheQKey(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	want := func(qp *QP, qkey uint32) {
		t.Helper()
		if info := must(qp.LocalInfo())(t); info.QKey != qkey {
			t.Errorf("Q_Key %#x; want %#x", info.QKey, qkey)
		}
	}
	qp, _ := newQP(t, pd, QPTypeUD)
	want(qp, DefaultQKey)
	ok(t, qp.Connect(QPInfo{}, &ConnectOptions{QKey: 5}))
	want(qp, 5)
	ok(t, qp.Modify(&QPAttr{QKey: 6}, QPAttrQKey))
	want(qp, 6)
	ok(t, qp.Modify(&QPAttr{QPState: QPSReset}, QPAttrState))
	want(qp, DefaultQKey)

	qp, _ = newQP(t, pd, QPTypeUD)
	init := QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrQKey
	ok(t, qp.Modify(&QPAttr{QPState: QPSInit, PortNum: 1, QKey: 7}, init))
	ok(t, qp.Connect(QPInfo{}, &ConnectOptions{QKey: 8})) // keeps the attributes of INIT
	want(qp, 7)
}

// TestV_QPS_20_ReuseThroughReset: LocalInfo has another PSN only if the QP was connected before.
func TestV_QPS_20_ReuseThroughReset(t *testing.T) {
	vctx, _ := openFake(t)
	qp, _ := newQP(t, newPD(t, vctx), QPTypeUC)
	remote := QPInfo{Type: QPTypeUC, GID: mustGID("::ffff:192.0.2.2"), MTU: MTU1024}
	seen := map[uint32]bool{}
	for range 10 {
		told := must(qp.LocalInfo())(t)
		ok(t, qp.Modify(&QPAttr{QPState: QPSReset}, QPAttrState)) // from RESET to RESET keeps the PSN
		if again := must(qp.LocalInfo())(t); again != told {
			t.Errorf("LocalInfo returned %v, then %v", told, again)
		}
		ok(t, qp.Connect(remote, nil))
		ok(t, qp.Modify(&QPAttr{QPState: QPSReset}, QPAttrState))
		seen[told.PSN] = true
	}
	if len(seen) < 2 {
		t.Errorf("the same PSN each time: %v", seen)
	}
}

func TestConnectRefusals(t *testing.T) {
	vctx, _ := openFake(t)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	must(qp.LocalInfo())(t)
	refused(t, qp.Connect(QPInfo{Type: QPTypeUC}, nil), EINVAL, "the peer's QP type is UC")
	v6 := QPInfo{Type: QPTypeRC, GID: mustGID("2001:db8::2"), MTU: MTU1024}
	refused(t, qp.Connect(v6, nil), EINVAL, "use LocalInfoFor")
	if drv.modifies != 0 || qp.State() != QPSReset {
		t.Errorf("state %v", qp.State())
	}
	if info := must(qp.LocalInfoFor(v6.GID.Addr()))(t); info.GID.Addr().Is4() {
		t.Errorf("GID %v for %v", info.GID, v6.GID)
	}
	ok(t, qp.Connect(v6, nil))
	ok(t, qp.Close())
	refused(t, qp.Connect(v6, nil), EINVAL, "closed")
	_, err := qp.LocalInfo()
	refused(t, err, EINVAL, "closed")
	_, err = qp.AHAttrTo(v6, nil)
	refused(t, err, EINVAL, "closed")
}

func TestQPInfoText(t *testing.T) {
	info := QPInfo{Type: QPTypeUD, QPN: 0x11, PSN: 0xabcdef, GID: mustGID("::ffff:192.0.2.1"), LID: 7, MTU: MTU4096,
		RdAtomic: 16, QKey: 0x11111111}
	text := "UD qpn=0x000011 psn=0xabcdef gid=::ffff:192.0.2.1 lid=7 mtu=4096 rd_atomic=16 qkey=0x11111111"
	if info.String() != text {
		t.Errorf("%q", info)
	}
	if back := must(ParseQPInfo(text + " later=x"))(t); back != info {
		t.Errorf("%+v", back)
	}
	for _, bad := range []string{
		"", "XX", "RC", "RC qpn=1 psn=2 gid=::1", "RC qpn=0x1000000 psn=2 gid=::1 mtu=1024",
		"RC qpn=1 psn=-2 gid=::1 mtu=1024",
		"RC qpn=1 psn=2 gid=x mtu=1024", "RC qpn=1 psn=2 gid=::1 mtu=1000", "RC qpn=1 psn=2 gid=::1 mtu=1024 lid=65536",
		"RC qpn= psn=2 gid=::1 mtu=1024", "RC qpn=1 psn=2 gid=::1 mtu=18446744073709551615",
		"RC qpn=1 psn=2 gid=::1 mtu=1024 rd_atomic=256",
	} {
		_, err := ParseQPInfo(bad)
		refused(t, err, EINVAL)
	}
}

func FuzzParseQPInfo(f *testing.F) {
	f.Add("RC qpn=0x000011 psn=0xabcdef gid=::ffff:192.0.2.1 lid=7 mtu=4096 rd_atomic=16 qkey=0x1")
	f.Fuzz(func(t *testing.T, text string) {
		info, err := ParseQPInfo(text)
		if err != nil {
			return
		}
		if back, err := ParseQPInfo(info.String()); err != nil || back != info {
			t.Errorf("%q parsed as %+v, again as %+v, %v", text, info, back, err)
		}
	})
}
