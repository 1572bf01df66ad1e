package verbs

import (
	"os"
	"syscall"
	"testing"
)

// The fake's XRC: a domain for each call, and one QP that can be opened.

func (c *fakeContext) OpenXRCD(fd, flags int) (XRCDDriver, error) {
	return &fakeXRCD{fakeContext: c, fd: fd, flags: flags}, c.call("OpenXRCD")
}

type fakeXRCD struct {
	*fakeContext
	fd, flags int
	shared    []QPUpcalls // handles of the QP
	state     QPState     // of the QP
}

func (d *fakeXRCD) CreateSRQ(pd PDDriver, cq CQDriver, init *SRQAttr, up SRQUpcalls) (XRCSRQDriver, error) {
	init.MaxWR += init.MaxWR % 2
	return &fakeXRCSRQ{fakeSRQ{fakeContext: d.fakeContext, up: up, attr: *init}, pd, cq}, d.call("CreateXRCSRQ")
}

func (d *fakeXRCD) CreateQP(init *QPDriverInit, up QPUpcalls) (QPDriver, error) {
	d.shared = append(d.shared, up)
	return (&fakePD{d.fakeContext}).CreateQP(init, up)
}

func (d *fakeXRCD) OpenQP(qpn uint32, up QPUpcalls) (QPDriver, error) {
	d.shared = append(d.shared, up)
	return &fakeQP{fakeContext: d.fakeContext, up: up, qpn: qpn, attr: QPAttr{QPState: d.state, PortNum: 1}}, d.call("OpenQP")
}

func (d *fakeXRCD) Close() error { return d.call("CloseXRCD") }

type fakeXRCSRQ struct {
	fakeSRQ
	pd PDDriver
	cq CQDriver
}

func (s *fakeXRCSRQ) SRQN() uint32 { return 0x123456 }

func newXRCD(t testing.TB, ctx *Context) *XRCD {
	t.Helper()
	return must(ctx.OpenXRCD(nil))(t)
}

func TestV_XRCD_01_Attributes(t *testing.T) {
	values(t, 1, XRCDInitFD, XRCDInitOFlags)
	if s := (xrcdInitAll | 4).String(); s != "FD|OFLAGS|0x4" {
		t.Error(s)
	}
	ctx, _ := openFake(t)
	d := must(ctx.OpenXRCD(&XRCDInitAttr{CompMask: xrcdInitAll, FD: 5, OFlags: os.O_CREATE | os.O_EXCL}))(t)
	if drv := d.Driver().(*fakeXRCD); drv.fd != 5 || drv.flags != os.O_CREATE|os.O_EXCL || d.Context() != ctx {
		t.Errorf("%+v", drv)
	}
	for _, c := range []struct {
		attr XRCDInitAttr
		why  string
	}{
		{XRCDInitAttr{FD: 5, OFlags: os.O_CREATE}, "missing FD|OFLAGS"},
		{XRCDInitAttr{CompMask: XRCDInitFD, FD: 5}, "missing OFLAGS"},
		{XRCDInitAttr{CompMask: XRCDInitOFlags, FD: 5}, "missing FD"},
		{XRCDInitAttr{CompMask: xrcdInitAll | 4, FD: 5}, "unknown fields 0x4"},
		{XRCDInitAttr{CompMask: xrcdInitAll, FD: 5, OFlags: os.O_CREATE | os.O_RDWR}, "are not possible"},
		{XRCDInitAttr{CompMask: xrcdInitAll, FD: -2, OFlags: os.O_CREATE}, "FD -2"},
	} {
		_, err := ctx.OpenXRCD(&c.attr)
		refused(t, err, EINVAL, "open_xrcd", c.why)
	}
}

func TestV_XRCD_04_WithoutAFile(t *testing.T) {
	ctx, _ := openFake(t)
	_, err := ctx.OpenXRCD(&XRCDInitAttr{CompMask: xrcdInitAll, FD: -1})
	refused(t, err, EINVAL, "O_CREATE")
	d := must(ctx.OpenXRCD(&XRCDInitAttr{CompMask: xrcdInitAll, FD: -1, OFlags: os.O_CREATE}))(t)
	if drv := d.Driver().(*fakeXRCD); drv.fd != -1 || drv.flags != os.O_CREATE {
		t.Errorf("%+v", drv)
	}
	if drv := newXRCD(t, ctx).Driver().(*fakeXRCD); drv.fd != -1 || drv.flags != os.O_CREATE {
		t.Errorf("nil: %+v", drv)
	}
}

