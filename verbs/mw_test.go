package verbs

import (
	"syscall"
	"testing"
)

func TestV_MW_01_AllocAndDealloc(t *testing.T) { // X-MW-01: types
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	for _, typ := range []MWType{MWType1, MWType2} {
		mw := must(pd.AllocMW(typ))(t)
		if mw.Type() != typ || mw.PD() != pd || mw.Context() != vctx || mw.RKey() != mw.drv.(*fakeMW).key {
			t.Errorf("%+v", mw)
		}
		refused(t, pd.Close(), EBUSY, "1 MW")
		drv.fail["DeallocMW"] = syscall.EIO
		refused(t, mw.Close(), syscall.EIO, "dealloc_mw")
		drv.fail["DeallocMW"] = nil
		ok(t, mw.Close())
		refused(t, mw.Close(), EINVAL, "dealloc_mw", "closed")
	}
	for _, typ := range []MWType{0, 3} {
		_, err := pd.AllocMW(typ)
		refused(t, err, EINVAL, "alloc_mw", "TYPE_1 or TYPE_2")
	}
	drv.fail["AllocMW"] = ENOMEM
	_, err := pd.AllocMW(MWType1)
	refused(t, err, ENOMEM, "alloc_mw")
	ok(t, pd.Close())
	_, err = pd.AllocMW(MWType1)
	refused(t, err, EINVAL, "closed")
}

func TestX_DM_01_X_MR_03_FeaturesThatTheDeviceLacks(t *testing.T) { // X-DM-01, X-MR-03
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	dm := must(vctx.AllocDM(AllocDMAttr{Length: 1}))(t)
	pd.drv, vctx.drv = barePD{requiredPD: pd.drv}, bareContext{requiredContext: vctx.drv}
	_, err := pd.AllocMW(MWType1)
	refused(t, err, EOPNOTSUPP, "alloc_mw", "no memory windows")
	_, err = pd.AllocNullMR()
	refused(t, err, EOPNOTSUPP, "alloc_null_mr")
	_, err = pd.RegDMMR(dm, 0, 1, AccessZeroBased)
	refused(t, err, EOPNOTSUPP, "reg_dm_mr")
	_, err = vctx.AllocDM(AllocDMAttr{Length: 1})
	refused(t, err, EOPNOTSUPP, "alloc_dm")
	refused(t, pd.AdviseMR(0, 0, SGE{}), EOPNOTSUPP, "advise_mr")
	attr := must(vctx.QueryDevice())(t)
	if attr != vctx.attr {
		t.Errorf("%+v", attr)
	}
}

func TestIncRKey(t *testing.T) {
	for in, want := range map[uint32]uint32{0x100: 0x101, 0x1fe: 0x1ff, 0x1ff: 0x100, 0xffffffff: 0xffffff00} {
		if got := IncRKey(in); got != want {
			t.Errorf("%#x: %#x, want %#x", in, got, want)
		}
	}
}

// window creates a window of type 1, a region and a QP in RTS.
func window(t *testing.T, typ QPType) (*QP, *fakeQP, *MW, *MWBind) {
	qp, drv := newQPIn(t, typ, QPSRTS)
	mw := must(qp.PD().AllocMW(MWType1))(t)
	mr := must(qp.PD().RegMR(make([]byte, 64), AccessMWBind|AccessLocalWrite))(t)
	return qp, drv, mw, &MWBind{WRID: 9, Flags: SendSignaled,
		Info: MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 64, Access: AccessRemoteRead}}
}

func TestV_MW_04_BindPosts(t *testing.T) {
	qp, drv, mw, bind := window(t, QPTypeRC)
	var posted SendWR
	var info MWBindInfo
	drv.onSend = func(wrs []SendWR) { posted, info = wrs[0], *wrs[0].BindInfo }
	old := mw.RKey()
	ok(t, qp.BindMW(mw, bind))
	if posted.WRID != 9 || posted.Opcode != WRBindMW || posted.Flags != SendSignaled || posted.MW != mw ||
		info != bind.Info {
		t.Errorf("%+v", posted)
	}
	if mw.RKey() != IncRKey(old) || posted.RKey != mw.RKey() { // V-MW-03
		t.Errorf("old key %#x, new key %#x, posted %#x", old, mw.RKey(), posted.RKey)
	}
	mw.SetRKey(old)
	if mw.RKey() != old {
		t.Errorf("restored to %#x", mw.RKey())
	}
	drv.room = 1
	refused(t, qp.BindMW(mw, bind), ENOMEM, "bind_mw")
	if mw.RKey() != old {
		t.Errorf("the post failed, but the key is %#x", mw.RKey())
	}
	drv.room = 0
	ok(t, qp.BindMW(mw, &MWBind{})) // V-MW-02: unbinds
	if info != (MWBindInfo{}) {
		t.Errorf("%+v", info)
	}
}

func TestV_MW_06_BindByTypeAndState(t *testing.T) {
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD} {
		for s := QPSReset; s <= QPSErr; s++ {
			qp, drv, mw, bind := window(t, typ)
			forceState(qp, drv, s)
			switch err := qp.BindMW(mw, bind); {
			case typ == QPTypeUD:
				refused(t, err, EINVAL, "bind_mw", "RC, UC or XRC_SEND")
			case s < QPSRTS:
				refused(t, err, EINVAL, "bind_mw: not possible in "+s.String())
			default:
				ok(t, err)
			}
		}
	}
}

