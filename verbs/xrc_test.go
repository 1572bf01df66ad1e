package verbs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// XRC of the fake driver: a domain per call, and one QP that can be opened.

func (c *fakeContext) OpenXRCD(fd, flags int) (DriverXRCD, error) {
	return &fakeXRCD{fakeContext: c, fd: fd, flags: flags}, c.call("OpenXRCD")
}

type fakeXRCD struct {
	*fakeContext
	fd, flags int
	shared    []DriverQPEvents // handles of the QP
	state     QPState          // of the QP
}

func (d *fakeXRCD) CreateQP(init *QPInitAttr, up DriverQPEvents) (DriverQP, error) {
	d.shared = append(d.shared, up)
	return (&fakePD{d.fakeContext}).CreateQP(init, up)
}

func (d *fakeXRCD) OpenQP(qpn uint32, up DriverQPEvents) (DriverQP, error) {
	d.shared = append(d.shared, up)
	return &fakeQP{fakeContext: d.fakeContext, up: up, qpn: qpn, attr: QPAttr{QPState: d.state, PortNum: 1}},
		d.call("OpenQP")
}

func (d *fakeXRCD) Close() error { return d.call("CloseXRCD") }

func newXRCD(t testing.TB, vctx *Context) *XRCD {
	t.Helper()
	return must(vctx.OpenXRCD(nil))(t)
}

func TestV_XRCD_01_Attributes(t *testing.T) {
	vctx, _ := openFake(t)
	file := must(os.Create(filepath.Join(t.TempDir(), "domain")))(t)
	d := must(vctx.OpenXRCD(&XRCDInitAttr{File: file, OFlags: os.O_CREATE | os.O_EXCL}))(t)
	if drv := d.drv.(*fakeXRCD); drv.fd != int(file.Fd()) || drv.flags != os.O_CREATE|os.O_EXCL || d.Context() != vctx {
		t.Errorf("%+v", drv)
	}
	for _, c := range []struct {
		attr XRCDInitAttr
		why  string
	}{
		{XRCDInitAttr{File: file, OFlags: os.O_CREATE | os.O_RDWR}, "unknown OFlags"},
	} {
		_, err := vctx.OpenXRCD(&c.attr)
		refused(t, err, EINVAL, "open_xrcd", c.why)
	}
	ok(t, file.Close())
	_, err := vctx.OpenXRCD(&XRCDInitAttr{File: file, OFlags: os.O_CREATE})
	refused(t, err, syscall.EBADF, "open_xrcd", "domain")
}

// The driver's error is that of OpenXRCD, with a file and without one, and no domain is left.
func TestXRCDOpenFails(t *testing.T) {
	vctx, drv := openFake(t)
	drv.fail["OpenXRCD"] = EAGAIN
	file := must(os.Create(filepath.Join(t.TempDir(), "domain")))(t)
	for _, attr := range []*XRCDInitAttr{nil, {File: file}} {
		d, err := vctx.OpenXRCD(attr)
		refused(t, err, EAGAIN, "open_xrcd")
		if d != nil {
			t.Errorf("%+v with an error", d)
		}
	}
	ok(t, file.Close())
	ok(t, vctx.Close())
	_, err := vctx.OpenXRCD(nil)
	refused(t, err, EINVAL, "open_xrcd", "closed")
}

func TestV_XRCD_04_WithoutAFile(t *testing.T) {
	vctx, _ := openFake(t)
	_, err := vctx.OpenXRCD(&XRCDInitAttr{})
	refused(t, err, EINVAL, "O_CREATE")
	d := must(vctx.OpenXRCD(&XRCDInitAttr{OFlags: os.O_CREATE}))(t)
	if drv := d.drv.(*fakeXRCD); drv.fd != -1 || drv.flags != os.O_CREATE {
		t.Errorf("%+v", drv)
	}
	if drv := newXRCD(t, vctx).drv.(*fakeXRCD); drv.fd != -1 || drv.flags != os.O_CREATE {
		t.Errorf("nil: %+v", drv)
	}
}