func TestV_XRCD_05_Close(t *testing.T) {
	ctx, drv := openFake(t)
	pd := newPD(t, ctx)
	cq, _ := newCQ(t, ctx, nil)
	d := newXRCD(t, ctx)
	refused(t, ctx.Close(), EBUSY, "1 XRC domain")
	srq := must(ctx.CreateSRQEx(&SRQInitAttrEx{Type: SRQTypeXRC, PD: pd, XRCD: d, CQ: cq, Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	qp := must(d.CreateQP(&QPInitAttr{Type: QPTypeXRCRecv}))(t)
	refused(t, d.Close(), EBUSY, "close_xrcd", "1 QP, 1 SRQ")
	refused(t, cq.Close(), EBUSY, "1 SRQ")
	refused(t, pd.Close(), EBUSY, "1 SRQ")
	ok(t, srq.Close())
	refused(t, d.Close(), EBUSY, "1 QP")
	ok(t, qp.Close())
	drv.fail["CloseXRCD"] = syscall.EIO
	refused(t, d.Close(), syscall.EIO)
	delete(drv.fail, "CloseXRCD")
	ok(t, d.Close())
	refused(t, d.Close(), EINVAL, "closed")
	_, err := d.CreateQP(&QPInitAttr{Type: QPTypeXRCRecv})
	refused(t, err, EINVAL, "closed")
	_, err = ctx.CreateSRQEx(&SRQInitAttrEx{Type: SRQTypeXRC, PD: pd, XRCD: d, CQ: cq, Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}})
	refused(t, err, EINVAL, "closed")
	ok(t, cq.Close())
	ok(t, pd.Close())
	ok(t, ctx.Close())
}

// A device without XRC says so.
func TestV_XRCD_DeviceWithout(t *testing.T) {
	ctx, _ := openFake(t)
	ctx.drv = struct{ ContextDriver }{ctx.drv}
	_, err := ctx.OpenXRCD(nil)
	refused(t, err, EOPNOTSUPP, "open_xrcd")
}

func TestV_SRQX_01_V_SRQX_02_Values(t *testing.T) {
	values(t, 0, SRQTypeBasic, SRQTypeXRC, SRQTypeTM)
	checkBits(t, map[int]SRQInitAttrMask{0: SRQInitType, 1: SRQInitPD, 2: SRQInitXRCD, 3: SRQInitCQ, 4: SRQInitTM})
	if s := SRQTypeXRC.String() + " " + (SRQInitPD | SRQInitTM).String(); s != "XRC PD|TM" {
		t.Error(s)
	}
}

func TestV_SRQX_03_Create(t *testing.T) {
	ctx, _ := openFake(t)
	pd, d := newPD(t, ctx), newXRCD(t, ctx)
	cq, cqDrv := newCQ(t, ctx, nil)
	for _, mask := range []SRQInitAttrMask{0, SRQInitType | SRQInitPD | SRQInitXRCD | SRQInitCQ} {
		init := SRQInitAttrEx{Context: "mine", Attr: SRQAttr{MaxWR: 5, MaxSGE: 2, SRQLimit: 3}, CompMask: mask, Type: SRQTypeXRC, PD: pd, XRCD: d, CQ: cq}
		srq := must(ctx.CreateSRQEx(&init))(t)
		drv := srq.Driver().(*fakeXRCSRQ)
		if init.Attr != (SRQAttr{MaxWR: 6, MaxSGE: 2}) || drv.attr != init.Attr || drv.pd != pd.drv || drv.cq != cqDrv {
			t.Errorf("%+v, driver %+v", init.Attr, drv)
		}
		num, err := srq.Num()
		if err != nil || num != 0x123456 || srq.SRQContext() != "mine" || srq.XRCD() != d || srq.CQ() != cq || srq.PD() != pd {
			t.Errorf("%#x, %v, %+v", num, err, srq)
		}
		ok(t, srq.PostRecv(RecvWR{WRID: 7}))
		ok(t, srq.Close())
		_, err = srq.Num()
		refused(t, err, EINVAL, "closed")
	}
	// Without TYPE it is BASIC, whatever else is there.
	srq := must(ctx.CreateSRQEx(&SRQInitAttrEx{CompMask: SRQInitPD, Type: SRQTypeXRC, PD: pd, XRCD: d, CQ: cq, Attr: SRQAttr{MaxWR: 5, MaxSGE: 2}}))(t)
	if _, basic := srq.Driver().(*fakeSRQ); !basic || srq.XRCD() != nil || srq.CQ() != nil {
		t.Errorf("%+v", srq)
	}
	_, err := srq.Num()
	refused(t, err, EINVAL, "get_srq_num", "type XRC")
	ok(t, srq.Close())
	ok(t, d.Close())
	ok(t, cq.Close())
}

func TestX_SRQX_01_MissingFields(t *testing.T) {
	ctx, drv := openFake(t)
	other, _ := openFake(t)
	pd, d := newPD(t, ctx), newXRCD(t, ctx)
	cq, _ := newCQ(t, ctx, nil)
	otherCQ, _ := newCQ(t, other, nil)
	good := SRQInitAttrEx{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}, Type: SRQTypeXRC, PD: pd, XRCD: d, CQ: cq}
	for _, c := range []struct {
		change func(a *SRQInitAttrEx)
		errno  Errno
		why    string
	}{
		{func(a *SRQInitAttrEx) { a.PD = nil }, EINVAL, "missing PD"},
		{func(a *SRQInitAttrEx) { a.XRCD = nil }, EINVAL, "missing XRCD"},
		{func(a *SRQInitAttrEx) { a.CQ = nil }, EINVAL, "missing CQ"},
		{func(a *SRQInitAttrEx) { a.Type, a.PD = SRQTypeBasic, nil }, EINVAL, "missing PD"},
		{func(a *SRQInitAttrEx) { a.CompMask = SRQInitType | SRQInitPD | SRQInitXRCD }, EINVAL, "missing CQ"},
		{func(a *SRQInitAttrEx) { a.CompMask, a.CQ = SRQInitType|SRQInitPD|SRQInitXRCD|SRQInitCQ, nil }, EINVAL, "is nil"},
		{func(a *SRQInitAttrEx) { a.CompMask = SRQInitPD | 1<<5 }, EINVAL, "unknown fields 0x20"},
		{func(a *SRQInitAttrEx) { a.Type = 3 }, EINVAL, "SRQType(3) is not"},
		{func(a *SRQInitAttrEx) { a.Type = SRQTypeTM }, EINVAL, "missing TM"},
		{func(a *SRQInitAttrEx) { a.Type, a.TMCap.MaxNumTags = SRQTypeTM, 1 }, EOPNOTSUPP, "of type TM"},
		{func(a *SRQInitAttrEx) { a.CQ = otherCQ }, EINVAL, "another context"},
		{func(a *SRQInitAttrEx) { a.PD = newPD(t, other) }, EINVAL, "another context"},
		{func(a *SRQInitAttrEx) { a.XRCD = newXRCD(t, other) }, EINVAL, "another context"},
		{func(a *SRQInitAttrEx) { a.Attr.MaxWR = 0 }, EINVAL, "MaxWR 0"},
		{func(a *SRQInitAttrEx) { a.Attr.MaxWR = 65 }, EINVAL, "MaxWR 65"},
		{func(a *SRQInitAttrEx) { a.Attr.MaxSGE = 5 }, EINVAL, "MaxSGE 5"},
	} {
		a := good
		c.change(&a)
		_, err := ctx.CreateSRQEx(&a)
		refused(t, err, c.errno, "create_srq_ex", c.why)
	}
	_, err := ctx.CreateSRQEx(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateXRCSRQ"] = ENOMEM
	_, err = ctx.CreateSRQEx(&good)
	refused(t, err, ENOMEM)
	ok(t, d.Close()) // nothing was left behind
	ok(t, cq.Close())
}

// An XRC_SEND QP has a PD and a send queue; what receives would need is ignored.
func TestV_QP_09_XRCSend(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	cq, cqDrv := newCQ(t, ctx, nil)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	init := QPInitAttr{Type: QPTypeXRCSend, SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: QPCap{MaxSendWR: 2, MaxSendSGE: 1, MaxRecvWR: 1 << 30, MaxRecvSGE: 1 << 30}}
	qp := must(pd.CreateQP(&init))(t)
	drv := qp.Driver().(*fakeQP)
	if drv.init.SendCQ != cqDrv || drv.init.RecvCQ != nil || drv.init.SRQ != nil || init.Cap != (QPCap{MaxSendWR: 2, MaxSendSGE: 1}) {
		t.Errorf("%+v, %+v", drv.init, init.Cap)
	}
	if qp.RecvCQ() != nil || qp.SRQ() != nil || qp.XRCD() != nil || qp.PD() != pd {
		t.Errorf("%+v", qp)
	}
	ok(t, srq.Close())
	forceState(qp, drv, QPSRTS)
	wantPost(t, qp.PostRecv(RecvWR{}), 0, EINVAL, "no receive queue")
	ok(t, qp.Close())
	_, err := pd.CreateQP(&QPInitAttr{Type: QPTypeXRCSend, RecvCQ: cq})
	refused(t, err, EINVAL, "needs a CQ")
	ok(t, cq.Close())
}

// An XRC_RECV QP belongs to an XRC domain and has nothing else.
func TestV_QP_09_XRCRecv(t *testing.T) {
	ctx, drv := openFake(t)
	pd := newPD(t, ctx)
	cq, _ := newCQ(t, ctx, nil)
	_, err := pd.CreateQP(&QPInitAttr{Type: QPTypeXRCRecv, SendCQ: cq, RecvCQ: cq})
	refused(t, err, EINVAL, "XRCD.CreateQP")
	d := newXRCD(t, ctx)
	_, err = d.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq})
	refused(t, err, EINVAL, "RC QPs belong to a PD")
	_, err = d.CreateQP(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateQP"] = ENOMEM
	_, err = d.CreateQP(&QPInitAttr{Type: QPTypeXRCRecv})
	refused(t, err, ENOMEM)
	delete(drv.fail, "CreateQP")

	init := QPInitAttr{Context: 7, Type: QPTypeXRCRecv, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
	qp := must(d.CreateQP(&init))(t)
	if got := qp.Driver().(*fakeQP).init; got != (QPDriverInit{Type: QPTypeXRCRecv}) || init.Cap != (QPCap{}) {
		t.Errorf("%+v, %+v", got, init.Cap)
	}
	if qp.PD() != nil || qp.SendCQ() != nil || qp.RecvCQ() != nil || qp.XRCD() != d || qp.QPContext() != 7 || qp.Context() != ctx {
		t.Errorf("%+v", qp)
	}
	ok(t, cq.Close())
	forceState(qp, qp.Driver().(*fakeQP), QPSRTS)
	wantPost(t, qp.PostRecv(RecvWR{}), 0, EINVAL, "no receive queue")
	wantPost(t, qp.PostSend(SendWR{Opcode: WRSend}), 0, EINVAL, "not possible on a QP of type XRC_RECV, which has no send queue")
	if _, init, err := qp.Query(QPAttrState); err != nil || init.Type != QPTypeXRCRecv {
		t.Error(init, err)
	}
	ok(t, qp.Close())
	ok(t, d.Close())
}

// What XRC_RECV QPs receive has SRQs of its own; no other QP takes from them.
func TestV_QP_06_XRCSRQIsNotForOtherQPs(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	cq, _ := newCQ(t, ctx, nil)
	srq := must(ctx.CreateSRQEx(&SRQInitAttrEx{Type: SRQTypeXRC, PD: pd, XRCD: newXRCD(t, ctx), CQ: cq, Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	for _, typ := range []QPType{QPTypeRC, QPTypeUD} {
		_, err := pd.CreateQP(&QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq, SRQ: srq})
		refused(t, err, EINVAL, "an SRQ of type XRC")
	}
}

func TestV_QPO_01_V_QPO_02_Open(t *testing.T) {
	checkBits(t, map[int]QPOpenAttrMask{0: QPOpenNum, 1: QPOpenXRCD, 2: QPOpenContext, 3: QPOpenType})
	if s := qpOpenAll.String(); s != "NUM|XRCD|CONTEXT|TYPE" {
		t.Error(s)
	}
	ctx, drv := openFake(t)
	d := newXRCD(t, ctx)
	fake := d.Driver().(*fakeXRCD)
	fake.state = QPSRTR
	qp := must(ctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Context: "mine", Type: QPTypeXRCRecv}))(t)
	if qp.QPN() != 0x77 || qp.State() != QPSRTR || qp.QPContext() != "mine" || qp.Type() != QPTypeXRCRecv || qp.XRCD() != d {
		t.Errorf("%v in %v, %v", qp.obj(), qp.State(), qp.QPContext())
	}
	refused(t, d.Close(), EBUSY)
	without := must(ctx.OpenQP(&QPOpenAttr{CompMask: QPOpenNum | QPOpenXRCD | QPOpenType, QPNum: 0x77, XRCD: d, Context: "mine", Type: QPTypeXRCRecv}))(t)
	if without.QPContext() != nil {
		t.Error("a field counts that the mask does not name")
	}
	// A handle hears of moves and events.
	fake.shared[0].StateChanged(QPSErr)
	fake.shared[0].Event(EventQPLastWQEReached)
	if qp.State() != QPSErr || without.State() != QPSRTR {
		t.Errorf("states %v and %v", qp.State(), without.State())
	}
	ev := must(ctx.TryGetAsyncEvent())(t)
	if ev.Type != EventQPLastWQEReached || ev.QP != qp {
		t.Errorf("%+v", ev)
	}
	ev.Ack()
	ok(t, qp.Close())
	ok(t, without.Close())
	drv.fail["OpenQP"] = EINVAL
	_, err := ctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Type: QPTypeXRCRecv})
	refused(t, err, EINVAL, "open_qp")
	ok(t, d.Close())
	_, err = ctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Type: QPTypeXRCRecv})
	refused(t, err, EINVAL, "closed")
}

