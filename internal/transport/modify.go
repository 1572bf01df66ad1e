package transport

import (
	"errors"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// ErrDraining is returned while a QP in SQD still has started requests outstanding: only a drained QP may return to
// RTS or have its attributes changed (V-QPS-11).
var ErrDraining = errors.New("the send queue is still draining")

// Modify applies the attributes named by m and makes the state transition requested by MaskState. The verbs layer has
// checked both against the tables. The shard is held.
//
// On RESET the caller removes the QP's entries from the completion queues. Posting goroutines must check State with
// the send queue locked, because RESET empties the queue.
func (qp *QP) Modify(now int64, a *Attr, m Mask) error {
	old, next := qp.State(), qp.State()
	if m&MaskState != 0 {
		next = a.State
	}
	if old == SQD && (next == RTS || next == SQD) && qp.Draining() {
		return ErrDraining
	}
	switch next {
	case Reset:
		qp.enterReset()
		return nil
	case Err:
		if old != Err {
			qp.state.Store(uint32(Err))
			qp.enterErr()
		}
		return nil
	}
	if err := qp.checkMig(a, m); err != nil {
		return err
	}
	qp.attr.put(a, m)
	if m&(MaskPort|MaskPKeyIndex|MaskAltPath) != 0 {
		qp.LoadPKeys()
	}
	if m&MaskAV != 0 {
		qp.takePath() // packets already batched keep the old path
	}
	if m&MaskMigState != 0 {
		qp.setMig(a.Mig)
	}
	qp.enter(now, old, next, m)
	return nil
}

// enter makes a transition between two working states.
func (qp *QP) enter(now int64, old, next State, m Mask) {
	switch {
	case old == Init && next == RTR:
		qp.resp.start()
	case old == RTR && next == RTS:
		qp.req.start()
		qp.req.heardFrom(now)
	case old == RTS && next == SQD:
		qp.attr.SQDNotify = qp.attr.SQDNotify && m&MaskSQDNotify != 0
		qp.state.Store(uint32(SQD))
		qp.req.drain()
		return
	case old == SQD && next == RTS:
		qp.req.resume()
	case old == SQE && next == RTS:
		qp.req.flush() // requests posted in SQE after the flush of failSend
		qp.first = nil
		qp.req.resume()
	}
	qp.state.Store(uint32(next))
}

// enterReset clears everything but the QP's identity (V-QPS-03). The state changes first, so that nothing more is
// posted.
func (qp *QP) enterReset() {
	qp.state.Store(uint32(Reset))
	qp.req.reset()
	qp.resp.reset()
	qp.req.life = lives.Add(1)
	qp.attr, qp.path, qp.first = Attr{}, nil, nil
	qp.pace, qp.pacing, qp.congestion, qp.resp.cnpDue = pace{}, pacing{}, congestion{}, false
	qp.ended.Store(nil)
	qp.baseFlags = wire.BTHMigReq
}

// Draining reports whether a QP in SQD still has work requests to finish (attribute sq_draining).
func (qp *QP) Draining() bool { return qp.req.phase == draining }

// put copies the attributes named by m. MaskState and MaskAV need further steps.
func (t *Attr) put(a *Attr, m Mask) {
	set(&t.Path, a.Path, m&MaskAV)
	set(&t.PathOwner, a.PathOwner, m&MaskAV)
	set(&t.Port, a.Port, m&MaskPort)
	set(&t.Alt, a.Alt, m&MaskAltPath)
	set(&t.AltOwner, a.AltOwner, m&MaskAltPath)
	set(&t.AltPKey, a.AltPKey, m&MaskAltPath)
	set(&t.AltPKeyIdx, a.AltPKeyIdx, m&MaskAltPath)
	set(&t.AltPort, a.AltPort, m&MaskAltPath)
	set(&t.AltTimeout, a.AltTimeout, m&MaskAltPath)
	set(&t.SQDNotify, a.SQDNotify, m&MaskSQDNotify)
	set(&t.Access, a.Access, m&MaskAccess)
	set(&t.PKeyIndex, a.PKeyIndex, m&MaskPKeyIndex)
	set(&t.PKey, a.PKey, m&MaskPKeyIndex)
	set(&t.QKey, a.QKey, m&MaskQKey)
	set(&t.MTU, a.MTU, m&MaskPathMTU)
	set(&t.DestQPN, a.DestQPN, m&MaskDestQPN)
	set(&t.RQPSN, a.RQPSN, m&MaskRQPSN)
	set(&t.SQPSN, a.SQPSN, m&MaskSQPSN)
	set(&t.MaxRdAtomic, a.MaxRdAtomic, m&MaskMaxRdAtomic)
	set(&t.MaxDestRdAtom, a.MaxDestRdAtom, m&MaskMaxDestRdAtom)
	set(&t.MinRNRTimer, a.MinRNRTimer, m&MaskMinRNRTimer)
	set(&t.Timeout, a.Timeout, m&MaskTimeout)
	set(&t.RetryCnt, a.RetryCnt, m&MaskRetryCnt)
	set(&t.RNRRetry, a.RNRRetry, m&MaskRNRRetry)
}

func set[T any](to *T, from T, in Mask) {
	if in != 0 {
		*to = from
	}
}
