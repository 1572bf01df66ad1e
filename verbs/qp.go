package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/prefetch"
)

// QP is a queue pair: a send queue and a receive queue (struct ibv_qp). It is safe for concurrent use.
//
// A new QP is in RESET. Modify takes it to INIT, where receives may be posted, to RTR, where it receives, and to RTS,
// where it sends too; Connect does all of it. An error moves it to SQE (UC and UD sends) or ERR by itself: requests
// then complete with WCWRFlushErr.
type QP struct {
	// Posts use the fields before init; see Memory.
	drv       DriverQP
	word      atomic.Uint64 // state, see below
	opcodes   uint32        // that the type has, as bits
	hasRQ     bool          // a receive queue of its own
	connected bool          // the type is RC or UC
	most      postLimits
	init      QPInitAttr // with actual sizes

	pd       *PD   // nil for XRC_RECV
	xrcd     *XRCD // of XRC_RECV
	ctx      *Context
	qpn      uint32
	ex       *QPEx // nil without one
	lifetime lifetime
	asyncEv  ackCount
	watch    atomic.Pointer[qpWatch] // see seam.WatchQP

	sendRoom     atomic.Uint32 // init.Cap.MaxSendWR, which a resize changes
	table        *RWQIndTable  // spreads the receives; nil without one
	maxTSOHeader uint16
	maxTSO       uint32 // bytes of data, if maxTSOHeader is not 0

	mu sync.Mutex // serialises Modify, Query, Connect, AttachMcast, DetachMcast and Close, and guards what follows
	// +checklocks:mu
	port uint8 // 0 before INIT
	// +checklocks:mu
	qkey uint32 // of a UD QP from INIT on
	// +checklocks:mu
	groups map[GID]struct{}
	// +checklocks:mu
	local *QPInfo // result of LocalInfo
	// +checklocks:mu
	sgid int // index of the GID in local

	_ [16]byte // makes the length a multiple of a cache line's: what posts use is in one line then
}

// postLimits are the sizes of QPInitAttr.Cap that bound a work request.
type postLimits struct {
	sendSGE, recvSGE, inline uint32
}

// QP.word holds the state in its low byte, so that a post call needs one load to check it. The bits above count the
// moves that the device made by itself, so that Modify notices a move during its call.
const (
	stateMask   = 0xff
	stateClosed = 0x80
	stateMove   = 0x100
)

// CreateQP creates a queue pair (ibv_create_qp, ibv_create_qp_ex). init is copied; init.Cap gets the actual sizes,
// which are not below the requested sizes. Close destroys it.
//
// An SRQ needs a QP of type RC or UD and must be of the same PD; MaxRecvWR and MaxRecvSGE are then ignored. A QP of
// type XRC_SEND has no receives: RecvCQ and SRQ are ignored. XRCD.CreateQP creates XRC_RECV QPs. With SendOpsFlags
// the QP has a QPEx; see QP.Ex. With RWQIndTbl and RxHashConf it spreads its receives over work queues; it then needs
// no RecvCQ, and no SendCQ if MaxSendWR is 0.
//
// Errors: EINVAL for bad CQs, SRQ, sizes or flags, or an attribute or flag that the type does not have. ENOSYS if the
// device lacks the type. EOPNOTSUPP for an operation of SendOpsFlags that the type or the device lacks, or a flag that
// the device lacks. EIO if a CQ has overflowed. EPERM if the process lacks the permission. ENOMEM without resources.
func (pd *PD) CreateQP(init *QPInitAttr) (*QP, error) {
	return pd.createQP("create_qp", init, pd.drv.CreateQP)
}

func (pd *PD) createQP(op string, init *QPInitAttr, create func(*QPInitAttr, DriverQPEvents) (DriverQP, error)) (*QP,
	error) {
	if init == nil {
		return nil, newError(op, pd.obj(), EINVAL, "the attributes are nil")
	}
	if err := init.checkEx(op, pd); err != nil {
		return nil, err
	}
	if err := init.checkRSS(pd.ctx); err != nil {
		return nil, badInput(op, pd.obj(), err)
	}
	qp := &QP{pd: pd, ctx: pd.ctx, table: init.RWQIndTbl, maxTSOHeader: init.MaxTSOHeader}
	if init.MaxTSOHeader != 0 {
		qp.maxTSO = pd.ctx.attr.TSOCaps.MaxTSO
	}
	qp, err := qp.create(op, pd, init, create)
	if err == nil && init.SendOpsFlags != 0 {
		qp.ex = newQPEx(qp, init.SendOpsFlags)
	}
	return qp, err
}