func TestX_QPO_01_NeededFields(t *testing.T) {
	ctx, _ := openFake(t)
	other, _ := openFake(t)
	d := newXRCD(t, ctx)
	for _, c := range []struct {
		attr *QPOpenAttr
		why  string
	}{
		{nil, "no attributes"},
		{&QPOpenAttr{QPNum: 1, Type: QPTypeXRCRecv}, "no XRC domain"},
		{&QPOpenAttr{QPNum: 1, XRCD: d, Type: QPTypeRC}, "RC QPs cannot be shared"},
		{&QPOpenAttr{QPNum: 1, XRCD: d, Type: QPTypeXRCSend}, "XRC_SEND QPs cannot be shared"},
		{&QPOpenAttr{QPNum: 1, XRCD: d}, "cannot be shared"},
		{&QPOpenAttr{QPNum: 1 << 24, XRCD: d, Type: QPTypeXRCRecv}, "24 bits"},
		{&QPOpenAttr{CompMask: QPOpenXRCD | QPOpenType, QPNum: 1, XRCD: d, Type: QPTypeXRCRecv}, "missing NUM"},
		{&QPOpenAttr{CompMask: QPOpenNum | QPOpenType, QPNum: 1, XRCD: d, Type: QPTypeXRCRecv}, "missing XRCD"},
		{&QPOpenAttr{CompMask: QPOpenNum | QPOpenXRCD, QPNum: 1, XRCD: d, Type: QPTypeXRCRecv}, "missing TYPE"},
		{&QPOpenAttr{CompMask: qpOpenAll | 1<<4, QPNum: 1, XRCD: d, Type: QPTypeXRCRecv}, "unknown fields 0x10"},
		{&QPOpenAttr{QPNum: 1, XRCD: newXRCD(t, other), Type: QPTypeXRCRecv}, "another context"},
	} {
		_, err := ctx.OpenQP(c.attr)
		refused(t, err, EINVAL, "open_qp", c.why)
	}
}

