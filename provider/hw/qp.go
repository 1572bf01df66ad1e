//go:build linux && (amd64 || arm64)

package hw

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// qp is a DriverQP.
type qp struct {
	verbs.DriverUnsupported
	ctx *devContext
	pd  *pd // nil for XRC_RECV
	up  verbs.DriverQPEvents
	typ verbs.QPType
	num uint32
	ex  uintptr // struct ibv_qp_ex; 0 without one
	ops verbs.SendOpsFlags

	inline uint32 // bytes

	mu sync.Mutex // serialises Modify, Query and Destroy; before the queues' locks
	// +checklocks:mu
	ptr   uintptr       // 0 after Destroy
	state atomic.Uint32 // a QPState, as last reported; written with mu held
	// +checklocks:mu
	peer string // address of a connected QP's peer
	// +checklocks:mu
	peerQPN uint32
	// +checklocks:mu
	rate uint32 // kb/s; the kernel's answer to a query has none
	// +checklocks:mu
	first *verbs.WCError // since RESET

	sq sendQueue
	rq recvQueue
}

// CreateQP makes a QP.
func (p *pd) CreateQP(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	a := &cQPInitAttr{
		typ: uint32(init.Type), sendCQ: addrOf(init.SendCQ), recvCQ: addrOf(init.RecvCQ),
		cap: cQPCap{
			maxSendWR: init.Cap.MaxSendWR, maxRecvWR: init.Cap.MaxRecvWR, maxSendSGE: init.Cap.MaxSendSGE,
			maxRecvSGE: init.Cap.MaxRecvSGE, maxInline: init.Cap.MaxInlineData,
		},
	}
	switch {
	case init.RWQIndTbl != nil:
		if driver.Of[*indTable](init.RWQIndTbl) == nil {
			return nil, fail(syscall.EINVAL, "the indirection table is not of provider hw")
		}
	case a.sendCQ == 0 || a.recvCQ == 0 && init.Type != verbs.QPTypeXRCSend:
		return nil, fail(syscall.EINVAL, "a CQ is closed, or not of provider hw")
	}
	if init.SRQ != nil {
		s := driver.Of[*srq](init.SRQ)
		if s == nil {
			return nil, fail(syscall.EINVAL, "the SRQ is not of provider hw")
		}
		a.srq = s.ptr
	}
	if init.SigAll {
		a.sigAll = 1
	}
	if init.SendOpsFlags&verbs.QPExWithAtomicWrite != 0 {
		a.cap.maxInline = max(a.cap.maxInline, 8)
	}
	q := &qp{ctx: p.ctx, pd: p, up: up, typ: init.Type, ops: init.SendOpsFlags}
	if err := q.create(a, init); err != nil {
		return nil, explain(err, fmt.Sprintf("a QP of type %v", init.Type))
	}
	init.Cap = verbs.QPCap{MaxSendWR: a.cap.maxSendWR, MaxRecvWR: a.cap.maxRecvWR, MaxSendSGE: a.cap.maxSendSGE,
		MaxRecvSGE: a.cap.maxRecvSGE, MaxInlineData: a.cap.maxInline}
	return q, nil
}