// create creates a QP whose parents are set. owner names its domain in errors.
func (qp *QP) create(
	op string, owner named, init *QPInitAttr, create func(*QPInitAttr, DriverQPEvents) (DriverQP, error),
) (*QP, error) {
	qp.init = *init
	qp.init.dropUnused()
	qp.opcodes, qp.hasRQ = opcodesOf[init.Type], qp.init.hasRQ() && qp.table == nil
	qp.connected = init.Type == QPTypeRC || init.Type == QPTypeUC
	if err := qp.checkInit(); err != nil {
		return nil, badInput(op, owner.obj(), err)
	}
	if err := qp.ctx.checkRemoved(op, qp); err != nil {
		return nil, err
	}
	var room [qpParents]parent
	parents := qp.parents(room[:0])
	if err := use(op, kindQP, parents); err != nil {
		return nil, err
	}
	c := &qp.init.Cap
	if qp.init.SRQ != nil {
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0
	}
	var err error
	if qp.drv, err = create(&qp.init, (*qpEvents)(qp)); err != nil {
		drop(kindQP, parents)
		return nil, driverError(op, owner.obj(), err)
	}
	qp.qpn = qp.drv.QPN()
	qp.most = postLimits{c.MaxSendSGE, c.MaxRecvSGE, c.MaxInlineData}
	init.Cap = *c
	qp.sendRoom.Store(c.MaxSendWR)
	return qp, nil
}

// checkInit checks the attributes of a new QP.
func (qp *QP) checkInit() error {
	init, d := &qp.init, &qp.ctx.attr
	switch {
	case transitionsOf[init.Type] == nil && init.Type != QPTypeDriver:
		return fmt.Errorf("unknown QP type %v; must be RC, UC, UD, RAW_PACKET, XRC_SEND or XRC_RECV", init.Type)
	case init.Type == QPTypeXRCRecv:
		if qp.xrcd == nil {
			return errors.New("an XRC_RECV QP belongs to an XRC domain; use XRCD.CreateQP")
		}
		return nil
	case qp.table != nil && init.SendCQ == nil && init.Cap.MaxSendWR > 0:
		return errors.New("SendCQ is nil: must be set unless MaxSendWR is 0")
	case qp.table == nil && (init.SendCQ == nil || init.RecvCQ == nil && init.Type != QPTypeXRCSend):
		return errors.New("SendCQ or RecvCQ is nil: both must be set, for XRC_SEND SendCQ only")
	case init.SendCQ != nil && init.SendCQ.ctx != qp.ctx || init.RecvCQ != nil && init.RecvCQ.ctx != qp.ctx:
		return errors.New("a CQ belongs to another context")
	case init.SRQ != nil && init.SRQ.pd.domain() != qp.pd.domain():
		return errors.New("the SRQ belongs to another PD")
	case init.SRQ != nil && init.SRQ.xrcd != nil:
		return fmt.Errorf("an SRQ of type XRC serves XRC_RECV QPs only; QP type %v cannot have it", init.Type)
	case init.SRQ != nil && init.SRQ.tm != (TMCap{}) && init.Type != QPTypeRC:
		return fmt.Errorf("an SRQ of type TM serves RC QPs only; QP type %v cannot have it", init.Type)
	case init.SRQ != nil && (init.Type == QPTypeUC || init.Type == QPTypeRawPacket):
		return fmt.Errorf("QP type %v cannot have an SRQ: must be RC or UD", init.Type)
	}
	c := &init.Cap
	sizes := []struct {
		name     string
		value    uint32
		max      int
		ofRecvRQ bool
	}{
		{"MaxSendWR", c.MaxSendWR, d.MaxQPWR, false}, {"MaxSendSGE", c.MaxSendSGE, d.MaxSGE, false},
		{"MaxRecvWR", c.MaxRecvWR, d.MaxQPWR, true}, {"MaxRecvSGE", c.MaxRecvSGE, d.MaxSGE, true},
	}
	for _, s := range sizes {
		if int64(s.value) > int64(s.max) && (!s.ofRecvRQ || qp.hasRQ) {
			return fmt.Errorf("%s %d: must be 0 to %d", s.name, s.value, s.max)
		}
	}
	return nil
}

// qpParents is the largest number of objects that a QP uses.
const qpParents = 6

// parents appends the objects that the QP uses to a list.
func (qp *QP) parents(list []parent) []parent {
	if qp.pd != nil {
		list = append(list, parent{&qp.pd.lifetime, qp.pd})
	}
	if qp.xrcd != nil {
		list = append(list, parent{&qp.xrcd.lifetime, qp.xrcd})
	}
	init := &qp.init
	if init.SendCQ != nil {
		list = append(list, parent{&init.SendCQ.lifetime, role("send CQ")})
	}
	if init.RecvCQ != nil && init.RecvCQ != init.SendCQ {
		list = append(list, parent{&init.RecvCQ.lifetime, role("receive CQ")})
	}
	if init.SRQ != nil {
		list = append(list, parent{&init.SRQ.lifetime, init.SRQ})
	}
	if qp.table != nil {
		list = append(list, parent{&qp.table.lifetime, qp.table})
	}
	return list
}

// QPN returns the QP's number, 24 bits, which peers need (qp_num).
func (qp *QP) QPN() uint32 { return qp.qpn }

// Type returns the QP's type (qp_type).
func (qp *QP) Type() QPType { return qp.init.Type }

