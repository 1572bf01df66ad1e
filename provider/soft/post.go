package soft

import (
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// PostSend copies requests into the send queue and starts the engine's sending. Only the paths of AHs are kept of
// wrs.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) { return q.post(wrs, false) }

// PostSendAll is PostSend of all requests or none.
func (q *qp) PostSendAll(wrs []verbs.SendWR) (int, error) { return q.post(wrs, true) }

func (q *qp) post(wrs []verbs.SendWR, all bool) (n int, err error) {
	if engine.Crowded() {
		q.PrefetchSend()
	}
	sq, err := q.BeginPost()
	if err == nil {
		n, err = fillAll(q, sq, wrs, all)
		q.EndPost()
	}
	if engine.Packed() {
		q.PrefetchFollowers()
	}
	return n, verbsError("", err)
}

// filler is a QP that copies a request into its slot.
type filler interface {
	fill(sq *transport.SendQueue, w *transport.SendWQE, wr *verbs.SendWR) error
}

// fillAll copies requests into their slots until one is invalid, and returns their number. If all is set, an invalid
// request removes the others. sq is locked.
//
// +checklocksignore: the analyzer does not follow what locks sq.
func fillAll(q filler, sq *transport.SendQueue, wrs []verbs.SendWR, all bool) (n int, err error) {
	for n < len(wrs) && err == nil {
		w := sq.Next()
		if w == nil {
			err = transport.ErrQueueFull
			break
		}
		if err = q.fill(sq, w, &wrs[n]); err == nil {
			sq.Commit()
			n++
		}
	}
	if err != nil && all {
		sq.Abort()
	}
	return n, err
}

// sendOps are the operations that fill supports for some type of QP.
const sendOps = verbs.QPExWithRDMAWrite | verbs.QPExWithRDMAWriteWithImm | verbs.QPExWithSend |
	verbs.QPExWithSendWithImm |
	verbs.QPExWithRDMARead | verbs.QPExWithAtomicCmpAndSwp | verbs.QPExWithAtomicFetchAndAdd | verbs.QPExWithLocalInv |
	verbs.QPExWithBindMW | verbs.QPExWithSendWithInv | verbs.QPExWithFlush | verbs.QPExWithAtomicWrite

// fill copies a request into its slot.
//
// +checklocks:sq.mu
func (q *qp) fill(sq *transport.SendQueue, w *transport.SendWQE, wr *verbs.SendWR) error {
	w.WRID = wr.WRID
	w.Op = transport.Op(wr.Opcode)
	w.Flags = transport.SendFlags(wr.Flags)
	w.RemoteAddr, w.RKey = wr.RemoteAddr, wr.RKey
	switch wr.Opcode {
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		m := sq.More(w)
		m.CompareAdd, m.Swap = wr.CompareAdd, wr.Swap
	case verbs.WRSendWithInv, verbs.WRLocalInv:
		w.Imm = wr.InvalidateRKey
	case verbs.WRBindMW:
		sq.More(w).Bind = toBinding(wr)
		w.Length = 0
		return nil
	case verbs.WRFlush:
		w.Imm, w.Length = uint32(wr.Flush.Level)<<4|uint32(wr.Flush.Type), wr.Flush.Length // as in the FETH
		if q.xrc {
			sq.More(w).RemoteSRQN = wr.RemoteSRQN
		}
		return nil
	case verbs.WRTSO:
		w.Inline = append(w.Inline, wr.TSO.Hdr...)
		sq.More(w).MSS = wr.TSO.MSS
	default:
		w.Imm = wr.ImmData
	}
	switch {
	case q.xrc:
		sq.More(w).RemoteSRQN = wr.RemoteSRQN
	case wr.AH != nil && q.Type == transport.UD:
		m, to := sq.More(w), driver.Of[*ah](wr.AH)
		m.Path, m.RemoteQPN, m.RemoteQKey, m.PKey = &to.path, wr.RemoteQPN, wr.RemoteQKey, 0
		if q.Num() == wire.GSIQPN {
			m.PKey = to.key()
		}
	}
	return q.pd.fillData(sq, w, wr)
}

// fillData sets what a request sends: its inline data or its SGEs.
//
// +checklocks:sq.mu
func (p *pd) fillData(sq *transport.SendQueue, w *transport.SendWQE, wr *verbs.SendWR) error {
	if wr.Flags&verbs.SendInline != 0 {
		return p.fillInline(sq, w, wr)
	}
	length := lengthOf(wr.SGList)
	if length > maxMessage {
		return fail(verbs.EINVAL, "%v: message of %d bytes: must be 0 to %d", wr.Opcode, length, uint64(maxMessage))
	}
	w.Length = uint32(length)
	w.SGEs = append(w.SGEs, toSGEs(wr.SGList)...)
	return nil
}

// lengthOf returns the number of bytes of a list.
func lengthOf(list []verbs.SGE) (n uint64) {
	for i := range list {
		n += uint64(list[i].Length)
	}
	return n
}

// fillInline copies the data of a request with SendInline.
//
// +checklocks:sq.mu
func (p *pd) fillInline(sq *transport.SendQueue, w *transport.SendWQE, wr *verbs.SendWR) error {
	if wr.Inline != nil {
		w.Inline = append(sq.InlineRoom(w, len(wr.Inline)), wr.Inline...)
		w.Length = uint32(len(w.Inline))
		return nil
	}
	w.Inline = sq.InlineRoom(w, int(lengthOf(wr.SGList)))
	if dev := p.ctx.dev; !sq.Held() { // waitUnused waits for holders of shards, and then for these
		dev.inline.RLock()
		defer dev.inline.RUnlock()
	}
	for i := range wr.SGList {
		s := &wr.SGList[i]
		if s.Length == 0 {
			continue // its key is not checked, as without SendInline
		}
		b, err := p.ctx.regions.Check(s.LKey, s.Addr, uint64(s.Length), p.num, 0)
		if err != nil {
			return fail(verbs.EINVAL, "%v: inline data: SGE %d, lkey %#x, address %#x, %d bytes: %v", wr.Opcode, i, s.LKey,
				s.Addr, s.Length, err)
		}
		at := len(w.Inline)
		w.Inline = w.Inline[:at+len(b)]
		if _, ok := mr.Copy(w.Inline[at:], b); !ok {
			return fail(verbs.EINVAL, "%v: inline data: SGE %d, lkey %#x, address %#x, %d bytes: %v", wr.Opcode, i, s.LKey,
				s.Addr, s.Length, mr.ErrUnmapped)
		}
	}
	w.Length = uint32(len(w.Inline))
	return nil
}

// PostRecv appends receives to the QP's own queue.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if engine.Crowded() {
		q.PrefetchRecv()
	}
	if q.State() == transport.Reset {
		return 0, verbsError("", transport.ErrState)
	}
	n, err := postRecv(q.RQ, wrs)
	q.PostedRecv()
	return n, err
}

// postRecv appends receives to a queue.
func postRecv(rq *transport.RecvQueue, wrs []verbs.RecvWR) (int, error) {
	rq.Lock()
	for i := range wrs {
		if err := rq.Put(wrs[i].WRID, toSGEs(wrs[i].SGList)); err != nil {
			rq.Unlock()
			return i, verbsError("", err)
		}
	}
	rq.Unlock()
	return len(wrs), nil
}