func TestV_XRCD_05_Close(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	d := newXRCD(t, vctx)
	refused(t, vctx.Close(), EBUSY, "1 XRC domain")
	srq := must(pd.CreateSRQ(&SRQInitAttr{Type: SRQTypeXRC, XRCD: d, CQ: cq, Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
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
	_, err = pd.CreateSRQ(&SRQInitAttr{Type: SRQTypeXRC, XRCD: d, CQ: cq, Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}})
	refused(t, err, EINVAL, "closed")
	ok(t, cq.Close())
	ok(t, pd.Close())
	ok(t, vctx.Close())
}

// A device without XRC returns an error.
func TestV_XRCD_DeviceWithout(t *testing.T) {
	vctx, _ := openFake(t)
	vctx.drv = bareContext{requiredContext: vctx.drv}
	_, err := vctx.OpenXRCD(nil)
	refused(t, err, EOPNOTSUPP, "open_xrcd")
}

func TestV_SRQX_01_Values(t *testing.T) {
	values(t, 0, SRQTypeBasic, SRQTypeXRC, SRQTypeTM)
	if s := SRQTypeXRC.String(); s != "XRC" {
		t.Error(s)
	}
}

func TestV_SRQX_03_Create(t *testing.T) {
	vctx, _ := openFake(t)
	pd, d := newPD(t, vctx), newXRCD(t, vctx)
	cq, cqDrv := newCQ(t, vctx, nil)
	init := SRQInitAttr{Context: "mine", Attr: SRQAttr{MaxWR: 5, MaxSGE: 2, SRQLimit: 3}, Type: SRQTypeXRC, XRCD: d,
		CQ: cq}
	srq := must(pd.CreateSRQ(&init))(t)
	drv := srq.drv.(*fakeSRQ)
	if init.Attr != (SRQAttr{MaxWR: 6, MaxSGE: 2}) || drv.attr != init.Attr || drv.pd != pd.drv ||
		drv.init.CQ.drv != cqDrv {
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
	// Without a type the SRQ is BASIC, and XRC fields are ignored.
	srq = must(pd.CreateSRQ(&SRQInitAttr{XRCD: d, CQ: cq, Attr: SRQAttr{MaxWR: 5, MaxSGE: 2}}))(t)
	if drv := srq.drv.(*fakeSRQ); drv.init.XRCD != nil || drv.init.CQ != nil || srq.XRCD() != nil || srq.CQ() != nil {
		t.Errorf("%+v", srq)
	}
	_, err = srq.Num()
	refused(t, err, EINVAL, "get_srq_num", "type XRC")
	ok(t, srq.Close())
	ok(t, d.Close())
	ok(t, cq.Close())
}

func TestX_SRQX_01_MissingFields(t *testing.T) {
	vctx, drv := openFake(t)
	other, _ := openFake(t)
	pd, d := newPD(t, vctx), newXRCD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	otherCQ, _ := newCQ(t, other, nil)
	good := SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}, Type: SRQTypeXRC, XRCD: d, CQ: cq}
	for _, c := range []struct {
		change func(a *SRQInitAttr)
		errno  Errno
		why    string
	}{
		{func(a *SRQInitAttr) { a.XRCD = nil }, EINVAL, "missing XRCD"},
		{func(a *SRQInitAttr) { a.CQ = nil }, EINVAL, "missing CQ"},
		{func(a *SRQInitAttr) { a.Type = 3 }, EINVAL, "unknown SRQ type SRQType(3)"},
		{func(a *SRQInitAttr) { a.Type, a.TMCap.MaxNumTags = SRQTypeTM, 1 }, EOPNOTSUPP, "of type TM"},
		{func(a *SRQInitAttr) { a.CQ = otherCQ }, EINVAL, "another context"},
		{func(a *SRQInitAttr) { a.XRCD = newXRCD(t, other) }, EINVAL, "another context"},
		{func(a *SRQInitAttr) { a.Attr.MaxWR = 0 }, EINVAL, "MaxWR 0"},
		{func(a *SRQInitAttr) { a.Attr.MaxWR = 65 }, EINVAL, "MaxWR 65"},
		{func(a *SRQInitAttr) { a.Attr.MaxSGE = 5 }, EINVAL, "MaxSGE 5"},
	} {
		a := good
		c.change(&a)
		_, err := pd.CreateSRQ(&a)
		refused(t, err, c.errno, "create_srq", c.why)
	}
	_, err := pd.CreateSRQ(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateXRCSRQ"] = ENOMEM
	_, err = pd.CreateSRQ(&good)
	refused(t, err, ENOMEM)
	ok(t, d.Close()) // a failed call leaves no object
	ok(t, cq.Close())
}

// An XRC_SEND QP has a PD and a send queue; attributes of receives are ignored.
func TestV_QP_09_XRCSend(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, cqDrv := newCQ(t, vctx, nil)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	init := QPInitAttr{Type: QPTypeXRCSend, SendCQ: cq, RecvCQ: cq, SRQ: srq,
		Cap: QPCap{MaxSendWR: 2, MaxSendSGE: 1, MaxRecvWR: 1 << 30, MaxRecvSGE: 1 << 30}}
	qp := must(pd.CreateQP(&init))(t)
	drv := qp.drv.(*fakeQP)
	if drv.init.SendCQ.drv != cqDrv || drv.init.RecvCQ != nil || drv.init.SRQ != nil ||
		init.Cap != (QPCap{MaxSendWR: 2, MaxSendSGE: 1}) {
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
	refused(t, err, EINVAL, "CQ is nil")
	ok(t, cq.Close())
}

// An XRC_RECV QP belongs to an XRC domain and has no PD, CQ or queue.
func TestV_QP_09_XRCRecv(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	_, err := pd.CreateQP(&QPInitAttr{Type: QPTypeXRCRecv, SendCQ: cq, RecvCQ: cq})
	refused(t, err, EINVAL, "XRCD.CreateQP")
	d := newXRCD(t, vctx)
	_, err = d.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq})
	refused(t, err, EINVAL, "QP type RC: must be XRC_RECV")
	_, err = d.CreateQP(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateQP"] = ENOMEM
	_, err = d.CreateQP(&QPInitAttr{Type: QPTypeXRCRecv})
	refused(t, err, ENOMEM)
	delete(drv.fail, "CreateQP")

	init := QPInitAttr{Context: 7, Type: QPTypeXRCRecv, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
	qp := must(d.CreateQP(&init))(t)
	if got := qp.drv.(*fakeQP).init; got != (QPInitAttr{Context: 7, Type: QPTypeXRCRecv}) || init.Cap != (QPCap{}) {
		t.Errorf("%+v, %+v", got, init.Cap)
	}
	if qp.PD() != nil || qp.SendCQ() != nil || qp.RecvCQ() != nil || qp.XRCD() != d || qp.QPContext() != 7 ||
		qp.Context() != vctx {
		t.Errorf("%+v", qp)
	}
	ok(t, cq.Close())
	forceState(qp, qp.drv.(*fakeQP), QPSRTS)
	wantPost(t, qp.PostRecv(RecvWR{}), 0, EINVAL, "no receive queue")
	wantPost(t, qp.PostSend(SendWR{Opcode: WRSend}), 0, EINVAL,
		"not possible on a QP of type XRC_RECV, which has no send queue")
	if _, init, err := qp.Query(QPAttrState); err != nil || init.Type != QPTypeXRCRecv {
		t.Error(init, err)
	}
	ok(t, qp.Close())
	ok(t, d.Close())
}

// Only XRC_RECV QPs use the receives of an XRC SRQ.
func TestV_QP_06_XRCSRQIsNotForOtherQPs(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Type: SRQTypeXRC, XRCD: newXRCD(t, vctx), CQ: cq,
		Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	for _, typ := range []QPType{QPTypeRC, QPTypeUD} {
		_, err := pd.CreateQP(&QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq, SRQ: srq})
		refused(t, err, EINVAL, "an SRQ of type XRC")
	}
}

func TestV_QPO_01_V_QPO_02_Open(t *testing.T) {
	vctx, drv := openFake(t)
	d := newXRCD(t, vctx)
	fake := d.drv.(*fakeXRCD)
	fake.state = QPSRTR
	qp := must(vctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Context: "mine", Type: QPTypeXRCRecv}))(t)
	if qp.QPN() != 0x77 || qp.State() != QPSRTR || qp.QPContext() != "mine" || qp.Type() != QPTypeXRCRecv ||
		qp.XRCD() != d {
		t.Errorf("%v in %v, %v", qp.obj(), qp.State(), qp.QPContext())
	}
	refused(t, d.Close(), EBUSY)
	without := must(vctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Type: QPTypeXRCRecv}))(t)
	if without.QPContext() != nil {
		t.Error(without.QPContext())
	}
	// An opened QP follows state changes and receives events.
	fake.shared[0].StateChanged(QPSErr)
	fake.shared[0].Event(EventQPLastWQEReached)
	if qp.State() != QPSErr || without.State() != QPSRTR {
		t.Errorf("states %v and %v", qp.State(), without.State())
	}
	ev := must(vctx.TryGetAsyncEvent())(t)
	if ev.Type != EventQPLastWQEReached || ev.QP != qp {
		t.Errorf("%+v", ev)
	}
	ev.Ack()
	ok(t, qp.Close())
	ok(t, without.Close())
	drv.fail["OpenQP"] = EINVAL
	_, err := vctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Type: QPTypeXRCRecv})
	refused(t, err, EINVAL, "open_qp")
	ok(t, d.Close())
	_, err = vctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Type: QPTypeXRCRecv})
	refused(t, err, EINVAL, "closed")
}