// State returns the QP's state, which the device may change at any time (state of struct ibv_qp).
func (qp *QP) State() QPState { return QPState(qp.word.Load() & stateMask &^ stateClosed) }

// PD returns the protection domain of the QP; nil for XRC_RECV.
func (qp *QP) PD() *PD { return qp.pd }

// Context returns the context of the QP.
func (qp *QP) Context() *Context { return qp.ctx }

// QPContext returns QPInitAttr.Context (qp_context).
func (qp *QP) QPContext() any { return qp.init.Context }

// SendCQ returns the CQ of the send queue; nil for XRC_RECV, and if QPInitAttr.SendCQ was nil.
func (qp *QP) SendCQ() *CQ { return qp.init.SendCQ }

// RecvCQ returns the CQ of the receives; nil for XRC and with an RWQIndTable.
func (qp *QP) RecvCQ() *CQ { return qp.init.RecvCQ }

// SRQ returns the QP's shared receive queue; nil without one.
func (qp *QP) SRQ() *SRQ { return qp.init.SRQ }

func (qp *QP) obj() string { return fmt.Sprintf("%v QP 0x%06x", qp.init.Type, qp.qpn) }

// Query returns the QP's attributes and the attributes that it was created with (ibv_query_qp). mask is a hint; more
// attributes may be set. Attributes that the state does not have are undefined. EINVAL for unknown attributes in
// mask.
func (qp *QP) Query(mask QPAttrMask) (QPAttr, QPInitAttr, error) {
	const op = "query_qp"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.lifetime.closed.Load() {
		return QPAttr{}, QPInitAttr{}, errClosed(op, qp.obj())
	}
	if err := qp.ctx.checkRemoved(op, qp); err != nil {
		return QPAttr{}, QPInitAttr{}, err
	}
	if unknown := mask &^ qpAttrAll; unknown != 0 {
		return QPAttr{}, QPInitAttr{}, newError(op, qp.obj(), EINVAL, "unknown attributes %v", unknown)
	}
	attr, err := qp.drv.Query()
	if err != nil {
		return QPAttr{}, QPInitAttr{}, driverError(op, qp.obj(), err)
	}
	attr.CurQPState = attr.QPState
	attr.Cap = qp.init.Cap
	return attr, qp.init, nil
}

// Close destroys the QP, in any state (ibv_destroy_qp). Outstanding requests get no completion, and completions of the
// QP that were not polled may be lost: poll first. EBUSY while the QP has flows or, unless the device was removed, is
// attached to a multicast group. It blocks, without a time-out, until all delivered asynchronous events of the QP are
// acknowledged.
func (qp *QP) Close() error {
	const op = "destroy_qp"
	if err := qp.destroy(op); err != nil {
		return err
	}
	qp.ctx.async.purge(&qp.asyncEv)
	var room [qpParents]parent
	drop(kindQP, qp.parents(room[:0]))
	qp.asyncEv.wait()
	return qp.ctx.ended(op, qp)
}

func (qp *QP) destroy(op string) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.ctx.isRemoved() {
		qp.forgetGroups()
	}
	if err := qp.lifetime.close(op, qp); err != nil {
		return err
	}
	qp.word.Or(stateClosed)
	if err := destroyed(qp.drv.Destroy()); err != nil {
		qp.word.And(^uint64(stateClosed))
		qp.lifetime.reopen()
		return driverError(op, qp.obj(), err)
	}
	return nil
}

// qpEvents receives the events of the driver for a QP.
type qpEvents QP

// Memory is what the program's next calls use of its object.
func (up *qpEvents) Memory() prefetch.Target {
	return prefetch.TargetOf((*QP)(up), unsafe.Offsetof(up.init))
}

func (up *qpEvents) Event(t EventType) {
	qp := (*QP)(up)
	qp.ctx.raise(AsyncEvent{Type: t, QP: qp, of: &qp.asyncEv})
	switch t {
	case EventQPFatal, EventQPReqErr, EventQPAccessErr:
		if w := qp.watch.Load(); w != nil {
			w.first.CompareAndSwap(0, uint32(t))
			go w.f(uint32(t)) // the driver holds locks
		}
	}
}

// qpWatch is what seam.WatchQP was given.
type qpWatch struct {
	first *atomic.Uint32
	f     func(event uint32)
}

func (up *qpEvents) StateChanged(s QPState) {
	for {
		old := up.word.Load()
		if up.word.CompareAndSwap(old, old&^(stateMask&^stateClosed)+stateMove|uint64(s)) {
			return
		}
	}
}

// setState records that Modify moved the QP to a state. before is the word from before the driver's Modify. If the
// device has moved the QP since, setState asks the driver for the last state.
func (qp *QP) setState(before uint64, to QPState) {
	const state = stateMask &^ stateClosed
	for word := before; !qp.word.CompareAndSwap(word, word&^state|uint64(to)); {
		word = qp.word.Load()
		if attr, err := qp.drv.Query(); err == nil {
			to = attr.QPState
		}
	}
}
