package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// QP is a queue pair: a send queue and a receive queue (struct ibv_qp). It is safe for concurrent use.
//
// A new QP is in RESET. Modify takes it to INIT, where receives may be posted, to RTR, where it receives, and to RTS,
// where it sends too; Connect does all of it. An error moves it to SQE (UC and UD sends) or ERR by itself: requests
// then complete with WCWRFlushErr.
type QP struct {
	pd      *PD   // nil for XRC_RECV
	xrcd    *XRCD // of XRC_RECV
	ctx     *Context
	drv     QPDriver
	qpn     uint32
	init    QPInitAttr // with actual sizes
	opcodes uint32     // that the type has, as bits
	hasRQ   bool       // a receive queue of its own
	ex      *QPEx      // nil without one
	life    life
	word    atomic.Uint64 // state, see below
	asyncEv ackCount

	table        *RWQIndTable // that spreads its receives; nil without one
	maxTSOHeader uint16
	maxTSO       uint32 // bytes of data, if maxTSOHeader is not 0

	mu     sync.Mutex // serialises Modify, Query, Connect, AttachMcast, DetachMcast and Close, and guards what follows
	port   uint8      // 0 before INIT
	groups map[GID]struct{}
	local  *QPInfo // what LocalInfo told
	sgid   int     // and its GID's index
}

// QP.word holds the state in its low byte, so that the post calls need one load to know that they may go on. The bits
// above count the moves that the device made by itself, which tells Modify that one came in between.
const (
	stateMask   = 0xff
	stateClosed = 0x80
	stateMove   = 0x100
)

// CreateQP makes a queue pair (ibv_create_qp). init.Cap gets the actual sizes, which are not below those asked for.
// EINVAL for bad CQs, SRQ or sizes, ENOSYS if the device lacks the type, EPERM if the process may not have it, ENOMEM
// without resources. An SRQ goes with RC and UD only, and must be of the same PD; MaxRecvWR and MaxRecvSGE are then
// ignored. A QP of type XRC_SEND has no receives: RecvCQ and SRQ are ignored. XRC_RECV QPs are made by
// XRCD.CreateQP.
func (pd *PD) CreateQP(init *QPInitAttr) (*QP, error) {
	return pd.createQP("create_qp", init, pd.drv.CreateQP)
}

func (pd *PD) createQP(op string, init *QPInitAttr, create func(*QPDriverInit, QPUpcalls) (QPDriver, error)) (*QP, error) {
	if init == nil {
		return nil, newError(op, pd.obj(), EINVAL, "there are no attributes")
	}
	qp := &QP{pd: pd, ctx: pd.ctx}
	return qp.create(op, pd.obj(), init, create)
}

// create makes a QP of which it is known only where it belongs: to owner.
func (qp *QP) create(op, owner string, init *QPInitAttr, create func(*QPDriverInit, QPUpcalls) (QPDriver, error)) (*QP, error) {
	qp.init = *init
	qp.init.dropUnused()
	qp.opcodes, qp.hasRQ = opcodesOf[init.Type], qp.init.hasRQ() && qp.table == nil
	if err := qp.checkInit(); err != nil {
		return nil, badInput(op, owner, err)
	}
	if err := use(op, kindQP, qp.parents()); err != nil {
		return nil, err
	}
	want := qp.init.forDriver()
	var err error
	if qp.drv, err = create(want, (*qpUpcalls)(qp)); err != nil {
		drop(kindQP, qp.parents())
		return nil, driverError(op, owner, err)
	}
	qp.qpn = qp.drv.QPN()
	qp.init.Cap = want.Cap
	init.Cap = want.Cap
	return qp, nil
}