func TestX_QPO_01_NeededFields(t *testing.T) {
	vctx, _ := openFake(t)
	other, _ := openFake(t)
	d := newXRCD(t, vctx)
	for _, c := range []struct {
		attr *QPOpenAttr
		why  string
	}{
		{nil, "the attributes are nil"},
		{&QPOpenAttr{QPNum: 1, Type: QPTypeXRCRecv}, "the XRC domain is nil"},
		{&QPOpenAttr{QPNum: 1, XRCD: d, Type: QPTypeRC}, "QP type RC: must be XRC_RECV"},
		{&QPOpenAttr{QPNum: 1, XRCD: d, Type: QPTypeXRCSend}, "QP type XRC_SEND: must be XRC_RECV"},
		{&QPOpenAttr{QPNum: 1, XRCD: d}, "must be XRC_RECV"},
		{&QPOpenAttr{QPNum: 1 << 24, XRCD: d, Type: QPTypeXRCRecv}, "0 to 0xffffff"},
		{&QPOpenAttr{QPNum: 1, XRCD: newXRCD(t, other), Type: QPTypeXRCRecv}, "another context"},
	} {
		_, err := vctx.OpenQP(c.attr)
		refused(t, err, EINVAL, "open_qp", c.why)
	}
}

// An opened QP has the port that was set through the other one.
func TestX_QPO_01_ModifyThroughAHandle(t *testing.T) {
	vctx, _ := openFake(t)
	d := newXRCD(t, vctx)
	d.drv.(*fakeXRCD).state = QPSInit
	qp := must(vctx.OpenQP(&QPOpenAttr{QPNum: 0x77, XRCD: d, Type: QPTypeXRCRecv}))(t)
	refused(t, qp.Modify(&QPAttr{PKeyIndex: 2}, QPAttrPKeyIndex), EINVAL, "P_Key index 2")
	ok(t, qp.Modify(&QPAttr{PKeyIndex: 1}, QPAttrPKeyIndex))
}

// The two ends of an XRC connection have different types.
func TestV_QPM_07_ConnectXRC(t *testing.T) {
	vctx, _ := openFake(t)
	send, sendDrv := newQP(t, newPD(t, vctx), QPTypeXRCSend)
	recv, recvDrv := newQP(t, newPD(t, vctx), QPTypeXRCRecv)
	toSend, toRecv := must(send.LocalInfo())(t), must(recv.LocalInfo())(t)
	refused(t, send.Connect(toSend, nil), EINVAL, "type is XRC_SEND: must be XRC_RECV")
	ok(t, send.Connect(toRecv, nil))
	ok(t, recv.Connect(toSend, nil))
	if send.State() != QPSRTS || recv.State() != QPSRTS {
		t.Errorf("%v, %v", send.State(), recv.State())
	}
	if sendDrv.attr.SQPSN != toSend.PSN || sendDrv.attr.MaxRdAtomic == 0 ||
		recvDrv.mask != QPAttrState|QPAttrTimeout|QPAttrSQPSN {
		t.Errorf("%+v, %v", sendDrv.attr, recvDrv.mask)
	}
}

// The SRQ number is checked for every operation.
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