// A handle knows the port that another one has chosen.
func TestX_QPO_01_ModifyThroughAHandle(t *testing.T) {
	ctx, _ := openFake(t)
	d := newXRCD(t, ctx)
	d.Driver().(*fakeXRCD).state = QPSInit
	qp := must(ctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Type: QPTypeXRCRecv}))(t)
	refused(t, qp.Modify(&QPAttr{PKeyIndex: 2}, QPAttrPKeyIndex), EINVAL, "P_Key index 2")
	ok(t, qp.Modify(&QPAttr{PKeyIndex: 1}, QPAttrPKeyIndex))
}

// Both ends of an XRC connection are of different types.
func TestV_QPM_07_ConnectXRC(t *testing.T) {
	ctx, _ := openFake(t)
	send, sendDrv := newQP(t, newPD(t, ctx), QPTypeXRCSend)
	recv, recvDrv := newQP(t, newPD(t, ctx), QPTypeXRCRecv)
	toSend, toRecv := must(send.LocalInfo())(t), must(recv.LocalInfo())(t)
	refused(t, send.Connect(toSend, nil), EINVAL, "of type XRC_SEND, not XRC_RECV")
	ok(t, send.Connect(toRecv, nil))
	ok(t, recv.Connect(toSend, nil))
	if send.State() != QPSRTS || recv.State() != QPSRTS {
		t.Errorf("%v, %v", send.State(), recv.State())
	}
	if sendDrv.attr.SQPSN != toSend.PSN || sendDrv.attr.MaxRdAtomic == 0 || recvDrv.mask != QPAttrState|QPAttrTimeout|QPAttrSQPSN {
		t.Errorf("%+v, %v", sendDrv.attr, recvDrv.mask)
	}
}

// The SRQ's number is checked whatever the operation.
func TestV_SEND_15_SRQNumber(t *testing.T) {
	qp, _ := newQPIn(t, QPTypeXRCSend, QPSRTS)
	for op := WRRDMAWrite; op <= WRSendWithInv; op++ {
		if op == WRBindMW || op == WRLocalInv {
			continue
		}
		wr := SendWR{Opcode: op, SGList: []SGE{{Length: 8}}, RemoteSRQN: 0xffffff}
		ok(t, qp.PostSend(wr))
		wr.RemoteSRQN++
		wantPost(t, qp.PostSend(wr), 0, EINVAL, "SRQ number 0x1000000")
	}
}