// forDriver is the same in the driver's terms.
func (i *QPInitAttr) forDriver() *QPDriverInit {
	want := &QPDriverInit{Type: i.Type, Cap: i.Cap, SigAll: i.SigAll}
	if i.SendCQ != nil {
		want.SendCQ = i.SendCQ.drv
	}
	if i.RecvCQ != nil {
		want.RecvCQ = i.RecvCQ.drv
	}
	if i.SRQ != nil {
		want.SRQ = i.SRQ.drv
		want.Cap.MaxRecvWR, want.Cap.MaxRecvSGE = 0, 0
	}
	return want
}

// checkInit says what is wrong with the attributes of a new QP.
func (qp *QP) checkInit() error {
	init, d := &qp.init, &qp.ctx.attr
	switch {
	case transitionsOf[init.Type] == nil && init.Type != QPTypeDriver:
		return fmt.Errorf("%v is not a QP type; there are RC, UC, UD, RAW_PACKET, XRC_SEND and XRC_RECV", init.Type)
	case init.Type == QPTypeXRCRecv:
		if qp.xrcd == nil {
			return errors.New("an XRC_RECV QP belongs to an XRC domain, not to a PD; use XRCD.CreateQP")
		}
		return nil
	case qp.table != nil && init.SendCQ == nil && init.Cap.MaxSendWR > 0:
		return errors.New("a QP that sends needs a CQ for that")
	case qp.table == nil && (init.SendCQ == nil || init.RecvCQ == nil && init.Type != QPTypeXRCSend):
		return errors.New("a QP needs a CQ for sends and one for receives, which may be the same; XRC_SEND only the first")
	case init.SendCQ != nil && init.SendCQ.ctx != qp.ctx || init.RecvCQ != nil && init.RecvCQ.ctx != qp.ctx:
		return errors.New("a CQ belongs to another context")
	case init.SRQ != nil && init.SRQ.pd.domain() != qp.pd.domain():
		return errors.New("the SRQ belongs to another PD")
	case init.SRQ != nil && init.SRQ.xrcd != nil:
		return fmt.Errorf("an SRQ of type XRC takes what XRC_RECV QPs receive; a QP of type %v cannot have it", init.Type)
	case init.SRQ != nil && init.SRQ.tm != (TMCap{}) && init.Type != QPTypeRC:
		return fmt.Errorf("an SRQ of type TM goes with RC QPs only; a QP of type %v cannot have it", init.Type)
	case init.SRQ != nil && (init.Type == QPTypeUC || init.Type == QPTypeRawPacket):
		return fmt.Errorf("a QP of type %v cannot have an SRQ; RC, UD and XRC can", init.Type)
	}
	c := &init.Cap
	sizes := []struct {
		name     string
		got      uint32
		max      int
		ofRecvRQ bool
	}{
		{"MaxSendWR", c.MaxSendWR, d.MaxQPWR, false}, {"MaxSendSGE", c.MaxSendSGE, d.MaxSGE, false},
		{"MaxRecvWR", c.MaxRecvWR, d.MaxQPWR, true}, {"MaxRecvSGE", c.MaxRecvSGE, d.MaxSGE, true},
	}
	for _, s := range sizes {
		if int64(s.got) > int64(s.max) && (!s.ofRecvRQ || qp.hasRQ) {
			return fmt.Errorf("%s %d is not possible; 0 to %d are", s.name, s.got, s.max)
		}
	}
	return nil
}

// parents lists all that the QP is made of.
func (qp *QP) parents() (list []parent) {
	if qp.pd != nil {
		list = append(list, parent{&qp.pd.life, qp.pd.obj()})
	}
	if qp.xrcd != nil {
		list = append(list, parent{&qp.xrcd.life, qp.xrcd.obj()})
	}
	init := &qp.init
	if init.SendCQ != nil {
		list = append(list, parent{&init.SendCQ.life, "send CQ"})
	}
	if init.RecvCQ != nil && init.RecvCQ != init.SendCQ {
		list = append(list, parent{&init.RecvCQ.life, "receive CQ"})
	}
	if init.SRQ != nil {
		list = append(list, parent{&init.SRQ.life, init.SRQ.obj()})
	}
	if qp.table != nil {
		list = append(list, parent{&qp.table.life, qp.table.obj()})
	}
	return list
}

