//go:build linux && (amd64 || arm64)

package hw

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// A queue translates requests into structures of C that it owns, and calls the device's function once for all that fit.
// The structures grow to maxRequests requests and maxSGEs SGEs; then nothing is allocated any more.
const (
	minRequests = 16
	maxRequests = 256
	minSGEs     = 64
	maxSGEs     = 1024
	minData     = 256 // bytes of inline data and headers of one call
	maxData     = 1 << 16
)

// sendQueue is the send side of a QP.
type sendQueue struct {
	mu sync.Mutex
	// +checklocks:mu
	ptr uintptr // struct ibv_qp; 0 after Destroy
	// +checklocks:mu
	wrs []cSendWR
	// +checklocks:mu
	sges []cSGE
	// +checklocks:mu
	data []byte // inline data
	// +checklocks:mu
	bad *uintptr // set by the device
	// +checklocks:mu
	bind cMWBind
	// +checklocks:mu
	caller caller
}

// init makes the structures of a QP whose headers of TSO have up to header bytes.
func (s *sendQueue) init(ptr uintptr, c *cQPCap, header uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ptr, s.bad = ptr, new(uintptr)
	s.wrs = make([]cSendWR, minRequests)
	s.sges = make([]cSGE, max(minSGEs, c.maxSendSGE))
	s.data = make([]byte, max(minData, minRequests*c.maxInline, uint32(header)))
}

func (s *sendQueue) close() {
	s.mu.Lock()
	s.ptr = 0
	s.mu.Unlock()
}

func (s *sendQueue) reopen(ptr uintptr) {
	s.mu.Lock()
	s.ptr = ptr
	s.mu.Unlock()
}

