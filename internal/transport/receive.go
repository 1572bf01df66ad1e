package transport

import "github.com/verbena-rdma/verbena/internal/wire"

// maxMessage is the maximum length of a message in bytes (V-TR-06).
const maxMessage = 1 << 31

// receive is a receive taken from its queue, and how far it is filled.
type receive struct {
	tagged
	wqe  RecvWQE
	few  [2]SGE // memory of wqe.SGEs, unless a receive has more
	room uint64 // bytes of its scatter list
	got  uint64 // bytes written
	sge  int    // the SGE to write next
	off  uint32 // the offset in it
}

// begin resets the state for the receive in wqe.
func (r *responder) begin() {
	v := &r.recv
	r.held, v.room = true, roomOf(v.wqe.SGEs)
	v.got, v.sge, v.off = 0, 0, 0
	v.tagged = tagged{}
}

// waits reports whether the receive is kept for a message whose first payload was revoked.
func (r *responder) waits() bool { return r.held && r.recv.kept }

// onSend handles one packet of a SEND.
func (r *responder) onSend(p wire.Packet, info *wire.Info) *fault {
	data := r.data
	if info.Flags&wire.HasInv != 0 && r.reading(p.IETH()) {
		return notYet
	}
	skip := 0
	if info.Flags&wire.Start != 0 {
		var f *fault
		switch {
		case r.rq.tags != nil:
			skip, f = r.takeTagged(info)
		case !r.take():
			f = notReady
		}
		if f != nil {
			return f
		}
	}
	if !r.checkPayload(info, data.len()) {
		return faultSendPacket
	}
	if r.recv.deferred {
		return r.rendezvous()
	}
	n := uint64(data.len() - skip)
	got, sge, off := r.recv.got, r.recv.sge, r.recv.off
	switch {
	case r.recv.got+n > min(r.recv.room, maxMessage):
		return faultSendTooLong
	case !r.scatter(data, skip):
		return faultReceive
	case !r.payloadIntact():
		r.recv.got, r.recv.sge, r.recv.off = got, sge, off
		if info.Flags&wire.Start != 0 {
			r.untake()
		}
		return revoked
	}
	r.recv.kept = false
	r.qp.bytes.received += n
	r.phase = inSend
	if info.Flags&wire.End == 0 {
		r.step(r.span, false)
		return nil
	}
	e := r.newCQE(CQRecv, uint32(r.recv.got))
	if info.Flags&wire.HasInv != 0 {
		if !r.invalidate(p.IETH()) {
			return faultInvalidate
		}
		e.Flags |= WithInv
		e.Imm = p.IETH()
	}
	r.finish(e, p, info)
	return nil
}

// finish completes the receive of a message whose last packet is p.
func (r *responder) finish(e *CQE, p wire.Packet, info *wire.Info) {
	if info.Flags&wire.HasImm != 0 {
		e.Flags |= WithImm
		e.Imm = p.Imm()
	}
	e.Solicited = p.BTH().Solicited()
	r.held = false
	r.phase = between
	r.step(r.span, true)
	r.cq.Push(e)
}

// invalidate invalidates the key of a memory window, as a SEND with invalidate requests, and reports whether it
// succeeded. A peer can invalidate only type 2 windows that were bound through its QP.
func (r *responder) invalidate(rkey uint32) bool {
	if err := r.qp.Regions.Invalidate(rkey, r.pd, r.qp.id); err != nil {
		r.denied = denied{err: err, key: rkey}
		return false
	}
	return true
}

// reading reports whether READ responses through a key wait to be sent. A peer that invalidates the key before its
// READs are answered must send the request again afterwards.
func (r *responder) reading(rkey uint32) bool {
	for i := r.todo; i != r.head; i++ {
		if res := r.at(i); res.pending && res.kind == resRead && res.rkey == rkey {
			return true
		}
	}
	return false
}

// take takes the receive of a new message, or of the immediate data of a WRITE.
func (r *responder) take() bool {
	ok, _ := r.takeFor(0)
	return ok
}

// untake ends what take or takeTagged began, because the payload of the packet was revoked. The receive is the oldest
// of its queue again, for whatever comes next. One that was found by its tag is kept for the same message instead.
func (r *responder) untake() {
	v := &r.recv
	if v.found {
		v.kept = true
		return
	}
	r.held = false
	r.rq.putBack(&v.wqe)
}

// takeFor takes a receive with room for at least n bytes. A smaller one stays in its queue, and small is true.
func (r *responder) takeFor(n uint64) (ok, small bool) {
	v := &r.recv
	if ok, small = r.rq.takeFor(&v.wqe, n); ok {
		r.begin()
	}
	return ok, small
}

// scatter appends data from byte at on to the receive. The caller has checked that it fits. It reports whether keys,
// bounds and rights of the SGEs were valid.
func (r *responder) scatter(data payload, at int) bool {
	v, pd := &r.recv, r.pd
	if r.rq.Shared() {
		pd = r.rq.PD()
	}
	for left := uint64(data.len() - at); left > 0; {
		s := &v.wqe.SGEs[v.sge]
		n := min(uint64(s.Length-v.off), left)
		if n == 0 {
			v.sge, v.off = v.sge+1, 0
			continue
		}
		dst, ok := r.ours(s.LKey, s.Addr+uint64(v.off), n, pd)
		if !ok {
			return false
		}
		if !data.copy(dst, at) {
			return r.unmapped(s.LKey, s.Addr+uint64(v.off), n)
		}
		v.off += uint32(n)
		v.got += n
		at += int(n)
		left -= n
	}
	return true
}

// newCQE prepares the completion of the current receive.
func (r *responder) newCQE(op CQOp, n uint32) *CQE {
	e := &r.qp.Scratch.received
	*e = CQE{
		WRID: r.recv.wqe.WRID, Op: op, ByteLen: n,
		QPN: r.qp.Num, PKeyIndex: r.qp.attr.PKeyIndex,
		QP: r.qp, RQ: r.rq,
	}
	r.recv.tell(e, r.rq.tags)
	return e
}

// fail completes the current receive with an error.
func (r *responder) fail(status Status, cause *Failure) {
	e := r.newCQE(CQRecv, 0)
	e.Status, e.Cause = status, cause
	r.held = false
	if status != WRFlushErr {
		r.qp.Counters.RespCQEError++
	}
	r.cq.Push(e)
}

// flush completes every receive of a QP in ERR (V-QPS-16, V-QPS-17). Of an SRQ it completes only the receive that the
// QP has taken (X-QPS-02). Unsent replies are dropped, except the fatal NAK and those before it.
func (r *responder) flush() {
	r.revoke()
	r.endGuests(true)
	var cause *Failure
	flushed := func() *Failure {
		if cause == nil {
			cause = r.qp.flushed()
		}
		return cause
	}
	if r.held {
		r.fail(WRFlushErr, flushed())
	}
	r.abort()
	q := r.rq
	if q == nil || q.Shared() {
		return
	}
	for q.Take(&r.recv.wqe) {
		r.fail(WRFlushErr, flushed())
	}
}

// abandon drops the current receive without a completion (RESET) and frees its slot.
func (r *responder) abandon() {
	if r.held {
		r.held = false
		if r.recv.matched {
			r.rq.tags.unuse()
		} else {
			if r.recv.found {
				r.rq.tags.forget()
			}
			r.rq.Release(1)
		}
	}
}
