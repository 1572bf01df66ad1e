package verbs

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestV_WQ_04_V_WQ_05_V_WQ_06_X_WQ_01_Values(t *testing.T) {
	values(t, 0, WQSReset, WQSReady, WQSErr, WQSUnknown)
	texts(t, WQState(0), "RESET", "RDY", "ERR", "UNKNOWN", "WQState(4)")
	texts(t, WQType(0), "RQ", "WQType(1)")
	checkBits(t, map[int]WQFlags{0: WQCVLANStripping, 1: WQScatterFCS, 2: WQDelayDrop, 3: WQPCIWriteEndPadding})
	checkBits(t, map[int]WQAttrMask{0: WQAttrState, 1: WQAttrCurrState, 2: WQAttrFlags})
}

func TestV_QPX_06_V_QPX_07_Bits(t *testing.T) {
	checkBits(t, map[int]RxHashFunction{0: RxHashToeplitz})
	checkBits(t, map[int]RxHashFields{
		0: RxHashSrcIPv4, 1: RxHashDstIPv4, 2: RxHashSrcIPv6, 3: RxHashDstIPv6, 4: RxHashSrcPortTCP, 5: RxHashDstPortTCP,
		6: RxHashSrcPortUDP,
		7: RxHashDstPortUDP, 8: RxHashIPsecSPI, 31: RxHashInner,
	})
}

