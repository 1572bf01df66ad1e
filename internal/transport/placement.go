package transport

import (
	"encoding/binary"
	"errors"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// FLUSH and ATOMIC WRITE are the memory placement extensions of IBTA annex A19. Each is one packet, takes a responder
// resource as a READ does, and is answered by an empty READ response. That response guarantees that the bytes are
// visible to the responder's CPU. The acknowledgement of a WRITE does not guarantee this on every adapter. This
// responder needs no further step: it stores a WRITE in memory before it processes the next packet.

// Values of a FLUSH.
const (
	flushGlobal = 1 // placement: visible to the responder's CPU
	// flushPersistent: kept without power. No region has the right to it, so that a FLUSH with it is refused as any
	// other access without a right.
	flushPersistent = 2
	flushRange      = 0 // selectivity: the bytes named by the RETH
	flushMR         = 1 // selectivity: the whole region or window of the key; the RETH's range is ignored
)

var errPersistent = errors.New("no region gives the right to flush to persistent memory")

// onFlush checks whether the peer may flush the bytes. The bytes are in memory already.
func (r *responder) onFlush(p wire.Packet) *fault {
	h, f := p.RETH(), p.FETH()
	res := r.newResource()
	switch {
	case res == nil:
		return faultTooMany
	case f.Placement()&^(flushGlobal|flushPersistent) != 0, f.Placement() == 0, f.Selectivity() > flushMR:
		return faultOpcode
	case f.Placement()&flushPersistent != 0:
		r.denied = denied{err: errPersistent, key: h.RKey()}
		return faultAccess
	case f.Selectivity() == flushMR:
		if err := r.qp.Regions.CheckKey(h.RKey(), r.pd, r.qp.id, mr.FlushGlobal); err != nil {
			r.denied = denied{err: err, key: h.RKey()}
			return faultAccess
		}
	default:
		_, window, ok := r.theirs(h.RKey(), h.Addr(), uint64(h.DMALen()), r.pd, mr.FlushGlobal)
		if !ok {
			return faultAccess
		}
		window.Release()
	}
	r.done(res, p, 0)
	return nil
}

// onAtomicWrite stores 8 bytes atomically. A duplicate is never executed again, because the memory may have changed
// since.
func (r *responder) onAtomicWrite(p wire.Packet) *fault {
	h := p.RETH()
	res := r.newResource()
	switch {
	case res == nil:
		return faultTooMany
	case h.DMALen() != wire.AtomicWriteLen || len(r.data.bytes) != wire.AtomicWriteLen:
		return faultWriteLength
	case h.Addr()%8 != 0:
		return faultMisaligned
	}
	word, window, ok := r.theirs(h.RKey(), h.Addr(), wire.AtomicWriteLen, r.pd, mr.RemoteWrite)
	if !ok {
		return faultAccess
	}
	ok = mr.Set(word, mr.Load(r.data.bytes))
	window.Release()
	if !ok {
		r.unmapped(h.RKey(), h.Addr(), wire.AtomicWriteLen)
		return faultAccess
	}
	r.qp.bytes.received += wire.AtomicWriteLen
	r.done(res, p, 0)
	return nil
}

// sendFlush appends a FLUSH. Imm holds its placement and selectivity, encoded as in the FETH.
func (r *requester) sendFlush(now int64, tx *link.TxBatch, w *SendWQE) bool {
	b, info := r.ask(now, tx, wire.Flush, w)
	if b == nil {
		return false
	}
	binary.BigEndian.PutUint32(b[info.FETH:], w.Imm)
	wire.RETH(b[info.RETH:]).Put(w.RemoteAddr, w.RKey, w.Length)
	r.tell(tx, w)
	r.sent(now, w, 1, r.cost(w, 0, 1))
	return true
}

// onPlaced handles the response to w, a READ response without data. n is the length of its data.
func (r *requester) onPlaced(now int64, w *SendWQE, op wire.Opcode, n int) {
	if op != wire.ReadRespOnly || n != 0 {
		r.failHead(now, BadRespErr, 0, "the peer answered a FLUSH or ATOMIC WRITE with READ data")
		return
	}
	r.answered(now, w, 0, 1)
}
