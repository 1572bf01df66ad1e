package transport

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// onResponse handles a response: ACK, NAK, READ response or atomic response. Every response acknowledges all SENDs
// and WRITEs before its PSN. If it arrives before the answer to an earlier READ or atomic, that answer was lost. A
// response outside una to max is a stale duplicate and is ignored.
func (r *requester) onResponse(now int64, p *link.RxPacket, info *wire.Info) {
	h := wire.BTH(p.Data)
	at := h.PSN()
	r.heard = true
	if (at-r.una)&psn.Mask >= (r.max-r.una)&psn.Mask {
		return
	}
	if info.AETH != 0 && !wire.AETH(p.Data[info.AETH:]).IsAck() {
		r.onNak(now, at, h.Opcode().Operation(), wire.AETH(p.Data[info.AETH:]))
		return
	}
	switch op := h.Opcode().Operation(); op {
	case wire.Ack:
		if !r.advance(now, psn.Next(at)) {
			r.onLostResponse(now)
		}
	case wire.AtomicAck:
		r.onAtomicAck(now, at, wire.Packet(p.Data).AtomicAck())
	default:
		r.onReadResponse(now, at, op, p)
	}
	r.runDeferred()
}

// advance acknowledges SENDs and WRITEs up to PSN end, exclusive, and reports whether it reached end: it stops at a
// READ or atomic request, which only a response with data completes.
func (r *requester) advance(now int64, end uint32) bool {
	before, freed := r.una, 0
	for r.una != end {
		w := r.oldest()
		if w.waitsForAnswer() {
			break
		}
		off := (r.una - w.first) & psn.Mask
		n := min(w.count-off, (end-r.una)&psn.Mask)
		freed += r.cost(w, off, off+n)
		r.una = (r.una + n) & psn.Mask
		if off+n == w.count {
			r.finish(w, Success, nil)
		}
	}
	if r.una != before {
		r.acknowledged(now, before, freed)
	}
	return r.una == end
}

// acknowledged updates timers, window and budget after una has advanced from before. freed is the cost of the
// acknowledged PSNs.
func (r *requester) acknowledged(now int64, before uint32, freed int) {
	r.progress(now)
	if r.una == r.max {
		r.sentByReference = false
		r.win.setPipe(0)
	}
	if (r.una-before)&psn.Mask <= (r.nxt-before)&psn.Mask {
		r.win.release(freed)
		r.endProbe(now, before)
		return
	}
	// The response acknowledges packets sent before the last rewind: they need not be sent again.
	r.win.clear()
	r.nxt, r.cur = r.una, r.head
}

// answered advances una by n PSNs of w, a READ or atomic request, that were answered with data. off is the first of
// these PSNs, relative to w.
func (r *requester) answered(now int64, w *SendWQE, off, n uint32) {
	before := r.una
	r.una = psn.Add(r.una, int(n))
	if off+n == w.cellEnd(off) && r.reads > 0 { // reads is 0 after a rewind, before the request is sent again
		r.reads--
	}
	freed := r.cost(w, off, off+n)
	if off+n == w.count {
		r.finish(w, Success, nil)
	}
	r.acknowledged(now, before, freed)
}