func TestV_WQ_01_V_WQ_05_CreateWQ(t *testing.T) {
	vctx, drv := openFake(t)
	other, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	foreign, _ := newCQ(t, other, nil)
	good := WQInitAttr{Context: 7, MaxWR: 127, MaxSGE: 8, PD: pd, CQ: cq, CreateFlags: WQScatterFCS}
	init := good
	wq := must(vctx.CreateWQ(&init))(t)
	if d := wq.drv.(*fakeWQ).init; d.CQ != cq || d.CreateFlags != WQScatterFCS || d.MaxWR != 127 || d.MaxSGE != 8 {
		t.Errorf("%+v", d)
	}
	if init.MaxWR != 128 || wq.WQN() != 5 || wq.PD() != pd || wq.CQ() != cq || wq.Context() != vctx ||
		wq.WQContext() != 7 || wq.Type() != WQTypeRQ {
		t.Errorf("%+v", init)
	}
	refused(t, pd.Close(), EBUSY, "1 WQ")
	refused(t, cq.Close(), EBUSY, "1 WQ")
	for _, n := range []uint32{1, 8} {
		init = good
		init.CreateFlags, init.MaxWR, init.MaxSGE = 0, n, n
		ok(t, must(vctx.CreateWQ(&init))(t).Close())
	}
	drv.calls = nil
	for _, c := range []struct {
		change func(*WQInitAttr)
		part   string
	}{
		{func(i *WQInitAttr) { i.Type = 1 }, "WQType(1)"},
		{func(i *WQInitAttr) { i.PD = nil }, "PD"},
		{func(i *WQInitAttr) { i.PD = newPD(t, other) }, "PD"},
		{func(i *WQInitAttr) { i.CQ = nil }, "CQ"},
		{func(i *WQInitAttr) { i.CQ = foreign }, "CQ"},
		{func(i *WQInitAttr) { i.MaxWR = 0 }, "MaxWR 0: must be 1 to 128"},
		{func(i *WQInitAttr) { i.MaxWR = 129 }, "MaxWR 129"},
		{func(i *WQInitAttr) { i.MaxSGE = 0 }, "MaxSGE 0: must be 1 to 8"},
		{func(i *WQInitAttr) { i.MaxSGE = 9 }, "MaxSGE 9"},
		{func(i *WQInitAttr) { i.CreateFlags = 16 }, "unknown flags 0x10"},
	} {
		init := good
		c.change(&init)
		_, err := vctx.CreateWQ(&init)
		refused(t, err, EINVAL, "create_wq", c.part)
	}
	_, err := vctx.CreateWQ(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateWQ"] = ENOMEM
	_, err = vctx.CreateWQ(&good)
	refused(t, err, ENOMEM)
	ok(t, wq.Close())
	refused(t, wq.Close(), EINVAL, "closed")
	refused(t, wq.PostRecv(RecvWR{}), EINVAL, "closed")
	refused(t, wq.Modify(&WQAttr{}), EINVAL, "closed")
	ok(t, cq.Close())
	ok(t, pd.Close())
}

func TestX_WQ_01_Transitions(t *testing.T) {
	vctx, _ := openFake(t)
	wq, drv := newWQ(t, vctx)
	good := map[[2]WQState]bool{
		{WQSReset, WQSReady}: true, {WQSReset, WQSErr}: true, {WQSReady, WQSErr}: true, {WQSErr, WQSErr}: true, {WQSErr,
			WQSReset}: true,
	}
	for from := WQSReset; from <= WQSErr; from++ {
		for to := WQSReset; to <= WQSUnknown+1; to++ {
			for cur := WQSReset; cur <= WQSUnknown; cur++ {
				drv.state = from
				err := wq.Modify(&WQAttr{AttrMask: WQAttrState | WQAttrCurrState, State: to, CurrState: cur})
				if good[[2]WQState{from, to}] && cur == from {
					ok(t, err)
					if wq.State() != to {
						t.Errorf("%v->%v: %v", from, to, wq.State())
					}
					continue
				}
				refused(t, err, EINVAL, "modify_wq")
				if wq.State() != from {
					t.Errorf("a refused %v->%v moved the WQ to %v", from, to, wq.State())
				}
			}
		}
	}
	drv.state = WQSReady
	ok(t, wq.Modify(&WQAttr{AttrMask: WQAttrFlags, Flags: WQCVLANStripping, FlagsMask: WQCVLANStripping}))
	if drv.flags != WQCVLANStripping || drv.mask != WQCVLANStripping || drv.state != WQSReady {
		t.Errorf("%+v", drv)
	}
	ok(t, wq.Modify(&WQAttr{Flags: 16, FlagsMask: 16, State: 9, CurrState: 9})) // an empty mask: no field counts
	if drv.flags != 0 || drv.mask != 0 || drv.state != WQSReady {
		t.Errorf("%+v", drv)
	}
	refused(t, wq.Modify(&WQAttr{AttrMask: WQAttrFlags, FlagsMask: WQScatterFCS}), EOPNOTSUPP,
		"SCATTER_FCS cannot be changed")
	refused(t, wq.Modify(&WQAttr{AttrMask: WQAttrFlags, FlagsMask: 16}), EINVAL, "unknown flags")
	refused(t, wq.Modify(&WQAttr{AttrMask: 8}), EINVAL, "unknown attributes")
	refused(t, wq.Modify(nil), EINVAL)
	drv.fail["ModifyWQ"] = EINVAL
	refused(t, wq.Modify(&WQAttr{AttrMask: WQAttrState, State: WQSErr}), EINVAL)
}

func TestV_WQ_03_PostRecv(t *testing.T) {
	vctx, _ := openFake(t)
	wq, drv := newWQ(t, vctx)
	wantPost(t, wq.PostRecv(RecvWR{WRID: 1}, RecvWR{WRID: 2, SGList: make([]SGE, 3)}), 1, EINVAL, "post_wq_recv",
		"3 SGEs: must be 0 to 2")
	wantPost(t, wq.PostRecv(RecvWR{WRID: 3, SGList: make([]SGE, 2)}, RecvWR{WRID: 4}), 1, ENOMEM)
	if len(drv.received) != 2 || drv.received[1] != 3 {
		t.Error(drv.received)
	}
}

func TestD_48_DestroyWQWaitsForItsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vctx, _ := openFake(t)
		wq, drv := newWQ(t, vctx)
		drv.up.Event(EventWQFatal)
		ev := must(vctx.TryGetAsyncEvent())(t)
		if ev.WQ != wq || ev.Type != EventWQFatal || ev.CQ != nil || ev.QP != nil || ev.SRQ != nil {
			t.Errorf("%+v", ev)
		}
		closed := false
		go func() {
			ok(t, wq.Close())
			closed = true
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if closed {
			t.Error("closed with an event that is not acknowledged")
		}
		ev.Ack()
		synctest.Wait()
		if !closed {
			t.Error("not closed although all events are acknowledged")
		}
	})
}

