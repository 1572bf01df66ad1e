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
	checkBits(t, map[int]WQInitAttrMask{0: WQInitFlags})
	checkBits(t, map[int]WQAttrMask{0: WQAttrState, 1: WQAttrCurrState, 2: WQAttrFlags})
}

func TestV_QPX_06_V_QPX_07_Bits(t *testing.T) {
	checkBits(t, map[int]RxHashFunction{0: RxHashToeplitz})
	checkBits(t, map[int]RxHashFields{
		0: RxHashSrcIPv4, 1: RxHashDstIPv4, 2: RxHashSrcIPv6, 3: RxHashDstIPv6, 4: RxHashSrcPortTCP, 5: RxHashDstPortTCP, 6: RxHashSrcPortUDP,
		7: RxHashDstPortUDP, 8: RxHashIPsecSPI, 31: RxHashInner,
	})
}

func TestV_WQ_01_V_WQ_05_CreateWQ(t *testing.T) {
	ctx, drv := openFake(t)
	other, _ := openFake(t)
	pd := newPD(t, ctx)
	cq, cqDrv := newCQ(t, ctx, nil)
	foreign, _ := newCQ(t, other, nil)
	good := WQInitAttr{Context: 7, MaxWR: 127, MaxSGE: 8, PD: pd, CQ: cq, CreateFlags: WQScatterFCS}
	init := good
	wq := must(ctx.CreateWQ(&init))(t)
	if d := wq.Driver().(*fakeWQ).init; d.CQ != CQDriver(cqDrv) || d.Flags != WQScatterFCS || d.MaxWR != 127 || d.MaxSGE != 8 {
		t.Errorf("%+v", d)
	}
	if init.MaxWR != 128 || wq.WQN() != 5 || wq.PD() != pd || wq.CQ() != cq || wq.Context() != ctx || wq.WQContext() != 7 || wq.Type() != WQTypeRQ {
		t.Errorf("%+v", init)
	}
	refused(t, pd.Close(), EBUSY, "1 WQ")
	refused(t, cq.Close(), EBUSY, "1 WQ")
	init = good
	init.CompMask, init.CreateFlags = 0, 0
	ok(t, must(ctx.CreateWQ(&init))(t).Close())
	drv.calls = nil
	for _, c := range []struct {
		change func(*WQInitAttr)
		part   string
	}{
		{func(i *WQInitAttr) { i.CompMask = 2 }, "unknown fields 0x2"},
		{func(i *WQInitAttr) { i.Type = 1 }, "WQType(1)"},
		{func(i *WQInitAttr) { i.PD = nil }, "PD"},
		{func(i *WQInitAttr) { i.PD = newPD(t, other) }, "PD"},
		{func(i *WQInitAttr) { i.CQ = nil }, "CQ"},
		{func(i *WQInitAttr) { i.CQ = foreign }, "CQ"},
		{func(i *WQInitAttr) { i.MaxWR = 0 }, "MaxWR 0 is not possible; 1 to 128 are"},
		{func(i *WQInitAttr) { i.MaxWR = 129 }, "MaxWR 129"},
		{func(i *WQInitAttr) { i.MaxSGE = 0 }, "MaxSGE 0 is not possible; 1 to 8 are"},
		{func(i *WQInitAttr) { i.MaxSGE = 9 }, "MaxSGE 9"},
		{func(i *WQInitAttr) { i.CreateFlags = 16 }, "unknown flags 0x10"},
	} {
		init := good
		c.change(&init)
		_, err := ctx.CreateWQ(&init)
		refused(t, err, EINVAL, "create_wq", c.part)
	}
	_, err := ctx.CreateWQ(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateWQ"] = ENOMEM
	_, err = ctx.CreateWQ(&good)
	refused(t, err, ENOMEM)
	ok(t, wq.Close())
	refused(t, wq.Close(), EINVAL, "closed")
	refused(t, wq.PostRecv(RecvWR{}), EINVAL, "closed")
	refused(t, wq.Modify(&WQAttr{}), EINVAL, "closed")
	ok(t, cq.Close())
	ok(t, pd.Close())
}

func TestX_WQ_01_Transitions(t *testing.T) {
	ctx, _ := openFake(t)
	wq, drv := newWQ(t, ctx)
	good := map[[2]WQState]bool{
		{WQSReset, WQSReady}: true, {WQSReset, WQSErr}: true, {WQSReady, WQSErr}: true, {WQSErr, WQSErr}: true, {WQSErr, WQSReset}: true,
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
					t.Errorf("a refused %v->%v moves it to %v", from, to, wq.State())
				}
			}
		}
	}
	drv.state = WQSReady
	ok(t, wq.Modify(&WQAttr{AttrMask: WQAttrFlags, Flags: WQCVLANStripping, FlagsMask: WQCVLANStripping}))
	if drv.flags != WQCVLANStripping || drv.mask != WQCVLANStripping || drv.state != WQSReady {
		t.Errorf("%+v", drv)
	}
	refused(t, wq.Modify(&WQAttr{AttrMask: WQAttrFlags, FlagsMask: WQScatterFCS}), EOPNOTSUPP, "SCATTER_FCS cannot be changed")
	refused(t, wq.Modify(&WQAttr{AttrMask: WQAttrFlags, FlagsMask: 16}), EINVAL, "unknown flags")
	refused(t, wq.Modify(&WQAttr{AttrMask: 8}), EINVAL, "unknown attributes")
	refused(t, wq.Modify(nil), EINVAL)
	drv.fail["ModifyWQ"] = EINVAL
	refused(t, wq.Modify(&WQAttr{AttrMask: WQAttrState, State: WQSErr}), EINVAL)
}