// onReadResponse handles one packet of a READ response.
func (r *requester) onReadResponse(now int64, at uint32, op wire.Opcode, p *link.RxPacket) {
	data, n := payload{p.Payload(), p.Away}, uint32(1)
	if p.Train {
		n = max(1, (uint32(data.len())+r.mtu-1)>>r.shift)
	}
	if !r.advance(now, at) {
		r.onLostResponse(now)
		return
	}
	w := r.oldest()
	if w.isPlacement() {
		r.onPlaced(now, w, op, data.len())
		return
	}
	if w.Op != OpRead {
		r.failHead(now, BadRespErr, 0, "the peer answered a request other than a READ with READ data")
		return
	}
	off := (at - w.first) & psn.Mask
	pos := r.bytes(w, off)
	switch {
	case !r.fits(w, off, n, op):
		r.failHead(now, BadRespErr, 0, "the READ response has an opcode that is invalid at its position: "+op.String())
		return
	case data.len() != int(r.bytes(w, off+n)-pos):
		r.failHead(now, BadRespErr, 0, "the READ response has the wrong length")
		return
	}
	if why := r.scatter(w, pos, data); why != "" {
		r.failHead(now, LocProtErr, 0, why)
		return
	}
	if !data.intact(p.Epoch) {
		r.to.pos = nowhere
		r.onLostResponse(now)
		return
	}
	if p.Epoch.Set() {
		r.win.widen()
	}
	r.qp.bytes.received += uint64(data.len())
	r.answered(now, w, off, n)
}

// fits reports whether opcode op is valid for a READ response that covers n PSNs of w from relative PSN off on. The
// response to a READ request runs from the request's first PSN to the end of its cell. After a retry, a response to
// the first transmission may still arrive and is accepted.
func (r *requester) fits(w *SendWQE, off, n uint32, op wire.Opcode) bool {
	if off+n > w.cellEnd(off) {
		return false
	}
	end := off+n == w.cellEnd(off)
	inside := off%w.cell != 0
	starts := !inside || r.una == r.restart
	switch op {
	case wire.ReadRespFirst:
		return starts && !end
	case wire.ReadRespMiddle:
		return inside && !end
	case wire.ReadRespLast:
		return inside && end
	}
	return starts && end // wire.ReadRespOnly
}

// onAtomicAck handles an atomic response. value is the original content of the peer's memory; it is stored in the
// local buffer in host byte order.
func (r *requester) onAtomicAck(now int64, at uint32, value uint64) {
	if !r.advance(now, at) {
		r.onLostResponse(now)
		return
	}
	w := r.oldest()
	if !w.isAtomic() {
		r.failHead(now, BadRespErr, 0, "the peer answered a request other than an atomic with an atomic acknowledge")
		return
	}
	binary.NativeEndian.PutUint64(r.value[:], value)
	if why := r.scatter(w, 0, payload{bytes: r.value[:]}); why != "" {
		r.failHead(now, LocProtErr, 0, why)
		return
	}
	r.answered(now, w, 0, 1)
}

// onNak handles a NAK of PSN at. It acknowledges everything before at.
func (r *requester) onNak(now int64, at uint32, op wire.Opcode, h wire.AETH) {
	if !r.advance(now, at) {
		r.onLostResponse(now)
		r.runDeferred()
		return
	}
	r.runDeferred()
	if r.phase == halted {
		return // a deferred failure stopped the queue
	}
	if op != wire.Ack {
		r.failHead(now, BadRespErr, h.Syndrome(), "the peer sent data together with a NAK")
		return
	}
	switch syn := h.Syndrome(); {
	case h.IsRNR():
		r.onRNR(now, h)
	case syn == wire.SynSeqErr:
		r.onSequenceNak(now)
	case syn == wire.SynInvReq:
		r.qp.Counters.ReqRemoteInvalid++
		r.failHead(now, RemInvReqErr, syn, "the peer answered NAK invalid request")
	case syn == wire.SynAccess:
		r.qp.Counters.ReqRemoteAccessErr++
		r.failHead(now, RemAccessErr, syn, "the peer answered NAK remote access error")
	case syn == wire.SynOpErr:
		r.failHead(now, RemOpErr, syn, "the peer answered NAK remote operational error")
	default:
		r.failHead(now, BadRespErr, syn, "the peer answered with a reserved syndrome")
	}
}

// failHead fails the oldest work request, which una belongs to.
func (r *requester) failHead(now int64, st Status, syndrome uint8, why string) {
	f := r.failure(now, r.oldest(), st, why)
	f.Syndrome = syndrome
	r.fail(f)
}
