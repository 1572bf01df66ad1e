package rdmacm

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/verbs"
)

// objects are the QP of an ID, and the objects that belong to it.
type objects struct {
	qp                       *verbs.QP
	srq                      *verbs.SRQ
	sendCQ, recvCQ           *verbs.CQ // made by CreateQP or CreateSRQ; so are the channels
	sendChannel, recvChannel *verbs.CompChannel
	groups                   map[netip.Addr]*group
}

// CreateQP makes the ID's QP (rdma_create_qp, rdma_create_qp_ex) in pd, or in the default PD of the device if pd is
// nil. A connected QP goes to INIT, in which receives can be posted; connecting moves it to RTS. A UD QP goes to RTS
// with UDPQKey. init.SendCQ and RecvCQ may be nil: CreateQP then makes CQs and channels for as many requests as
// init.Cap has, which SendCQ, RecvCQ, SendCQChannel and RecvCQChannel return. init.Type may be 0 for that of the ID.
// init gets the actual sizes and the CQs. A QP on an ID with an SRQ uses the SRQ. An XRC_RECV QP has neither PD nor
// CQs: it belongs to the device's XRC domain, as the SRQ of CreateSRQ does.
//
// EINVAL if the ID is not bound to a device, has a QP, or has other CQs; if pd is of another device, or the type does
// not fit. Otherwise the errors of verbs.PD.CreateQP and verbs.QP.Modify; the ID has no QP then.
func (id *ID) CreateQP(pd *verbs.PD, init *verbs.QPInitAttr) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.createQP("create_qp", pd, init)
}

// createQP is CreateQP.
//
// +checklocks:id.mu
func (id *ID) createQP(op string, pd *verbs.PD, init *verbs.QPInitAttr) error {
	pd, err := id.objectPD(op, pd)
	if err != nil {
		return err
	}
	switch {
	case init == nil:
		return id.fail(op, syscall.EINVAL, "no attributes")
	case id.qp != nil:
		return id.fail(op, syscall.EINVAL, "the ID has a QP already")
	case init.Type != 0 && init.Type != id.qpType:
		return id.fail(op, syscall.EINVAL, "QP type %v: must be %v", init.Type, id.qpType)
	case id.sendCQ != nil && init.SendCQ != nil && init.SendCQ != id.sendCQ, id.recvCQ != nil && init.RecvCQ != nil &&
		init.RecvCQ != id.recvCQ:
		return id.fail(op, syscall.EINVAL, "the ID has another CQ already: must be that CQ or nil")
	}
	want := *init
	want.Type = id.qpType
	create := pd.CreateQP
	if id.qpType == verbs.QPTypeXRCRecv {
		xrcd, err := id.defaultXRCD()
		if err != nil {
			return id.because(op, err)
		}
		create = xrcd.CreateQP
	} else {
		if want.SRQ == nil {
			want.SRQ = id.srq
		}
		if err := id.createCQs(&want); err != nil {
			return id.because(op, err)
		}
	}
	qp, err := create(&want)
	if err == nil {
		if err = id.initQP(qp); err == nil && id.keepAlive > 0 {
			err = qp.SetKeepAlive(id.keepAlive)
		}
		if err != nil {
			_ = qp.Close()
		}
	}
	if err != nil {
		id.destroyCQs()
		return id.because(op, err)
	}
	id.qp, *init = qp, want
	id.watchQP(qp)
	return nil
}

// objectPD is the PD for an object of the ID.
//
// +checklocks:id.mu
func (id *ID) objectPD(op string, pd *verbs.PD) (*verbs.PD, error) {
	switch {
	case id.state == stDestroying:
		return nil, id.errClosed(op)
	case id.state == stRemoved:
		return nil, id.fail(op, syscall.EINVAL, "the device was removed: close the ID")
	case id.dev == nil:
		return nil, id.fail(op, syscall.EINVAL,
			"the ID is not bound to a device: call BindAddr with a local address or ResolveAddr first")
	case pd != nil && pd.Context() != id.dev.ctx:
		return nil, id.fail(op, syscall.EINVAL, "the PD is of another device")
	case pd != nil:
		return pd, nil
	}
	pd, err := id.defaultPD()
	return pd, id.because(op, err)
}

// createCQs makes the CQs that want does not have.
//
// +checklocks:id.mu
func (id *ID) createCQs(want *verbs.QPInitAttr) error {
	var err error
	if want.SendCQ == nil {
		want.SendCQ, err = id.ownCQ(&id.sendCQ, &id.sendChannel, want.Cap.MaxSendWR)
	}
	if err == nil && want.RecvCQ == nil && want.Type != verbs.QPTypeXRCSend {
		want.RecvCQ, err = id.ownCQ(&id.recvCQ, &id.recvChannel, want.Cap.MaxRecvWR)
	}
	if err != nil {
		id.destroyCQs()
		return err
	}
	// A side without requests needs no CQ here, but package verbs requires one.
	if want.SendCQ == nil {
		want.SendCQ = want.RecvCQ
	}
	if want.RecvCQ == nil {
		want.RecvCQ = want.SendCQ
	}
	return nil
}