// PostSend posts requests.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	s := &q.sq
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ptr == 0 {
		return 0, syscall.EINVAL
	}
	done := 0
	for done < len(wrs) {
		var n int
		var err error
		switch wr := &wrs[done]; {
		case wr.Opcode == verbs.WRBindMW && isType1(wr.MW):
			if err = q.bindType1(wr); err == nil {
				n = 1
			}
		case wr.Opcode == verbs.WRFlush || wr.Opcode == verbs.WRAtomicWrite:
			n, err = q.build(wrs[done : done+1])
		default:
			n, err = q.postList(wrs[done:])
		}
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

func isType1(w *verbs.MW) bool {
	d := driver.Of[*mw](w)
	return d != nil && d.typ == verbs.MWType1
}

// postList posts the requests that fit into the queue's structures, up to the first that ibv_post_send does not take.
//
// +checklocks:q.sq.mu
func (q *qp) postList(wrs []verbs.SendWR) (int, error) {
	s := &q.sq
	s.grow(len(wrs))
	n, sges, data := 0, 0, 0
	var bad error
	for n < len(wrs) && n < len(s.wrs) {
		wr := &wrs[n]
		op := wr.Opcode
		if sges+len(wr.SGList) > len(s.sges) || op == verbs.WRFlush || op == verbs.WRAtomicWrite ||
			op == verbs.WRBindMW && isType1(wr.MW) {
			break
		}
		w := &s.wrs[n]
		if wr.Flags&verbs.SendInline != 0 || op == verbs.WRTSO {
			used, full, err := q.fillInline(w, wr, sges, data)
			if full && n > 0 {
				break
			}
			if err != nil {
				bad = err
				break
			}
			data += used
		}
		sges += q.fill(w, wr, sges)
		n++
	}
	if n == 0 {
		if bad == nil {
			bad = fail(syscall.EINVAL, "%d SGEs, or too much inline data", len(wrs[0].SGList))
		}
		return 0, bad
	}
	s.wrs[n-1].next = 0
	*s.bad = 0
	errno := int32(s.caller.do(q.ctx.postSend, s.ptr, uintptr(unsafe.Pointer(&s.wrs[0])), uintptr(unsafe.Pointer(s.bad))))
	if errno != 0 {
		return index(*s.bad, uintptr(unsafe.Pointer(&s.wrs[0])), unsafe.Sizeof(s.wrs[0]), n), postError(errno)
	}
	return n, bad
}

// grow makes room for n requests, within bounds.
//
// +checklocks:s.mu
func (s *sendQueue) grow(n int) {
	if n <= len(s.wrs) || len(s.wrs) >= maxRequests {
		return
	}
	size := min(maxRequests, max(n, 2*len(s.wrs)))
	inline := len(s.data) / len(s.wrs)
	s.wrs = make([]cSendWR, size)
	s.data = make([]byte, max(len(s.data), min(maxData, inline*size)))
	s.sges = make([]cSGE, max(len(s.sges), min(maxSGEs, 4*size)))
}

// index returns the position of the bad request that the device reported.
func index(bad, first, size uintptr, n int) int {
	if bad < first || bad >= first+uintptr(n)*size {
		return 0
	}
	return int((bad - first) / size)
}

// postError returns the error of a post function.
func postError(errno int32) error {
	if errno < 0 {
		errno = -errno
	}
	if syscall.Errno(errno) == syscall.ENOMEM {
		return errFull
	}
	return explain(syscall.Errno(errno), "the device refuses the request")
}

var errFull = fail(syscall.ENOMEM, "the queue is full: a request keeps its place until its completion, or that of a "+
	"later signaled one, was polled")

// fill translates a request, and returns the number of SGEs that it used, from at on. Inline data is in place.
//
// +checklocks:q.sq.mu
func (q *qp) fill(w *cSendWR, wr *verbs.SendWR, at int) (used int) {
	s := &q.sq
	inline := wr.Flags&verbs.SendInline != 0
	*w = cSendWR{
		wrID: wr.WRID, next: uintptr(unsafe.Pointer(w)) + unsafe.Sizeof(*w),
		sgList: uintptr(unsafe.Pointer(&s.sges[min(at, len(s.sges)-1)])),
		numSGE: int32(len(wr.SGList)), opcode: uint32(wr.Opcode), flags: uint32(wr.Flags), mw: w.mw, mwRKey: w.mwRKey,
	}
	switch {
	case inline:
		w.numSGE, used = 1, 1
	default:
		for i := range wr.SGList {
			e := &wr.SGList[i]
			s.sges[at+i].addr, s.sges[at+i].length, s.sges[at+i].lkey = e.Addr, e.Length, e.LKey
		}
		used = len(wr.SGList)
	}
	switch wr.Opcode {
	case verbs.WRSendWithImm, verbs.WRRDMAWriteWithImm:
		w.imm = be32(wr.ImmData)
	case verbs.WRSendWithInv, verbs.WRLocalInv:
		w.imm = wr.InvalidateRKey
	case verbs.WRBindMW:
		q.setBind(w, wr)
	}
	switch wr.Opcode {
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		w.remote = [4]uint64{wr.RemoteAddr, wr.CompareAdd, wr.Swap, uint64(wr.RKey)}
	default:
		w.remote[0], w.remote[1] = wr.RemoteAddr, uint64(wr.RKey)
	}
	if q.typ == verbs.QPTypeUD {
		w.remote[0] = 0
		if h := driver.Of[*ah](wr.AH); h != nil {
			w.remote[0] = uint64(h.ptr)
		}
		w.remote[1] = uint64(wr.RemoteQPN) | uint64(wr.RemoteQKey)<<32
	}
	w.remoteSRQN = wr.RemoteSRQN
	return used
}

func (q *qp) setBind(w *cSendWR, wr *verbs.SendWR) {
	if d := driver.Of[*mw](wr.MW); d != nil {
		w.mw, w.mwRKey = d.ptr, wr.RKey
	}
	w.bind = q.bindInfo(wr.BindInfo)
}

// bindInfo translates the memory of a bind; b may be nil. Without a region C gets a null pointer, or the region with
// the key 0 where the device's library follows the pointer (rdma_rxe).
func (q *qp) bindInfo(b *verbs.MWBindInfo) (c cBindInfo) {
	if b != nil {
		c = cBindInfo{mr: regionOf(b.MR), addr: b.Addr, length: b.Length, access: uint32(b.Access)}
	}
	if c.mr == 0 && q.ctx.noRegion != nil {
		c.mr = uintptr(unsafe.Pointer(q.ctx.noRegion))
	}
	return c
}

// fillInline copies the data of a request with SendInline to the queue, from s.data[at:] on, and makes an SGE of it.
// For TSO it copies the header. full: there is no room in this call.
//
// +checklocks:q.sq.mu
func (q *qp) fillInline(w *cSendWR, wr *verbs.SendWR, sge, at int) (used int, full bool, err error) {
	s := &q.sq
	if wr.Opcode == verbs.WRTSO {
		if len(wr.TSO.Hdr) > len(s.data)-at {
			return 0, true, fail(syscall.EINVAL, "%d bytes of headers: must be 0 to %d", len(wr.TSO.Hdr), len(s.data))
		}
		used = copy(s.data[at:], wr.TSO.Hdr)
		w.mw = uintptr(unsafe.Pointer(unsafe.SliceData(s.data))) + uintptr(at)
		w.mwRKey = uint32(used) | uint32(wr.TSO.MSS)<<16
		return used, false, nil
	}
	if sge >= len(s.sges) {
		return 0, true, errFull
	}
	if wr.Inline != nil {
		if len(wr.Inline) > len(s.data)-at {
			return 0, true, errFull
		}
		used = copy(s.data[at:], wr.Inline)
	} else if used, full, err = q.copyInline(s.data[at:], wr); err != nil {
		return 0, full, err
	}
	s.sges[sge] = cSGE{addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.data)))) + uint64(at), length: uint32(used)}
	return used, false, nil
}