func TestV_WQ_03_PostRecv(t *testing.T) {
	ctx, _ := openFake(t)
	wq, drv := newWQ(t, ctx)
	wantPost(t, wq.PostRecv(RecvWR{WRID: 1}, RecvWR{WRID: 2, SGList: make([]SGE, 3)}), 1, EINVAL, "post_wq_recv", "3 SGEs are too many; the queue was made for 2")
	wantPost(t, wq.PostRecv(RecvWR{WRID: 3, SGList: make([]SGE, 2)}, RecvWR{WRID: 4}), 1, ENOMEM)
	if len(drv.received) != 2 || drv.received[1] != 3 {
		t.Error(drv.received)
	}
}

func TestD_48_DestroyWQWaitsForItsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _ := openFake(t)
		wq, drv := newWQ(t, ctx)
		drv.up.Event(EventWQFatal)
		ev := must(ctx.TryGetAsyncEvent())(t)
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
			t.Error("not closed although all is acknowledged")
		}
	})
}

func TestV_RWQ_02_V_RWQ_03_X_RWQ_01_IndirectionTables(t *testing.T) {
	ctx, drv := openFake(t)
	other, _ := openFake(t)
	wq, _ := newWQ(t, ctx)
	foreign, _ := newWQ(t, other)
	table := func(log uint32, wqs ...*WQ) (*RWQIndTable, error) {
		return ctx.CreateRWQIndTable(&RWQIndTableInitAttr{LogIndTblSize: log, IndTbl: wqs})
	}
	eight := []*WQ{wq, wq, wq, wq, wq, wq, wq, wq}
	for log := uint32(0); log <= 3; log++ {
		tab := must(table(log, eight[:1<<log]...))(t)
		if tab.Num() != 6 || tab.Context() != ctx || tab.Driver().(*fakeIndTable).n != 1<<log {
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
		{4, append(eight, eight...)}, {31, nil}, {32, nil}, {1 << 31, nil}, {1, eight[:1]}, {1, eight[:3]}, {0, nil}, {1, []*WQ{wq, nil}}, {1, []*WQ{wq, foreign}},
	} {
		_, err := table(c.log, c.wqs...)
		refused(t, err, EINVAL, "create_rwq_ind_table")
	}
	_, err := ctx.CreateRWQIndTable(nil)
	refused(t, err, EINVAL)
	_, err = ctx.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: eight[:1], CompMask: 1})
	refused(t, err, EINVAL, "unknown attributes")
	drv.fail["CreateRWQIndTable"] = ENOMEM
	_, err = table(0, wq)
	refused(t, err, ENOMEM)
	ok(t, wq.Close())
	delete(drv.fail, "CreateRWQIndTable")
	_, err = table(0, wq)
	refused(t, err, EINVAL, "closed")
}

