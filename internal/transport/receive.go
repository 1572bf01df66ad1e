package transport

import (
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// maxMessage is the longest message, bytes (V-TR-06).
const maxMessage = 1 << 31

// receive is a receive request taken from its queue, and how far it is filled.
type receive struct {
	held bool // it was taken and has no completion yet
	wqe  RecvWQE
	room uint64 // bytes of its scatter list
	got  uint64 // bytes written
	sge  int    // the entry to write next, and where in it
	off  uint32
	kept bool // it was taken for the first packet of a message, which must come again
	skip int  // what is not data at the beginning of that
	tagged
}

// begin makes wqe the receive that is held.
func (v *receive) begin() {
	v.held, v.kept, v.room = true, false, roomOf(v.wqe.SGEs)
	v.got, v.sge, v.off = 0, 0, 0
	v.tagged = tagged{}
}

// onSend takes one packet of a SEND.
func (r *responder) onSend(p wire.Packet, info *wire.Info) *fault {
	data := r.data
	if info.Flags&wire.HasInv != 0 && r.reading(p.IETH()) {
		return notYet
	}
	skip := 0
	if info.Flags&wire.Start != 0 {
		var f *fault
		switch {
		case r.recv.held && r.recv.kept:
			skip = r.recv.skip
		case r.rq.tags != nil:
			skip, f = r.takeTagged(info)
		case !r.take():
			f = notReady
		}
		if f != nil {
			return f
		}
	}
	if !r.checkPayload(info, len(data)) {
		return faultSendPacket
	}
	if r.recv.deferred {
		return r.rendezvous()
	}
	data = data[skip:]
	got, sge, off := r.recv.got, r.recv.sge, r.recv.off
	switch {
	case r.recv.got+uint64(len(data)) > min(r.recv.room, maxMessage):
		return faultSendTooLong
	case !r.scatter(data):
		return faultReceive
	case !r.taken():
		r.recv.got, r.recv.sge, r.recv.off = got, sge, off
		r.recv.kept, r.recv.skip = info.Flags&wire.Start != 0, skip
		return revoked
	}
	r.recv.kept = false
	r.qp.Counters.RxDataBytes += uint64(len(data))
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
	r.recv.held = false
	r.phase = between
	r.step(r.span, true)
	r.cq.Push(e)
}

// invalidate makes a memory window's key invalid, as a SEND with invalidate asks, and tells
// whether it could. A peer can invalidate windows of type 2 that were bound through its QP, nothing else.
func (r *responder) invalidate(rkey uint32) bool {
	if err := r.qp.Regions.Invalidate(rkey, r.pd, r.qp.id); err != nil {
		r.denied = denied{err: err, key: rkey}
		return false
	}
	return true
}

// reading tells whether answers to READs through a key still wait to be sent. A peer that does not wait for
// its READs before it invalidates the key must ask for that once more when they are answered.
func (r *responder) reading(rkey uint32) bool {
	for i := r.todo; i != r.head; i++ {
		if res := r.at(i); res.pending && res.kind == resRead && res.rkey == rkey {
			return true
		}
	}
	return false
}

// take gets the receive for a message that begins, or for the immediate data of a WRITE.
func (r *responder) take() bool {
	ok, _ := r.takeFor(0)
	return ok
}

// takeFor takes a receive with room for at least n bytes; one that is too small stays in its queue.
func (r *responder) takeFor(n uint64) (ok, small bool) {
	v := &r.recv
	if ok, small = r.rq.takeFor(&v.wqe, n); ok {
		v.begin()
	}
	return ok, small
}

// scatter writes data behind what the receive holds already. The caller has checked that
// there is room. It tells whether the entries' keys, bounds and rights were in order.
func (r *responder) scatter(data []byte) bool {
	v, pd := &r.recv, r.pd
	if r.rq.Shared() {
		pd = r.rq.PD()
	}
	for len(data) > 0 {
		s := &v.wqe.SGEs[v.sge]
		n := min(uint64(s.Length-v.off), uint64(len(data)))
		if n == 0 {
			v.sge, v.off = v.sge+1, 0
			continue
		}
		dst, ok := r.ours(s.LKey, s.Addr+uint64(v.off), n, pd)
		if !ok {
			return false
		}
		mr.Copy(dst, data[:n])
		v.off += uint32(n)
		v.got += n
		data = data[n:]
	}
	return true
}

// newCQE begins the completion of the receive that is held.
func (r *responder) newCQE(op CQOp, n uint32) *CQE {
	r.cqe = CQE{
		WRID: r.recv.wqe.WRID, Op: op, ByteLen: n,
		QPN: r.qp.Num, PKeyIndex: r.qp.attr.PKeyIndex,
		QP: r.qp, SRQ: r.rq,
	}
	r.recv.tell(&r.cqe, r.rq.tags)
	return &r.cqe
}

// fail completes the receive that is held with an error.
func (r *responder) fail(status Status, cause *Failure) {
	e := r.newCQE(CQRecv, 0)
	e.Status, e.Cause = status, cause
	r.recv.held = false
	if status != WRFlushErr {
		r.qp.Counters.RespCQEError++
	}
	r.cq.Push(e)
}

// flush completes every receive of a QP in ERR (V-QPS-16, V-QPS-17). Of an SRQ only the one
// that the QP holds is its own (X-QPS-02). No reply leaves any more but the NAK that tells the peer why.
func (r *responder) flush() {
	var cause *Failure
	flushed := func() *Failure {
		if cause == nil {
			cause = r.qp.flushed()
		}
		return cause
	}
	if r.recv.held {
		r.fail(WRFlushErr, flushed())
	}
	r.phase = between
	r.abort()
	q := r.rq
	if q == nil || q.Shared() {
		return
	}
	for q.Take(&r.recv.wqe) {
		r.fail(WRFlushErr, flushed())
	}
}

// abandon forgets the receive that is held, without a completion (RESET). Its place in the queue is free again.
func (r *responder) abandon() {
	if r.recv.held {
		r.recv.held = false
		if r.recv.matched {
			r.rq.tags.Polled(CQTMRecv)
		} else {
			r.rq.Release(1)
		}
	}
}