func TestV_RWQ_02_V_RWQ_03_X_RWQ_01_IndirectionTables(t *testing.T) {
	vctx, drv := openFake(t)
	other, _ := openFake(t)
	wq, _ := newWQ(t, vctx)
	foreign, _ := newWQ(t, other)
	table := func(log uint32, wqs ...*WQ) (*RWQIndTable, error) {
		return vctx.CreateRWQIndTable(&RWQIndTableInitAttr{LogIndTblSize: log, IndTbl: wqs})
	}
	eight := []*WQ{wq, wq, wq, wq, wq, wq, wq, wq}
	for log := uint32(0); log <= 3; log++ {
		tab := must(table(log, eight[:1<<log]...))(t)
		if tab.Num() != 6 || tab.Context() != vctx || tab.drv.(*fakeIndTable).n != 1<<log {
			t.Errorf("%+v", tab)
		}
		refused(t, wq.Close(), EBUSY, "indirection table")
		ok(t, tab.Close())
		refused(t, tab.Close(), EINVAL, "closed")
	}
	for _, c := range []struct {
		log uint32
		wqs []*WQ
	}{
		{4, append(eight, eight...)}, {31, nil}, {32, nil}, {1 << 31, nil}, {1, eight[:1]}, {1, eight[:3]}, {0, nil}, {1,
			[]*WQ{wq, nil}}, {1, []*WQ{wq, foreign}},
	} {
		_, err := table(c.log, c.wqs...)
		refused(t, err, EINVAL, "create_rwq_ind_table")
	}
	_, err := vctx.CreateRWQIndTable(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateRWQIndTable"] = ENOMEM
	_, err = table(0, wq)
	refused(t, err, ENOMEM)
	ok(t, wq.Close())
	delete(drv.fail, "CreateRWQIndTable")
	_, err = table(0, wq)
	refused(t, err, EINVAL, "closed")
}

func TestV_QPX_06_X_QPX_01_RSSAttributes(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	wq, _ := newWQ(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	table := must(vctx.CreateRWQIndTable(&RWQIndTableInitAttr{LogIndTblSize: 1, IndTbl: []*WQ{wq, wq}}))(t)
	one := must(vctx.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{wq}}))(t)
	other, _ := openFake(t)
	otherWQ, _ := newWQ(t, other)
	foreign := must(other.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{otherWQ}}))(t)
	good := func() *QPInitAttr {
		return &QPInitAttr{
			Type: QPTypeRawPacket, RWQIndTbl: table,
			RxHashConf: &RxHashConf{Function: RxHashToeplitz, Key: make([]byte, 40), Fields: RxHashSrcIPv4 | RxHashDstPortTCP},
		}
	}
	qp := must(pd.CreateQP(good()))(t)
	if d := qp.drv.(*fakeQP).init; d.RWQIndTbl != table || d.RxHashConf.Fields != RxHashSrcIPv4|RxHashDstPortTCP {
		t.Errorf("%+v", d)
	}
	refused(t, table.Close(), EBUSY, "1 QP")
	forceState(qp, qp.drv.(*fakeQP), QPSRTS)
	wantPost(t, qp.PostRecv(RecvWR{}), 0, EINVAL)
	ok(t, qp.Close())
	for _, fields := range []RxHashFields{
		rxHashIPv4 | rxHashTCP | RxHashInner, rxHashIPv6 | rxHashUDP, RxHashIPsecSPI | rxHashIPv4, RxHashSrcPortUDP,
	} {
		init := good()
		init.RxHashConf.Fields = fields
		ok(t, must(pd.CreateQP(init))(t).Close())
	}
	for name, change := range map[string]func(*QPInitAttr){
		"no hash":           func(i *QPInitAttr) { i.RxHashConf = nil },
		"no table":          func(i *QPInitAttr) { i.RWQIndTbl = nil },
		"foreign table":     func(i *QPInitAttr) { i.RWQIndTbl = foreign },
		"RC":                func(i *QPInitAttr) { i.Type = QPTypeRC },
		"recv CQ":           func(i *QPInitAttr) { i.RecvCQ = cq },
		"receives":          func(i *QPInitAttr) { i.Cap.MaxRecvWR = 1 },
		"receive SGEs":      func(i *QPInitAttr) { i.Cap.MaxRecvSGE = 1 },
		"sends without CQ":  func(i *QPInitAttr) { i.Cap.MaxSendWR = 1 },
		"flags of the WQs":  func(i *QPInitAttr) { i.CreateFlags = QPCreateScatterFCS },
		"no function":       func(i *QPInitAttr) { i.RxHashConf.Function = 0 },
		"other function":    func(i *QPInitAttr) { i.RxHashConf.Function = 2 },
		"short key":         func(i *QPInitAttr) { i.RxHashConf.Key = make([]byte, 39) },
		"long key":          func(i *QPInitAttr) { i.RxHashConf.Key = make([]byte, 41) },
		"unknown field":     func(i *QPInitAttr) { i.RxHashConf.Fields = 1 << 9 },
		"IPv4 and IPv6":     func(i *QPInitAttr) { i.RxHashConf.Fields = RxHashSrcIPv4 | RxHashDstIPv6 },
		"TCP and UDP":       func(i *QPInitAttr) { i.RxHashConf.Fields = RxHashSrcPortTCP | RxHashDstPortUDP },
		"SPI and TCP":       func(i *QPInitAttr) { i.RxHashConf.Fields = RxHashIPsecSPI | RxHashDstPortTCP },
		"inner of nothing":  func(i *QPInitAttr) { i.RxHashConf.Fields = RxHashInner },
		"nothing to spread": func(i *QPInitAttr) { i.RxHashConf.Fields = 0 },
	} {
		init := good()
		change(init)
		if _, err := pd.CreateQP(init); err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			refused(t, err, EINVAL, "create_qp")
		}
	}
	init := good()
	init.RWQIndTbl, init.RxHashConf.Fields = one, 0
	ok(t, must(pd.CreateQP(init))(t).Close())
	init = good()
	init.SendCQ, init.Cap.MaxSendWR = cq, 4
	ok(t, must(pd.CreateQP(init))(t).Close())
	ok(t, table.Close())
}