// QPN is the QP's number, 24 bits, which peers must know (qp_num).
func (qp *QP) QPN() uint32 { return qp.qpn }

// Type is the QP's type (qp_type).
func (qp *QP) Type() QPType { return qp.init.Type }

// State is the QP's state (state of struct ibv_qp), which the device may change at any time.
func (qp *QP) State() QPState { return QPState(qp.word.Load() & stateMask &^ stateClosed) }

// PD is the protection domain that the QP is in; nil for XRC_RECV.
func (qp *QP) PD() *PD { return qp.pd }

// Context is the context that the QP belongs to.
func (qp *QP) Context() *Context { return qp.ctx }

// QPContext is QPInitAttr.Context (qp_context).
func (qp *QP) QPContext() any { return qp.init.Context }

// SendCQ is the CQ of the send queue; nil for XRC_RECV.
func (qp *QP) SendCQ() *CQ { return qp.init.SendCQ }

// RecvCQ is the CQ of the receives; nil for XRC.
func (qp *QP) RecvCQ() *CQ { return qp.init.RecvCQ }

// SRQ is the QP's shared receive queue; nil without one.
func (qp *QP) SRQ() *SRQ { return qp.init.SRQ }

// Driver gives providers the driver object of the QP.
func (qp *QP) Driver() QPDriver { return qp.drv }

func (qp *QP) obj() string { return fmt.Sprintf("%v QP 0x%06x", qp.init.Type, qp.qpn) }

// Query reads the QP's attributes and what it was made with (ibv_query_qp). mask hints at what is wanted; more may be
// filled. Attributes that the state does not have are undefined.
func (qp *QP) Query(mask QPAttrMask) (QPAttr, QPInitAttr, error) {
	const op = "query_qp"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.life.closed.Load() {
		return QPAttr{}, QPInitAttr{}, errClosed(op, qp.obj())
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

// Close destroys the QP, in any state (ibv_destroy_qp). Outstanding requests get no completion. EBUSY while it is
// attached to a multicast group or has flows. It blocks until the asynchronous events of the QP that were got are acknowledged.
func (qp *QP) Close() error {
	const op = "destroy_qp"
	if err := qp.destroy(op); err != nil {
		return err
	}
	qp.ctx.async.purge(&qp.asyncEv)
	drop(kindQP, qp.parents())
	qp.asyncEv.wait()
	return nil
}

func (qp *QP) destroy(op string) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.life.end(op, qp.obj()); err != nil {
		return err
	}
	qp.word.Or(stateClosed)
	if err := destroyed(qp.drv.Destroy()); err != nil {
		qp.word.And(^uint64(stateClosed))
		qp.life.revive()
		return driverError(op, qp.obj(), err)
	}
	return nil
}

// qpUpcalls is how the driver sees a QP.
type qpUpcalls QP

func (up *qpUpcalls) Event(t EventType) {
	qp := (*QP)(up)
	qp.ctx.raise(AsyncEvent{Type: t, QP: qp, of: &qp.asyncEv})
}

func (up *qpUpcalls) StateChanged(s QPState) {
	for {
		old := up.word.Load()
		if up.word.CompareAndSwap(old, old&^(stateMask&^stateClosed)+stateMove|uint64(s)) {
			return
		}
	}
}

// settle notes that Modify moved the QP to a state. before is the word from before the driver was asked: if the
// device has moved the QP since, only the driver knows which of the two was last.
func (qp *QP) settle(before uint64, to QPState) {
	const state = stateMask &^ stateClosed
	for word := before; !qp.word.CompareAndSwap(word, word&^state|uint64(to)); {
		word = qp.word.Load()
		if attr, err := qp.drv.Query(); err == nil {
			to = attr.QPState
		}
	}
}