// createRecvCQ makes the CQ of an SRQ of type XRC.
//
// +checklocks:id.mu
func (id *ID) createRecvCQ(n uint32) error {
	_, err := id.ownCQ(&id.recvCQ, &id.recvChannel, n)
	return err
}

// ownCQ makes a CQ with a channel for n requests, unless there is one or n is 0.
//
// +checklocks:id.mu
func (id *ID) ownCQ(own **verbs.CQ, ch **verbs.CompChannel, n uint32) (_ *verbs.CQ, err error) {
	if *own != nil || n == 0 {
		return *own, nil
	}
	if *ch, err = id.dev.ctx.CreateCompChannel(); err != nil {
		return nil, err
	}
	*own, err = id.dev.ctx.CreateCQ(int(n), &verbs.CQOptions{Channel: *ch, Context: id})
	return *own, err
}

// destroyCQs destroys the CQs and channels that CreateQP or CreateSRQ has made.
//
// +checklocks:id.mu
func (id *ID) destroyCQs() {
	for _, cq := range []**verbs.CQ{&id.sendCQ, &id.recvCQ} {
		if *cq != nil && driver.Destroyed((*cq).Close()) == nil {
			*cq = nil
		}
	}
	for _, ch := range []**verbs.CompChannel{&id.sendChannel, &id.recvChannel} {
		if *ch != nil && (*ch).Close() == nil {
			*ch = nil
		}
	}
}

// initQP moves a new QP to INIT; a UD QP to RTS.
//
// +checklocks:id.mu
func (id *ID) initQP(qp *verbs.QP) error {
	a, mask, err := id.attrInit("create_qp")
	if err != nil {
		return err
	}
	if err := qp.Modify(&a, mask); err != nil || id.qpType != verbs.QPTypeUD {
		return err
	}
	if err := qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTR}, verbs.QPAttrState); err != nil {
		return err
	}
	return qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN)
}

// DestroyQP destroys the ID's QP and the CQs and channels that CreateQP has made for it (rdma_destroy_qp). It leaves
// the ID's multicast groups. EINVAL without a QP (ErrClosed after Close), EBUSY while the program has attached it to a
// group by itself. It blocks until the asynchronous events of the QP, and the events of its channels, are acknowledged.
func (id *ID) DestroyQP() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp == nil && id.state == stDestroying {
		return id.errClosed("destroy_qp")
	}
	if id.qp == nil {
		return id.fail("destroy_qp", syscall.EINVAL, "the ID has no QP")
	}
	id.leaveGroups()
	return id.destroyQP()
}

// destroyQP destroys the QP, if there is one.
//
// +checklocks:id.mu
func (id *ID) destroyQP() error {
	if id.qp == nil {
		return nil
	}
	if err := driver.Destroyed(id.qp.Close()); err != nil && !errors.Is(err, ErrClosed) {
		return id.because("destroy_qp", err)
	}
	id.qp = nil
	id.destroyCQs()
	return nil
}

// receives reports whether the QP is a responder of READs and atomics.
func (id *ID) receives() bool { return id.qpType == verbs.QPTypeRC || id.qpType == verbs.QPTypeXRCRecv }

// sends reports whether the QP is a requester that retries.
func (id *ID) sends() bool { return id.qpType == verbs.QPTypeRC || id.qpType == verbs.QPTypeXRCSend }

// failQP moves the QP of a connection to ERR, which flushes its requests, and ends the waits for completions: none
// follows. why is a clause for the completions. Both the event of the end and Disconnect call it.
//
// +checklocks:id.mu
func (id *ID) failQP(why string) {
	if id.qp == nil || id.qpType == verbs.QPTypeUD {
		return
	}
	if !id.flushed || id.qp.State() != verbs.QPSErr {
		gsi.Ended(id.qp, why)
		_ = id.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)
		id.flushed = true
	}
	id.endWaits()
}