// create calls ibv_create_qp, or ibv_create_qp_ex for attributes that only it has.
func (q *qp) create(a *cQPInitAttr, init *verbs.QPInitAttr) (err error) {
	lib := q.ctx.lib
	if init.SendOpsFlags != 0 && lib.qpToQPEx == 0 {
		return syscall.EOPNOTSUPP
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if init.SendOpsFlags == 0 && init.CreateFlags == 0 && init.MaxTSOHeader == 0 && init.RWQIndTbl == nil {
		q.ptr, err = lib.object(lib.createQP, q.pd.ptr, uintptr(unsafe.Pointer(a)))
	} else {
		a.compMask, a.pd = qpInitPD, q.pd.ptr
		if init.SendOpsFlags != 0 {
			a.compMask, a.sendOps = a.compMask|qpInitSendOps, uint64(init.SendOpsFlags)
		}
		if init.CreateFlags != 0 {
			a.compMask, a.createFlags, a.sourceQPN = a.compMask|qpInitCreateFlags, uint32(init.CreateFlags), init.SourceQPN
		}
		if init.MaxTSOHeader != 0 {
			a.compMask, a.maxTSOHeader = a.compMask|qpInitMaxTSO, init.MaxTSOHeader
		}
		defer a.setRSS(init)()
		q.ptr, err = lib.object(q.ctx.extended(extCreateQP), q.ctx.ptr, uintptr(unsafe.Pointer(a)))
	}
	if err != nil {
		return err
	}
	if init.SendOpsFlags != 0 {
		if q.ex = call(lib.qpToQPEx, q.ptr); q.ex == 0 {
			_ = lib.status(lib.destroyQP, q.ptr)
			return syscall.EOPNOTSUPP
		}
	}
	q.begin(&a.cap, init.MaxTSOHeader)
	return nil
}

// setRSS sets the indirection table and the hash, which C may read until release.
func (a *cQPInitAttr) setRSS(init *verbs.QPInitAttr) (release func()) {
	table := driver.Of[*indTable](init.RWQIndTbl)
	if table == nil {
		return func() {}
	}
	key := append([]byte(nil), init.RxHashConf.Key...)
	pin := new(runtime.Pinner)
	pin.Pin(&key[0])
	a.compMask, a.rwqIndTbl = a.compMask|qpInitIndTable|qpInitRxHash, table.ptr
	a.rxHash = cRxHash{function: uint8(init.RxHashConf.Function), size: uint8(len(key)),
		key: uintptr(unsafe.Pointer(&key[0])), fields: uint64(init.RxHashConf.Fields)}
	return pin.Unpin
}

// begin makes a QP of C known. It is in RESET, or in any state if it is an opened handle.
//
// +checklocks:q.mu
func (q *qp) begin(c *cQPCap, header uint16) {
	q.num = *at[uint32](q.ptr + offQPNum)
	q.inline = c.maxInline
	q.sq.init(q.ptr, c, header)
	q.rq.init(q.ptr, q.ctx.postRecv)
	q.ctx.qps.Store(q.ptr, q)
	q.ctx.numbers.Store(q.num, q)
}

// addrOf returns C's CQ; 0 for nil, a closed one, and one of another provider.
func addrOf(c *verbs.CQ) uintptr {
	q := driver.Of[*cq](c)
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ptr
}

// QPN returns the number.
func (q *qp) QPN() uint32 { return q.num }

// Modify changes attributes and state.
func (q *qp) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if mask&verbs.QPAttrAV != 0 {
		if err := checkGIDIndex(&attr.AHAttr); err != nil {
			return err
		}
	}
	if mask&verbs.QPAttrAltPath != 0 {
		if err := checkGIDIndex(&attr.AltAHAttr); err != nil {
			return err
		}
	}
	a := new(cQPAttr)
	a.set(attr)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ptr == 0 {
		return syscall.EINVAL
	}
	if err := q.ctx.lib.status(q.ctx.lib.modifyQP, q.ptr, uintptr(unsafe.Pointer(a)), uintptr(mask)); err != nil {
		q.refresh()
		return explain(err, "the device refuses the attributes")
	}
	if mask&verbs.QPAttrState != 0 {
		q.state.Store(uint32(attr.QPState))
		if attr.QPState == verbs.QPSReset {
			q.peer, q.peerQPN, q.rate, q.first = "", 0, 0, nil
		}
	}
	if mask&verbs.QPAttrRateLimit != 0 {
		q.rate = attr.RateLimit
	}
	if mask&verbs.QPAttrAV != 0 && attr.AHAttr.IsGlobal {
		q.peer = attr.AHAttr.GRH.DGID.Addr().String()
	}
	if mask&verbs.QPAttrDestQPN != 0 {
		q.peerQPN = attr.DestQPNum
	}
	return nil
}