func TestV_SEND_04_TSORanges(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	qp := must(pd.CreateQP(&QPInitAttr{
		Type: QPTypeRawPacket, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 8, MaxSendSGE: 2},
		MaxTSOHeader: 54,
	}))(t)
	forceState(qp, qp.drv.(*fakeQP), QPSRTS)
	wr := func(hdr int, mss uint16, n uint32) SendWR {
		return SendWR{Opcode: WRTSO, TSO: &TSO{Hdr: make([]byte, hdr), MSS: mss}, SGList: []SGE{{Length: n}}}
	}
	for _, good := range []SendWR{wr(1, 1, 0), wr(54, 65535, 1000)} {
		ok(t, qp.PostSend(good))
	}
	for part, bad := range map[string]SendWR{
		"TSO.Hdr is empty":                     wr(0, 1, 1),
		"55 bytes of headers: must be 1 to 54": wr(55, 1, 1),
		"MSS 0":                                wr(54, 0, 1),
		"1001 bytes: must be 0 to 1000":        wr(54, 1, 1001),
		"INLINE: the opcode must be of": {Opcode: WRTSO, Flags: SendInline,
			TSO: &TSO{Hdr: make([]byte, 1), MSS: 1}},
		"TSO: TSO.Hdr is empty (EINVAL) [RAW_PACKET QP 0": {Opcode: WRTSO},
	} {
		wantPost(t, qp.PostSend(bad), 0, EINVAL, part)
	}
	plain, _ := newQPIn(t, QPTypeRawPacket, QPSRTS)
	wantPost(t, plain.PostSend(wr(1, 1, 1)), 0, EINVAL, "the QP was made without MaxTSOHeader")
}

func TestX_QPM_01_RateLimitRanges(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRawPacket, QPSRTS)
	for rate, good := range map[uint32]bool{0: true, 9: false, 10: true, 1000: true, 1001: false, 1<<32 - 1: false} {
		for i, err := range []error{
			qp.ModifyRateLimit(&QPRateLimitAttr{RateLimit: rate}), qp.Modify(&QPAttr{RateLimit: rate}, QPAttrRateLimit),
		} {
			if good {
				ok(t, err)
			} else {
				refused(t, err, EINVAL, "0 or 10 to 1000", []string{"modify_qp_rate_limit", "modify_qp"}[i])
			}
		}
	}
	refused(t, qp.ModifyRateLimit(nil), EINVAL)
	for s := QPSReset; s <= QPSErr; s++ {
		forceState(qp, drv, s)
		if err := qp.ModifyRateLimit(&QPRateLimitAttr{RateLimit: 10}); (err == nil) != (s >= QPSRTS && s < QPSErr) {
			t.Errorf("%v: %v", s, err)
		}
	}
	rc, rcDrv := newQPIn(t, QPTypeRC, QPSRTS)
	for s := QPSReset; s <= QPSErr; s++ { // the error does not name the state if no state allows the call
		forceState(rc, rcDrv, s)
		refused(t, rc.ModifyRateLimit(&QPRateLimitAttr{RateLimit: 10}), EOPNOTSUPP, "does not limit the rate of RC QPs")
	}
}

// If the driver fails to destroy an object, the object stays valid and can be closed later.
func TestRawObjectsAfterFailedDestroy(t *testing.T) {
	vctx, drv := openSteering(t)
	counters := must(vctx.CreateCounters())(t)
	wq, _ := newWQ(t, vctx)
	table := must(vctx.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{wq}}))(t)
	for _, c := range []struct {
		call   string
		object interface{ Close() error }
		use    func() error
	}{
		{"DestroyCounters", counters,
			func() error { return counters.AttachPointFlow(&CounterAttachAttr{CounterDesc: CounterPackets}, nil) }},
		{"DestroyRWQIndTable", table, func() error { return wq.Close() }}, // still in use
		{"DestroyWQ", wq, func() error { return wq.Modify(&WQAttr{AttrMask: WQAttrState, State: WQSReady}) }},
	} {
		drv.fail[c.call] = syscall.EIO
		refused(t, c.object.Close(), syscall.EIO)
		if err := c.use(); (err == nil) == (c.call == "DestroyRWQIndTable") {
			t.Errorf("after a failed %s: %v", c.call, err)
		}
		drv.fail[c.call] = nil
		ok(t, c.object.Close())
		refused(t, c.object.Close(), EINVAL, "closed")
	}
}