// InitQPAttr fills in the attributes of a QP for the transition to attr.QPState, INIT, RTR or RTS, for programs that
// move their QPs by themselves (rdma_init_qp_attr): after EventConnectRequest or EventConnectResponse. It returns the
// mask for QP.Modify. EINVAL for another state, or if the peer's QP is not known yet.
func (id *ID) InitQPAttr(attr *verbs.QPAttr) (verbs.QPAttrMask, error) {
	const op = "init_qp_attr"
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return 0, id.errClosed(op)
	case attr == nil:
		return 0, id.fail(op, syscall.EINVAL, "the attributes are nil")
	case id.dev == nil || id.state == stRemoved:
		return 0, id.fail(op, syscall.EINVAL, "the ID is not bound to a device")
	}
	if id.dev.kernel && id.kernelHas && id.conn != connNone {
		a, mask, err := id.byKernel.InitQPAttr(id.kernelID, attr.QPState)
		if err == nil {
			*attr = a
		}
		return mask, id.because(op, err)
	}
	ud := id.qpType == verbs.QPTypeUD
	if attr.QPState != verbs.QPSInit && !ud && id.attrs.DestQPN == 0 {
		return 0, id.fail(op, syscall.EINVAL, "the peer's QP is not known yet")
	}
	var mask verbs.QPAttrMask
	switch {
	case attr.QPState == verbs.QPSInit:
		a, mask, err := id.attrInit(op)
		if err == nil {
			*attr = a
		}
		return mask, err
	case attr.QPState == verbs.QPSRTR && ud:
		mask = verbs.QPAttrState
	case attr.QPState == verbs.QPSRTS && ud:
		mask = verbs.QPAttrState | verbs.QPAttrSQPSN
	case attr.QPState == verbs.QPSRTR:
		*attr, mask = id.attrRTR()
	case attr.QPState == verbs.QPSRTS:
		*attr, mask = id.attrRTS()
	default:
		return 0, id.fail(op, syscall.EINVAL, "QP state %v: must be INIT, RTR or RTS", attr.QPState)
	}
	return mask, nil
}

// attrInit is the attributes for INIT.
//
// +checklocks:id.mu
func (id *ID) attrInit(op string) (verbs.QPAttr, verbs.QPAttrMask, error) {
	index, err := id.qpPKeyIndex(op)
	if err != nil {
		return verbs.QPAttr{}, 0, err
	}
	a := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: id.sgid.port, PKeyIndex: index}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if id.qpType == verbs.QPTypeUD {
		a.QKey = UDPQKey
		return a, mask | verbs.QPAttrQKey, nil
	}
	if id.dev.iwarp { // the rights are those of the QP from INIT on
		a.QPAccessFlags = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	}
	if id.attrs.DestQPN != 0 {
		a.QPAccessFlags = verbs.AccessRemoteWrite
		if id.respRes > 0 && id.receives() {
			a.QPAccessFlags |= verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
			if id.dev.attr.DeviceCapFlags&verbs.DeviceFlushGlobal != 0 {
				// as Linux since FLUSH exists; its answers take resources of the responder too
				a.QPAccessFlags |= verbs.AccessFlushGlobal
			}
		}
	}
	return a, mask | verbs.QPAttrAccessFlags, nil
}

// attrRTR is the attributes of a connected QP for RTR.
//
// +checklocks:id.mu
func (id *ID) attrRTR() (verbs.QPAttr, verbs.QPAttrMask) {
	c, p := &id.attrs, &id.cmPath
	a := verbs.QPAttr{
		QPState: verbs.QPSRTR, PathMTU: verbs.MTU(c.MTU), DestQPNum: c.DestQPN, RQPSN: c.RQPSN,
		AHAttr: verbs.AHAttr{IsGlobal: true, PortNum: id.sgid.port, SL: p.SL, GRH: verbs.GlobalRoute{
			DGID: verbs.GIDFromAddr(p.Dst), SGIDIndex: id.sgid.index, HopLimit: p.HopLimit, TrafficClass: p.TClass,
			FlowLabel: p.FlowLabel,
		}},
	}
	mask := verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	if id.receives() {
		a.MaxDestRdAtomic = id.respRes
		mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	}
	return a, mask
}

// attrRTS is the attributes of a connected QP for RTS.
//
// +checklocks:id.mu
func (id *ID) attrRTS() (verbs.QPAttr, verbs.QPAttrMask) {
	c := &id.attrs
	a := verbs.QPAttr{
		QPState: verbs.QPSRTS, SQPSN: c.SQPSN, Timeout: c.Timeout, RetryCnt: c.RetryCount, RNRRetry: c.RNRRetry,
		MaxRdAtomic: id.initDepth,
	}
	mask := verbs.QPAttrState | verbs.QPAttrSQPSN
	if id.qpType != verbs.QPTypeUC {
		mask |= verbs.QPAttrTimeout
	}
	if id.sends() {
		mask |= verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	}
	if id.ackTimeoutSet {
		a.Timeout = id.ackTimeout
	}
	return a, mask
}

// connectQP moves the ID's QP to RTS, through INIT and RTR.
//
// +checklocks:id.mu
func (id *ID) connectQP() error {
	a, mask, err := id.attrInit("connect")
	if err != nil {
		return err
	}
	if err := id.qp.Modify(&a, mask); err != nil {
		return err
	}
	a, mask = id.attrRTR()
	if err := id.qp.Modify(&a, mask); err != nil {
		return err
	}
	a, mask = id.attrRTS()
	return id.qp.Modify(&a, mask)
}
