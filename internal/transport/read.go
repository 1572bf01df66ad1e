package transport

import (
	"errors"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// onRead handles an RDMA READ request. It uses as many PSNs as it has response packets. The request is checked here;
// sendRead builds the responses in transmit.
func (r *responder) onRead(p wire.Packet) *fault {
	h := p.RETH()
	n := h.DMALen()
	r.qp.Counters.RxReadRequests++
	res := r.newResource()
	switch {
	case res == nil:
		return faultTooMany
	case n > maxMessage:
		return faultReadLength
	case n > 0:
		_, window, ok := r.theirs(h.RKey(), h.Addr(), uint64(n), r.pd, mr.RemoteRead)
		if !ok {
			return faultAccess
		}
		window.Release()
	}
	count := r.packets(n)
	*res = resource{
		kind: resRead, first: r.epsn, last: psn.Add(r.epsn, count-1),
		rkey: h.RKey(), pd: r.pd, addr: h.Addr(), size: n,
		next: r.epsn, at: h.Addr(), left: n,
	}
	r.step(count, true)
	r.queue(res)
	return nil
}

// packets returns the number of response packets of a READ of n bytes.
func (r *responder) packets(n uint32) int {
	mtu := uint64(r.qp.attr.MTU)
	return max(1, int((uint64(n)+mtu-1)/mtu))
}

// replayRead executes a READ request again, because responses were lost. The request may ask only for a tail of the
// original range (IBTA C9-110).
func (r *responder) replayRead(p wire.Packet) {
	h, seq := p.RETH(), p.BTH().PSN()
	i, ok := r.find(resRead, seq)
	if !ok {
		r.qp.Counters.BadDuplicate++
		return
	}
	res, n := r.at(i), h.DMALen()
	skip := h.Addr() - res.addr // a huge value if the address is below the original range
	inside := skip <= uint64(res.size) && uint64(n) <= uint64(res.size)-skip && (n > 0 || res.size == 0)
	if res.size > 0 && (!inside || h.RKey() != res.rkey) || n > res.size ||
		psn.Less(res.last, psn.Add(seq, r.packets(n)-1)) {
		r.qp.Counters.BadDuplicate++
		return
	}
	res.next, res.at, res.left, res.begun, res.again = seq, h.Addr(), n, false, true
	r.requeue(i)
}

// sendRead appends the next response packet of a READ and reports whether there was room. The memory is checked and
// read now. If the peer no longer has access the QP fails, unless the READ was answered before.
func (r *responder) sendRead(now int64, res *resource, tx *link.TxBatch) bool {
	qp := r.qp
	n, segs := min(res.left, uint32(qp.attr.MTU)), 1
	var ref reference
	if res.left > n {
		var most int
		if ref, most = r.byReference(res, tx); most == 0 {
			most = tx.Train(qp.path, qp.attr.DestQPN)
		}
		segs = max(1, min(r.packets(res.left), most/qp.attr.MTU))
		n = min(res.left, uint32(segs*qp.attr.MTU))
	}
	if !ref.worth(n) {
		ref.share = nil
	}
	op := readOp(!res.begun, n == res.left)
	var src []byte
	if n > 0 {
		b, window, ok := r.readable(res, uint64(n))
		switch {
		case ok:
		case res.answered: // the peer may have invalidated the key after it received the first answer
			qp.Counters.BadDuplicate++
			res.pending = false
			return true
		default:
			r.refuse(faultAccess, res.next)
			return true
		}
		defer window.Release()
		src = b
	}
	head, pad := (qp.prefix() | op).Info().Len, int(-n&3)
	b := ref.allocate(tx, qp.path, qp.attr.DestQPN, head, int(n), pad, segs > 1)
	if b == nil {
		return false
	}
	r.putBTH(b, op, pad, res.next)
	if op != wire.ReadRespMiddle {
		wire.AETH(b[wire.BTHLen:]).Put(wire.SynAck, res.msn)
	}
	if ref.share != nil {
		r.lent = true
	} else if !copyPayload(tx, b, head, src) {
		r.refuseUnmapped(res, n)
		return true
	}
	qp.bytes.sent += uint64(n)
	qp.charge(now, qp.path, head, segs, n+uint32(pad))
	res.begun = true
	res.next, r.took = psn.Add(res.next, segs), uint16(segs)
	res.at += uint64(n)
	res.left -= n
	if res.left == 0 {
		res.pending, res.answered = false, true
	}
	return true
}

// readable returns the next n bytes of a READ, if the peer still has the right to them. The caller releases the window.
func (r *responder) readable(res *resource, n uint64) ([]byte, *mr.Window, bool) {
	if r.qp.attr.Access&accessRead == 0 {
		r.denied = denied{errNoRead, res.rkey, res.at, n}
		return nil, nil, false
	}
	return r.theirs(res.rkey, res.at, n, res.pd, mr.RemoteRead)
}

var errNoRead = errors.New("the QP does not permit READs any more")

// refuseUnmapped ends a READ whose next n bytes the program has unmapped.
func (r *responder) refuseUnmapped(res *resource, n uint32) {
	r.unmapped(res.rkey, res.at, uint64(n))
	r.refuse(faultAccess, res.next)
}

func readOp(first, last bool) wire.Opcode {
	switch {
	case first && last:
		return wire.ReadRespOnly
	case first:
		return wire.ReadRespFirst
	case last:
		return wire.ReadRespLast
	default:
		return wire.ReadRespMiddle
	}
}