func (a *cQPAttr) set(v *verbs.QPAttr) {
	*a = cQPAttr{
		state: uint32(v.QPState), curState: uint32(v.CurQPState), pathMTU: uint32(v.PathMTU),
		pathMigState: uint32(v.PathMigState), qkey: v.QKey, rqPSN: v.RQPSN, sqPSN: v.SQPSN, destQPNum: v.DestQPNum,
		access: uint32(v.QPAccessFlags),
		cap: cQPCap{maxSendWR: v.Cap.MaxSendWR, maxRecvWR: v.Cap.MaxRecvWR, maxSendSGE: v.Cap.MaxSendSGE,
			maxRecvSGE: v.Cap.MaxRecvSGE, maxInline: v.Cap.MaxInlineData},
		pkeyIndex: v.PKeyIndex, altPKeyIndex: v.AltPKeyIndex,
		maxRdAtomic: v.MaxRdAtomic, maxDestRdAtomic: v.MaxDestRdAtomic, minRNRTimer: v.MinRNRTimer, portNum: v.PortNum,
		timeout: v.Timeout, retryCnt: v.RetryCnt, rnrRetry: v.RNRRetry, altPortNum: v.AltPortNum, altTimeout: v.AltTimeout,
		rateLimit: v.RateLimit,
	}
	if v.EnSQDAsyncNotify {
		a.enSQDAsyncNotify = 1
	}
	a.ah.set(&v.AHAttr)
	a.altAH.set(&v.AltAHAttr)
}

// queryMask is the set of attributes of Query.
const queryMask = 1<<21 - 1

// Query returns attributes and state.
func (q *qp) Query() (verbs.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a, err := q.query()
	if err != nil {
		return verbs.QPAttr{}, explain(err, "the attributes of the QP")
	}
	v := a.verbs()
	q.moved(v.QPState)
	v.QPState, v.RateLimit = verbs.QPState(q.state.Load()), q.rate
	return v, nil
}

// +checklocks:q.mu
func (q *qp) query() (*cQPAttr, error) {
	if q.ptr == 0 {
		return nil, syscall.EINVAL
	}
	a, init := new(cQPAttr), new(cQPInitAttr)
	err := q.ctx.lib.status(q.ctx.lib.queryQP, q.ptr, uintptr(unsafe.Pointer(a)), queryMask, uintptr(unsafe.Pointer(init)))
	return a, err
}

func (a *cQPAttr) verbs() verbs.QPAttr {
	return verbs.QPAttr{
		QPState: verbs.QPState(a.state), CurQPState: verbs.QPState(a.curState), PathMTU: verbs.MTU(a.pathMTU),
		PathMigState: verbs.MigState(a.pathMigState), QKey: a.qkey, RQPSN: a.rqPSN, SQPSN: a.sqPSN, DestQPNum: a.destQPNum,
		QPAccessFlags: verbs.AccessFlags(a.access), AHAttr: a.ah.verbs(), AltAHAttr: a.altAH.verbs(),
		PKeyIndex: a.pkeyIndex, AltPKeyIndex: a.altPKeyIndex, EnSQDAsyncNotify: a.enSQDAsyncNotify != 0,
		SQDraining: a.sqDraining != 0, MaxRdAtomic: a.maxRdAtomic, MaxDestRdAtomic: a.maxDestRdAtomic,
		MinRNRTimer: a.minRNRTimer, PortNum: a.portNum, Timeout: a.timeout, RetryCnt: a.retryCnt, RNRRetry: a.rnrRetry,
		AltPortNum: a.altPortNum, AltTimeout: a.altTimeout,
	}
}

// moved reports the state that the device says the QP is in, if the device has moved the QP.  ERR is left by Modify
// only: a device that still answers another state has completed a request with an error, but has not done the rest.
//
// +checklocks:q.mu
func (q *qp) moved(s verbs.QPState) {
	old := verbs.QPState(q.state.Load())
	if s == old || old == verbs.QPSErr || s > verbs.QPSErr || s == verbs.QPSReset { // siw reports RESET in every state
		return
	}
	q.state.Store(uint32(s))
	q.up.StateChanged(s)
}

// Moved takes the state to which the kernel's connection manager has moved the QP of an iWARP adapter.
func (q *qp) Moved(s verbs.QPState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moved(s)
}

// refresh asks the device for the state.
//
// +checklocks:q.mu
func (q *qp) refresh() {
	if a, err := q.query(); err == nil {
		q.moved(verbs.QPState(a.state))
	}
}

