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
	pd      *PD
	ctx     *Context
	drv     QPDriver
	qpn     uint32
	init    QPInitAttr // with actual sizes
	opcodes uint32     // that the type has, as bits
	life    life
	word    atomic.Uint64 // state, see below
	asyncEv ackCount

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
// without resources. An SRQ goes with RC, UD and XRC only, and must be of the same PD; MaxRecvWR and MaxRecvSGE are
// then ignored.
func (pd *PD) CreateQP(init *QPInitAttr) (*QP, error) {
	return pd.createQP("create_qp", init, pd.drv.CreateQP)
}

func (pd *PD) createQP(op string, init *QPInitAttr, create func(*QPDriverInit, QPUpcalls) (QPDriver, error)) (*QP, error) {
	if init == nil {
		return nil, newError(op, pd.obj(), EINVAL, "there are no attributes")
	}
	qp := &QP{pd: pd, ctx: pd.ctx, init: *init, opcodes: opcodesOf[init.Type]}
	if err := qp.checkInit(); err != nil {
		return nil, badInput(op, pd.obj(), err)
	}
	release, err := qp.useParents(op)
	if err != nil {
		return nil, err
	}
	want := QPDriverInit{Type: init.Type, Cap: init.Cap, SigAll: init.SigAll, SendCQ: init.SendCQ.drv, RecvCQ: init.RecvCQ.drv}
	if init.SRQ != nil {
		want.SRQ = init.SRQ.drv
		want.Cap.MaxRecvWR, want.Cap.MaxRecvSGE = 0, 0
	}
	if qp.drv, err = create(&want, (*qpUpcalls)(qp)); err != nil {
		release()
		return nil, driverError(op, pd.obj(), err)
	}
	qp.qpn = qp.drv.QPN()
	qp.init.Cap = want.Cap
	init.Cap = want.Cap
	return qp, nil
}

// checkInit says what is wrong with the attributes of a new QP.
func (qp *QP) checkInit() error {
	init, d := &qp.init, &qp.ctx.attr
	switch {
	case transitionsOf[init.Type] == nil && init.Type != QPTypeDriver:
		return fmt.Errorf("%v is not a QP type; there are RC, UC, UD, RAW_PACKET, XRC_SEND and XRC_RECV", init.Type)
	case init.SendCQ == nil || init.RecvCQ == nil:
		return errors.New("a QP needs a CQ for sends and one for receives, which may be the same")
	case init.SendCQ.ctx != qp.ctx || init.RecvCQ.ctx != qp.ctx:
		return errors.New("a CQ belongs to another context")
	case init.SRQ != nil && init.SRQ.pd != qp.pd:
		return errors.New("the SRQ belongs to another PD")
	case init.SRQ != nil && (init.Type == QPTypeUC || init.Type == QPTypeRawPacket):
		return fmt.Errorf("a %v QP cannot have an SRQ; RC, UD and XRC can", init.Type)
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
		if int64(s.got) > int64(s.max) && (!s.ofRecvRQ || init.SRQ == nil) {
			return fmt.Errorf("%s %d is not possible; 0 to %d are", s.name, s.got, s.max)
		}
	}
	return nil
}

// useParents counts the QP as a user of all that it is made of. release undoes it.
func (qp *QP) useParents(op string) (release func(), err error) {
	type parent struct {
		life *life
		obj  string
	}
	parents := []parent{{&qp.pd.life, qp.pd.obj()}, {&qp.init.SendCQ.life, "send CQ"}}
	if qp.init.RecvCQ != qp.init.SendCQ {
		parents = append(parents, parent{&qp.init.RecvCQ.life, "receive CQ"})
	}
	if qp.init.SRQ != nil {
		parents = append(parents, parent{&qp.init.SRQ.life, qp.init.SRQ.obj()})
	}
	for i, p := range parents {
		if !p.life.use(kindQP) {
			for _, p := range parents[:i] {
				p.life.drop(kindQP)
			}
			return nil, errClosed(op, p.obj)
		}
	}
	return func() {
		for _, p := range parents {
			p.life.drop(kindQP)
		}
	}, nil
}

// release gives back what useParents took.
func (qp *QP) release() {
	qp.pd.life.drop(kindQP)
	qp.init.SendCQ.life.drop(kindQP)
	if qp.init.RecvCQ != qp.init.SendCQ {
		qp.init.RecvCQ.life.drop(kindQP)
	}
	if qp.init.SRQ != nil {
		qp.init.SRQ.life.drop(kindQP)
	}
}

// QPN is the QP's number, 24 bits, which peers must know (qp_num).
func (qp *QP) QPN() uint32 { return qp.qpn }

// Type is the QP's type (qp_type).
func (qp *QP) Type() QPType { return qp.init.Type }

// State is the QP's state (state of struct ibv_qp), which the device may change at any time.
func (qp *QP) State() QPState { return QPState(qp.word.Load() & stateMask &^ stateClosed) }

// PD is the protection domain that the QP is in.
func (qp *QP) PD() *PD { return qp.pd }

// Context is the context that the QP belongs to.
func (qp *QP) Context() *Context { return qp.ctx }

// QPContext is QPInitAttr.Context (qp_context).
func (qp *QP) QPContext() any { return qp.init.Context }

// SendCQ is the CQ of the send queue.
func (qp *QP) SendCQ() *CQ { return qp.init.SendCQ }

// RecvCQ is the CQ of the receives.
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
// attached to a multicast group. It blocks until the asynchronous events of the QP that were got are acknowledged.
func (qp *QP) Close() error {
	const op = "destroy_qp"
	if err := qp.destroy(op); err != nil {
		return err
	}
	qp.ctx.async.purge(&qp.asyncEv)
	qp.release()
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
	if err := qp.drv.Destroy(); err != nil {
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