func TestV_MW_07_BindFlags(t *testing.T) {
	for _, typ := range []QPType{QPTypeRC, QPTypeUC} {
		qp, _, mw, bind := window(t, typ)
		for bit := range 6 {
			bind.Flags = 1 << bit
			err := qp.BindMW(mw, bind)
			switch bind.Flags {
			case SendSignaled:
				ok(t, err)
			case SendFence:
				if typ == QPTypeRC {
					ok(t, err)
				} else {
					refused(t, err, EINVAL, "FENCE on QP type UC")
				}
			default:
				refused(t, err, EINVAL, "must be of SIGNALED and FENCE")
			}
		}
	}
}

func TestX_MW_01_V_MW_08_V_MW_09_BindArguments(t *testing.T) { // V-MW-08, V-MW-09
	qp, _, mw, good := window(t, QPTypeRC)
	other := newPD(t, qp.Context())
	type2 := must(qp.PD().AllocMW(MWType2))(t)
	closed := must(qp.PD().AllocMW(MWType1))(t)
	ok(t, closed.Close())
	gone := must(qp.PD().RegMR(make([]byte, 8), AccessMWBind))(t)
	ok(t, gone.Close())
	foreignCtx, _ := openFake(t)
	foreign := must(newPD(t, foreignCtx).AllocMW(MWType1))(t)
	for text, c := range map[string]struct {
		mw     *MW
		change func(*MWBind)
		errno  Errno
	}{
		"without a region":         {mw, func(b *MWBind) { b.Info = MWBindInfo{Addr: 1} }, EINVAL},
		"address 0x0 and length 1": {mw, func(b *MWBind) { b.Info = MWBindInfo{Length: 1} }, EINVAL},
		"belongs to another PD": {mw, func(b *MWBind) { b.Info.MR = must(other.RegMR(make([]byte, 8), 0))(t) },
			syscall.EPERM},
		"access LOCAL_WRITE":         {mw, func(b *MWBind) { b.Info.Access = AccessLocalWrite }, EINVAL},
		"access MW_BIND":             {mw, func(b *MWBind) { b.Info.Access |= AccessMWBind }, EINVAL},
		"type 2 is bound by posting": {type2, func(*MWBind) {}, EINVAL},
		"is nil":                     {nil, func(*MWBind) {}, EINVAL},
		"use of a closed object":     {closed, func(*MWBind) {}, EINVAL},
		"memory region":              {mw, func(b *MWBind) { b.Info.MR = gone }, EINVAL},
		"different contexts":         {foreign, func(*MWBind) {}, EINVAL},
	} {
		bind := *good
		c.change(&bind)
		refused(t, qp.BindMW(c.mw, &bind), c.errno, "bind_mw", text)
	}
	refused(t, qp.BindMW(mw, nil), EINVAL, "is nil")
	all := *good
	all.Info.Access = windowAccess
	ok(t, qp.BindMW(mw, &all))
}

func TestV_WR_15_PostedBinds(t *testing.T) { // V-MW-08, X-MW-01
	qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
	good := goodSend(t, qp, WRBindMW)
	ok(t, qp.PostSend(good))
	if good.MW.RKey() != good.RKey {
		t.Errorf("the window has key %#x, the request %#x", good.MW.RKey(), good.RKey)
	}
	type1 := must(qp.PD().AllocMW(MWType1))(t)
	closed := must(qp.PD().AllocMW(MWType2))(t)
	ok(t, closed.Close())
	for text, change := range map[string]func(*SendWR){
		"MW or BindInfo is nil": func(wr *SendWR) { wr.MW = nil },
		"BindInfo is nil":       func(wr *SendWR) { wr.BindInfo = nil },
		"is of type 1":          func(wr *SendWR) { wr.MW, wr.RKey = type1, type1.RKey() },
		"memory window":         func(wr *SendWR) { wr.MW, wr.RKey = closed, closed.RKey() },
		"upper 24 bits":         func(wr *SendWR) { wr.RKey += 0x100 },
		"LOCAL_INV unbinds":     func(wr *SendWR) { wr.BindInfo = &MWBindInfo{} },
		"access ON_DEMAND": func(wr *SendWR) {
			wr.BindInfo = &MWBindInfo{MR: good.BindInfo.MR,
				Access: AccessOnDemand}
		},
		"INLINE: the opcode must be of":    func(wr *SendWR) { wr.Flags = SendInline },
		"SOLICITED: the opcode must be of": func(wr *SendWR) { wr.Flags = SendSolicited },
	} {
		wr := good
		change(&wr)
		before := good.MW.RKey()
		wantPost(t, qp.PostSend(SendWR{Opcode: WRSend}, wr), 1, EINVAL, "post_send: BIND_MW", text)
		if good.MW.RKey() != before {
			t.Errorf("%s: the key changed", text)
		}
	}
	// Only the windows of requests before the first bad one have new keys.
	drv.sent, drv.room = nil, 1
	second := goodSend(t, qp, WRBindMW)
	good.RKey = IncRKey(good.RKey)
	old := second.MW.RKey()
	wantPost(t, qp.PostSend(good, second), 1, ENOMEM)
	if good.MW.RKey() != good.RKey || second.MW.RKey() != old {
		t.Errorf("keys %#x and %#x", good.MW.RKey(), second.MW.RKey())
	}
}

func TestPostedBindsAllocateNothing(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
	good := goodSend(t, qp, WRBindMW)
	mw, mr := good.MW, good.BindInfo.MR
	drv.sent = make([]uint64, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if qp.PostSend(SendWR{Opcode: WRBindMW, MW: mw, RKey: IncRKey(mw.RKey()),
			BindInfo: &MWBindInfo{MR: mr, Length: 8}}) != nil {
			t.Fatal("PostSend failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