func TestV_QPX_06_X_QPX_01_RSSAttributes(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	wq, _ := newWQ(t, ctx)
	cq, _ := newCQ(t, ctx, nil)
	table := must(ctx.CreateRWQIndTable(&RWQIndTableInitAttr{LogIndTblSize: 1, IndTbl: []*WQ{wq, wq}}))(t)
	one := must(ctx.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{wq}}))(t)
	other, _ := openFake(t)
	otherWQ, _ := newWQ(t, other)
	foreign := must(other.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{otherWQ}}))(t)
	good := func() *QPInitAttrEx {
		return &QPInitAttrEx{
			QPInitAttr: QPInitAttr{Type: QPTypeRawPacket}, RWQIndTbl: table,
			RxHashConf: &RxHashConf{Function: RxHashToeplitz, Key: make([]byte, 40), Fields: RxHashSrcIPv4 | RxHashDstPortTCP},
		}
	}
	qp := must(pd.CreateQPEx(good()))(t)
	if d := qp.Driver().(*fakeQP).init; d.RWQIndTbl != table.Driver() || d.RxHash.Fields != RxHashSrcIPv4|RxHashDstPortTCP {
		t.Errorf("%+v", d)
	}
	refused(t, table.Close(), EBUSY, "1 QP")
	forceState(qp, qp.Driver().(*fakeQP), QPSRTS)
	wantPost(t, qp.PostRecv(RecvWR{}), 0, EINVAL)
	ok(t, qp.Close())
	for _, fields := range []RxHashFields{
		rxHashIPv4 | rxHashTCP | RxHashInner, rxHashIPv6 | rxHashUDP, RxHashIPsecSPI | rxHashIPv4, RxHashSrcPortUDP,
	} {
		init := good()
		init.RxHashConf.Fields = fields
		ok(t, must(pd.CreateQPEx(init))(t).Close())
	}
	for name, change := range map[string]func(*QPInitAttrEx){
		"no hash":           func(i *QPInitAttrEx) { i.RxHashConf = nil },
		"no table":          func(i *QPInitAttrEx) { i.RWQIndTbl = nil },
		"table masked":      func(i *QPInitAttrEx) { i.CompMask = QPInitRxHash },
		"foreign table":     func(i *QPInitAttrEx) { i.RWQIndTbl = foreign },
		"RC":                func(i *QPInitAttrEx) { i.Type = QPTypeRC },
		"recv CQ":           func(i *QPInitAttrEx) { i.RecvCQ = cq },
		"receives":          func(i *QPInitAttrEx) { i.Cap.MaxRecvWR = 1 },
		"receive SGEs":      func(i *QPInitAttrEx) { i.Cap.MaxRecvSGE = 1 },
		"sends without CQ":  func(i *QPInitAttrEx) { i.Cap.MaxSendWR = 1 },
		"flags of the WQs":  func(i *QPInitAttrEx) { i.CreateFlags = QPCreateScatterFCS },
		"no function":       func(i *QPInitAttrEx) { i.RxHashConf.Function = 0 },
		"other function":    func(i *QPInitAttrEx) { i.RxHashConf.Function = 2 },
		"short key":         func(i *QPInitAttrEx) { i.RxHashConf.Key = make([]byte, 39) },
		"long key":          func(i *QPInitAttrEx) { i.RxHashConf.Key = make([]byte, 41) },
		"unknown field":     func(i *QPInitAttrEx) { i.RxHashConf.Fields = 1 << 9 },
		"IPv4 and IPv6":     func(i *QPInitAttrEx) { i.RxHashConf.Fields = RxHashSrcIPv4 | RxHashDstIPv6 },
		"TCP and UDP":       func(i *QPInitAttrEx) { i.RxHashConf.Fields = RxHashSrcPortTCP | RxHashDstPortUDP },
		"SPI and TCP":       func(i *QPInitAttrEx) { i.RxHashConf.Fields = RxHashIPsecSPI | RxHashDstPortTCP },
		"inner of nothing":  func(i *QPInitAttrEx) { i.RxHashConf.Fields = RxHashInner },
		"nothing to spread": func(i *QPInitAttrEx) { i.RxHashConf.Fields = 0 },
	} {
		init := good()
		change(init)
		if _, err := pd.CreateQPEx(init); err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			refused(t, err, EINVAL, "create_qp_ex")
		}
	}
	init := good()
	init.RWQIndTbl, init.RxHashConf.Fields = one, 0
	ok(t, must(pd.CreateQPEx(init))(t).Close())
	init = good()
	init.SendCQ, init.Cap.MaxSendWR = cq, 4
	ok(t, must(pd.CreateQPEx(init))(t).Close())
	ok(t, table.Close())
}

