//go:build linux && (amd64 || arm64)

package hw

import (
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// PostSendAll posts all requests or none, by the functions of struct ibv_qp_ex.
func (q *qp) PostSendAll(wrs []verbs.SendWR) (int, error) {
	q.sq.mu.Lock()
	defer q.sq.mu.Unlock()
	if q.sq.ptr == 0 {
		return 0, syscall.EINVAL
	}
	n, err := q.build(wrs)
	if err != nil {
		return n, err
	}
	return len(wrs), nil
}

// build posts requests by the functions of struct ibv_qp_ex, all or none. With an error n is the index of the bad
// request, as far as that is known.
//
// +checklocks:q.sq.mu
func (q *qp) build(wrs []verbs.SendWR) (n int, err error) {
	if q.ex == 0 {
		return 0, fail(syscall.EOPNOTSUPP, "%v: needs a QP made with SendOpsFlags", wrs[0].Opcode)
	}
	q.op(wrStart)
	for i := range wrs {
		if err := q.add(&wrs[i]); err != nil {
			q.op(wrAbort)
			return i, err
		}
	}
	if err := q.ctx.lib.status(*at[uintptr](q.ex + wrComplete), q.ex); err != nil {
		errno, _ := err.(syscall.Errno)
		return 0, postError(int32(errno))
	}
	return len(wrs), nil
}

// op calls a function of struct ibv_qp_ex. The arguments are in Go's hands only if they are numbers.
//
//go:uintptrescapes
func (q *qp) op(off uintptr, args ...uintptr) {
	fn := *at[uintptr](q.ex + off)
	all := [8]uintptr{q.ex}
	n := 1 + copy(all[1:], args)
	call(fn, all[:n]...)
}

// add adds a request to the list that wrStart began.
//
// +checklocks:q.sq.mu
func (q *qp) add(wr *verbs.SendWR) error {
	*at[uint64](q.ex + offQPExWRID) = wr.WRID
	*at[uint32](q.ex + offQPExFlags) = uint32(wr.Flags)
	rkey, addr := uintptr(wr.RKey), uintptr(wr.RemoteAddr)
	switch wr.Opcode {
	case verbs.WRSend:
		q.op(wrSend)
	case verbs.WRSendWithImm:
		q.op(wrSendImm, uintptr(be32(wr.ImmData)))
	case verbs.WRSendWithInv:
		q.op(wrSendInv, uintptr(wr.InvalidateRKey))
	case verbs.WRRDMAWrite:
		q.op(wrWrite, rkey, addr)
	case verbs.WRRDMAWriteWithImm:
		q.op(wrWriteImm, rkey, addr, uintptr(be32(wr.ImmData)))
	case verbs.WRRDMARead:
		q.op(wrRead, rkey, addr)
	case verbs.WRAtomicCmpAndSwp:
		q.op(wrCmpSwap, rkey, addr, uintptr(wr.CompareAdd), uintptr(wr.Swap))
	case verbs.WRAtomicFetchAndAdd:
		q.op(wrFetchAdd, rkey, addr, uintptr(wr.CompareAdd))
	case verbs.WRTSO:
		hdr := q.sq.data[:copy(q.sq.data, wr.TSO.Hdr)]
		q.op(wrSendTSO, start(hdr), uintptr(len(hdr)), uintptr(wr.TSO.MSS))
	default:
		return q.addOther(wr)
	}
	if q.typ == verbs.QPTypeUD {
		h := driver.Of[*ah](wr.AH)
		if h == nil {
			return fail(syscall.EINVAL, "the address handle is not of provider hw")
		}
		q.op(wrSetUDAddr, h.ptr, uintptr(wr.RemoteQPN), uintptr(wr.RemoteQKey))
	}
	if q.typ == verbs.QPTypeXRCSend {
		q.op(wrSetSRQN, uintptr(wr.RemoteSRQN))
	}
	return q.addData(wr)
}

// addOther adds a request that has no data, or data of its own kind.
//
// +checklocks:q.sq.mu
func (q *qp) addOther(wr *verbs.SendWR) error {
	rkey, addr := uintptr(wr.RKey), uintptr(wr.RemoteAddr)
	switch wr.Opcode {
	case verbs.WRLocalInv:
		q.op(wrLocalInv, uintptr(wr.InvalidateRKey))
		return nil // no setter may follow
	case verbs.WRBindMW:
		w := &q.sq.wrs[0]
		*w = cSendWR{}
		q.setBind(w, wr)
		q.op(wrBindMW, w.mw, rkey, uintptr(unsafe.Pointer(&w.bind)))
		return nil
	case verbs.WRFlush:
		if q.ops&verbs.QPExWithFlush == 0 {
			return fail(syscall.EOPNOTSUPP, "%v: the QP was made without it in SendOpsFlags", wr.Opcode)
		}
		q.op(wrFlush, rkey, addr, uintptr(wr.Flush.Length), uintptr(wr.Flush.Type), uintptr(wr.Flush.Level))
	case verbs.WRAtomicWrite:
		if q.ops&verbs.QPExWithAtomicWrite == 0 {
			return fail(syscall.EOPNOTSUPP, "%v: the QP was made without it in SendOpsFlags", wr.Opcode)
		}
		n, err := q.inlineData(wr)
		if err != nil || n != 8 {
			return err
		}
		q.op(wrAtomicWrite, rkey, addr, start(q.sq.data))
	default:
		return fail(syscall.EOPNOTSUPP, "%v: the device does not support it", wr.Opcode)
	}
	if q.typ == verbs.QPTypeXRCSend {
		q.op(wrSetSRQN, uintptr(wr.RemoteSRQN))
	}
	return nil
}

// inlineData copies the data of a request to the beginning of the queue's memory.
//
// +checklocks:q.sq.mu
func (q *qp) inlineData(wr *verbs.SendWR) (int, error) {
	if wr.Inline == nil {
		n, _, err := q.copyInline(q.sq.data, wr)
		return n, err
	}
	if len(wr.Inline) > len(q.sq.data) {
		return 0, fail(syscall.EINVAL, "%d bytes of inline data: must be 0 to %d", len(wr.Inline), q.inline)
	}
	return copy(q.sq.data, wr.Inline), nil
}

// addData sets the data of a request.
//
// +checklocks:q.sq.mu
func (q *qp) addData(wr *verbs.SendWR) error {
	s := &q.sq
	if wr.Flags&verbs.SendInline != 0 {
		n, err := q.inlineData(wr)
		if err == nil {
			q.op(wrSetInline, start(s.data), uintptr(n))
		}
		return err
	}
	if len(wr.SGList) > len(s.sges) {
		return fail(syscall.EINVAL, "%d SGEs: must be 0 to %d", len(wr.SGList), len(s.sges))
	}
	for i, e := range wr.SGList {
		s.sges[i] = cSGE{addr: e.Addr, length: e.Length, lkey: e.LKey}
	}
	q.op(wrSetSGEList, uintptr(len(wr.SGList)), uintptr(unsafe.Pointer(&s.sges[0])))
	return nil
}