// copyInline copies the data that SGEs name. C's function would read any address; here it must be in a region.
func (q *qp) copyInline(to []byte, wr *verbs.SendWR) (n int, full bool, err error) {
	c := q.ctx
	c.inline.RLock() // keeps the regions
	defer c.inline.RUnlock()
	for i := range wr.SGList {
		e := &wr.SGList[i]
		if e.Length == 0 {
			continue
		}
		m := c.regions[e.LKey]
		if m == nil || m.pd != q.pd || e.Addr < m.iova || e.Addr-m.iova > uint64(len(m.buf)) ||
			uint64(e.Length) > uint64(len(m.buf))-(e.Addr-m.iova) {
			return 0, false, fail(syscall.EINVAL, "%v: inline data: SGE %d, lkey %#x, address %#x, %d bytes: must be within a "+
				"region of the PD", wr.Opcode, i, e.LKey, e.Addr, e.Length)
		}
		if int(e.Length) > len(to)-n {
			return 0, true, errFull
		}
		from := m.buf[e.Addr-m.iova:][:e.Length]
		n += copy(to[n:], from)
	}
	return n, false, nil
}

// bindType1 binds a window of type 1.
//
// +checklocks:q.sq.mu
func (q *qp) bindType1(wr *verbs.SendWR) error {
	s, w := &q.sq, driver.Of[*mw](wr.MW)
	s.bind = cMWBind{wrID: wr.WRID, flags: uint32(wr.Flags), info: q.bindInfo(wr.BindInfo)}
	fn := *at[uintptr](q.ctx.ptr + offContextOps + opBindMW)
	err := explain(q.ctx.lib.status(fn, s.ptr, w.ptr, uintptr(unsafe.Pointer(&s.bind))), "binding the window")
	if err == nil {
		wr.RKey = w.RKey()
	}
	return err
}

// recvQueue is the receive side of a QP, or an SRQ.
type recvQueue struct {
	fn uintptr // the device's function
	mu sync.Mutex
	// +checklocks:mu
	ptr uintptr // struct ibv_qp or ibv_srq; 0 after Destroy
	// +checklocks:mu
	wrs []cRecvWR
	// +checklocks:mu
	sges []cSGE
	// +checklocks:mu
	bad *uintptr
	// +checklocks:mu
	caller caller
}

func (r *recvQueue) init(ptr, fn uintptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fn, r.ptr, r.bad = fn, ptr, new(uintptr)
	r.wrs, r.sges = make([]cRecvWR, minRequests), make([]cSGE, minSGEs)
}

func (r *recvQueue) close() {
	r.mu.Lock()
	r.ptr = 0
	r.mu.Unlock()
}

func (r *recvQueue) reopen(ptr uintptr) {
	r.mu.Lock()
	r.ptr = ptr
	r.mu.Unlock()
}

// PostRecv posts receives.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) { return q.rq.post(wrs) }

func (r *recvQueue) post(wrs []verbs.RecvWR) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ptr == 0 {
		return 0, syscall.EINVAL
	}
	done := 0
	for done < len(wrs) {
		n, err := r.postList(wrs[done:])
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// postList posts the receives that fit into the queue's structures.
//
// +checklocks:r.mu
func (r *recvQueue) postList(wrs []verbs.RecvWR) (int, error) {
	if len(wrs) > len(r.wrs) && len(r.wrs) < maxRequests {
		size := min(maxRequests, max(len(wrs), 2*len(r.wrs)))
		r.wrs, r.sges = make([]cRecvWR, size), make([]cSGE, max(len(r.sges), min(maxSGEs, 4*size)))
	}
	if len(wrs[0].SGList) > len(r.sges) {
		r.sges = make([]cSGE, len(wrs[0].SGList))
	}
	n, sges := 0, 0
	for n < len(wrs) && n < len(r.wrs) && sges+len(wrs[n].SGList) <= len(r.sges) {
		w, wr := &r.wrs[n], &wrs[n]
		w.wrID, w.numSGE, w.sgList = wr.WRID, int32(len(wr.SGList)), 0
		w.next = uintptr(unsafe.Pointer(w)) + unsafe.Sizeof(*w)
		if len(wr.SGList) > 0 {
			w.sgList = uintptr(unsafe.Pointer(&r.sges[sges]))
		}
		for i := range wr.SGList {
			e := &wr.SGList[i]
			r.sges[sges].addr, r.sges[sges].length, r.sges[sges].lkey = e.Addr, e.Length, e.LKey
			sges++
		}
		n++
	}
	r.wrs[n-1].next = 0
	*r.bad = 0
	errno := int32(r.caller.do(r.fn, r.ptr, uintptr(unsafe.Pointer(&r.wrs[0])), uintptr(unsafe.Pointer(r.bad))))
	if errno != 0 {
		return index(*r.bad, uintptr(unsafe.Pointer(&r.wrs[0])), unsafe.Sizeof(r.wrs[0]), n), postError(errno)
	}
	return n, nil
}
