package transport

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// onResponse handles a response: ACK, NAK, READ response, atomic response. Whatever its kind, it
// acknowledges all SENDs and WRITEs before its PSN; if it comes before an answer that should
// precede it, that answer was lost. Responses to nothing under way are copies or ghosts.
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
	r.settle()
}

// advance acknowledges SENDs and WRITEs up to PSN end, exclusive, and tells whether it came so
// far: it stops at a READ or atomic request, which only its data completes.
func (r *requester) advance(now int64, end uint32) bool {
	before, freed := r.una, 0
	for r.una != end {
		w := r.sq.At(r.head)
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

// acknowledged keeps the books after una has moved on from before; freed is the cost of what lies between.
func (r *requester) acknowledged(now int64, before uint32, freed int) {
	r.progress(now)
	if r.una == r.max {
		r.referring = false
	}
	if (r.una-before)&psn.Mask <= (r.nxt-before)&psn.Mask {
		r.win.release(freed)
		r.endProbe(now, before)
		return
	}
	// An answer to something sent before the last retry: no need to send it again.
	r.win.clear()
	r.nxt, r.cur = r.una, r.head
}

// answered moves on after n PSNs from una on, of the READ or atomic request w, were answered with data.
func (r *requester) answered(now int64, w *SendWQE, off, n uint32) {
	before := r.una
	r.una = psn.Add(r.una, int(n))
	if off+n == w.cellEnd(off) && r.reads > 0 { // 0 while a retry has not asked again
		r.reads--
	}
	freed := r.cost(w, off, off+n)
	if off+n == w.count {
		r.finish(w, Success, nil)
	}
	r.acknowledged(now, before, freed)
}

// onReadResponse handles one packet of the answer to a READ.
func (r *requester) onReadResponse(now int64, at uint32, op wire.Opcode, p *link.RxPacket) {
	data, n := p.Payload(), uint32(1)
	if p.Train {
		n = max(1, (uint32(len(data))+r.mtu-1)>>r.shift)
	}
	if !r.advance(now, at) {
		r.onLostResponse(now)
		return
	}
	w := r.sq.At(r.head)
	if w.isPlacement() {
		r.onPlaced(now, w, op, data)
		return
	}
	if w.Op != OpRead {
		r.failHead(now, BadRespErr, 0, "the peer answered a request that is no READ with READ data")
		return
	}
	off := (at - w.first) & psn.Mask
	pos := r.bytes(w, off)
	switch {
	case !r.fits(w, off, n, op):
		r.failHead(now, BadRespErr, 0, "the READ response has an opcode that does not belong at its place: "+op.String())
		return
	case len(data) != int(r.bytes(w, off+n)-pos):
		r.failHead(now, BadRespErr, 0, "the READ response has the wrong length")
		return
	}
	if why := r.scatter(w, pos, data); why != "" {
		r.failHead(now, LocProtErr, 0, why)
		return
	}
	r.qp.Counters.RxDataBytes += uint64(len(data))
	r.answered(now, w, off, n)
}

// fits tells whether a READ response may have opcode op and n PSNs from number off of w on. The answer to a READ request
// runs from where the request began to the end of its cell. After a retry the answer
// to the first request may still come in, and is as good.
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

// onAtomicAck handles the answer to an atomic request: what the peer's memory held before, which
// goes to the local buffer in host byte order.
func (r *requester) onAtomicAck(now int64, at uint32, value uint64) {
	if !r.advance(now, at) {
		r.onLostResponse(now)
		return
	}
	w := r.sq.At(r.head)
	if !w.isAtomic() {
		r.failHead(now, BadRespErr, 0, "the peer answered a request that is no atomic with an atomic acknowledgement")
		return
	}
	binary.NativeEndian.PutUint64(r.value[:], value)
	if why := r.scatter(w, 0, r.value[:]); why != "" {
		r.failHead(now, LocProtErr, 0, why)
		return
	}
	r.answered(now, w, 0, 1)
}

// onNak handles a negative acknowledgement of PSN at, which acknowledges what comes before.
func (r *requester) onNak(now int64, at uint32, op wire.Opcode, h wire.AETH) {
	if !r.advance(now, at) {
		r.onLostResponse(now)
		r.settle()
		return
	}
	r.settle()
	if r.phase == halted {
		return // a failure that waited for its turn was it
	}
	if op != wire.Ack {
		r.failHead(now, BadRespErr, h.Syndrome(), "the peer sent data together with a NAK")
		return
	}
	switch syn := h.Syndrome(); {
	case h.IsRNR():
		r.onRNR(now, h.Timer())
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

// failHead makes the oldest work request fail, which is the one that una belongs to.
func (r *requester) failHead(now int64, st Status, syndrome uint8, why string) {
	f := r.failure(now, r.sq.At(r.head), st, why)
	f.Syndrome = syndrome
	r.fail(f)
}