func TestV_SEND_04_TSORanges(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	cq, _ := newCQ(t, ctx, nil)
	qp := must(pd.CreateQPEx(&QPInitAttrEx{
		QPInitAttr:   QPInitAttr{Type: QPTypeRawPacket, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 8, MaxSendSGE: 2}},
		MaxTSOHeader: 54,
	}))(t)
	forceState(qp, qp.Driver().(*fakeQP), QPSRTS)
	wr := func(hdr int, mss uint16, n uint32) SendWR {
		return SendWR{Opcode: WRTSO, TSO: &TSO{Hdr: make([]byte, hdr), MSS: mss}, SGList: []SGE{{Length: n}}}
	}
	for _, good := range []SendWR{wr(1, 1, 0), wr(54, 65535, 1000)} {
		ok(t, qp.PostSend(good))
	}
	for part, bad := range map[string]SendWR{
		"the headers are missing":                                wr(0, 1, 1),
		"55 bytes of headers are too many; the QP was made for":  wr(55, 1, 1),
		"the segment size MSS is 0":                              wr(54, 0, 1),
		"1001 bytes are too many; 0 to 1000 are possible":        wr(54, 1, 1001),
		"INLINE goes with":                                       {Opcode: WRTSO, Flags: SendInline, TSO: &TSO{Hdr: make([]byte, 1), MSS: 1}},
		"TSO: the headers are missing (EINVAL) [RAW_PACKET QP 0": {Opcode: WRTSO},
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
				refused(t, err, EINVAL, "0 and 10 to 1000 are", []string{"modify_qp_rate_limit", "modify_qp"}[i])
			}
		}
	}
	refused(t, qp.ModifyRateLimit(nil), EINVAL)
	refused(t, qp.ModifyRateLimit(&QPRateLimitAttr{CompMask: 1}), EINVAL)
	for s := QPSReset; s <= QPSErr; s++ {
		forceState(qp, drv, s)
		if err := qp.ModifyRateLimit(&QPRateLimitAttr{RateLimit: 10}); (err == nil) != (s >= QPSRTS && s < QPSErr) {
			t.Errorf("%v: %v", s, err)
		}
	}
	rc, rcDrv := newQPIn(t, QPTypeRC, QPSRTS)
	for s := QPSReset; s <= QPSErr; s++ { // what no state can help is not blamed on the state
		forceState(rc, rcDrv, s)
		refused(t, rc.ModifyRateLimit(&QPRateLimitAttr{RateLimit: 10}), EOPNOTSUPP, "does not limit the rate of RC QPs")
	}
}

// What the driver could not destroy is there as before, and can be closed later.
func TestRawObjectsThatCannotBeDestroyed(t *testing.T) {
	ctx, drv := openSteering(t)
	counters := must(ctx.CreateCounters(&CountersInitAttr{}))(t)
	wq, _ := newWQ(t, ctx)
	table := must(ctx.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{wq}}))(t)
	for _, c := range []struct {
		call   string
		object interface{ Close() error }
		use    func() error
	}{
		{"DestroyCounters", counters, func() error { return counters.AttachPointFlow(&CounterAttachAttr{CounterDesc: CounterPackets}, nil) }},
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