// event reports an asynchronous event of the QP.
func (q *qp) event(t verbs.EventType) {
	switch t {
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr, verbs.EventQPLastWQEReached:
		q.mu.Lock()
		q.refresh()
		q.mu.Unlock()
	}
	q.up.Event(t)
}

// broken describes a failed completion, and moves its QP as the device has.
func (c *devContext) broken(wc *verbs.WC) {
	wc.Cause = &verbs.WCError{Status: wc.Status, QPN: wc.QPNum}
	v, ok := c.numbers.Load(wc.QPNum)
	if !ok {
		return
	}
	q := v.(*qp)
	q.mu.Lock()
	defer q.mu.Unlock()
	wc.Cause.Peer, wc.Cause.DestQPN = q.peer, q.peerQPN
	switch {
	case wc.Status == verbs.WCWRFlushErr:
		wc.Cause.First = q.first
	case q.first == nil:
		q.first = wc.Cause
	}
	q.follow()
}

// follow moves the QP after a failure: RC goes to ERR; for other types the device is asked.
//
// +checklocks:q.mu
func (q *qp) follow() {
	switch s := verbs.QPState(q.state.Load()); {
	case s == verbs.QPSErr || s == verbs.QPSReset || s == verbs.QPSInit:
	case q.typ == verbs.QPTypeRC || q.typ == verbs.QPTypeXRCSend:
		q.moved(verbs.QPSErr)
	default:
		q.refresh()
	}
}

// Destroy destroys the QP. C waits until its events are acknowledged, which needs no lock of the QP.
func (q *qp) Destroy() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sq.close()
	q.rq.close()
	if err := q.ctx.lib.status(q.ctx.lib.destroyQP, q.ptr); err != nil {
		q.sq.reopen(q.ptr)
		q.rq.reopen(q.ptr)
		return explain(err, "the QP")
	}
	q.ctx.qps.CompareAndDelete(q.ptr, q)
	q.ctx.numbers.CompareAndDelete(q.num, q)
	q.ptr = 0
	return nil
}

// AttachMcast attaches the QP to a multicast group.
func (q *qp) AttachMcast(gid verbs.GID, lid uint16) error {
	return q.mcast(q.ctx.lib.attachMcast, gid, lid)
}

// DetachMcast detaches the QP from a multicast group.
func (q *qp) DetachMcast(gid verbs.GID, lid uint16) error {
	return q.mcast(q.ctx.lib.detachMcast, gid, lid)
}

func (q *qp) mcast(fn uintptr, gid verbs.GID, lid uint16) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := gid
	return explain(q.ctx.lib.status(fn, q.ptr, uintptr(unsafe.Pointer(&g)), uintptr(lid)), "the group "+gid.String())
}

// ModifyRateLimit limits how fast the QP sends.
func (q *qp) ModifyRateLimit(attr verbs.QPRateLimitAttr) error {
	a := &cRateLimit{rate: attr.RateLimit, size: attr.MaxBurstSz, pktSize: attr.TypicalPktSz}
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.ctx.lib.status(q.ctx.extended(extRateLimit), q.ptr, uintptr(unsafe.Pointer(a)))
	if err == nil {
		q.rate = attr.RateLimit
	}
	return explain(err, "a rate limit")
}

// QueryECE returns the options of enhanced connection establishment.
func (q *qp) QueryECE() (verbs.ECE, error) {
	a := new(cECE)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.ctx.lib.status(q.ctx.lib.queryECE, q.ptr, uintptr(unsafe.Pointer(a))); err != nil {
		return verbs.ECE{}, explain(err, "ECE")
	}
	return verbs.ECE{VendorID: a.vendorID, Options: a.options}, nil
}

// SetECE sets the options of the peer.
func (q *qp) SetECE(e verbs.ECE) error {
	a := &cECE{vendorID: e.VendorID, options: e.Options}
	q.mu.Lock()
	defer q.mu.Unlock()
	return explain(q.ctx.lib.status(q.ctx.lib.setECE, q.ptr, uintptr(unsafe.Pointer(a))), "ECE")
}
