//go:build linux && (amd64 || arm64)

package hw

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// pollBatch is the number of completions that one call of the device returns.
const pollBatch = 32

// cq is a DriverCQ.
type cq struct {
	verbs.DriverUnsupported
	ctx    *devContext
	up     verbs.DriverCQEvents
	fields verbs.CreateCQWCFlags // beyond those of struct ibv_wc; the CQ is then a struct ibv_cq_ex
	failed atomic.Bool           // EventCQErr

	mu sync.Mutex // guards what follows, and serialises polling
	// +checklocks:mu
	ptr uintptr // 0 after Destroy
	// +checklocks:mu
	wcs *[pollBatch]cWC // filled by the device
	// +checklocks:mu
	caller caller
}

// CreateCQ makes a CQ.
func (c *devContext) CreateCQ(cqe int, opts *verbs.CQOptions, up verbs.DriverCQEvents) (verbs.DriverCQ, error) {
	q := &cq{ctx: c, up: up, wcs: new([pollBatch]cWC), fields: opts.WCFlags &^ verbs.WCStandardFlags}
	var err error
	if q.fields == 0 && opts.Flags&verbs.CreateCQIgnoreOverrun == 0 {
		q.ptr, err = c.lib.object(c.lib.createCQ, c.ptr, uintptr(cqe), 0, c.channel, uintptr(opts.CompVector))
	} else {
		const withFlags = 1
		// A device need not have the functions that read a field which was not asked for.
		a := &cCQInitAttr{cqe: uint32(cqe), channel: c.channel, compVector: uint32(opts.CompVector),
			wcFlags: uint64(opts.WCFlags | verbs.WCStandardFlags), compMask: withFlags,
			flags: uint32(opts.Flags & verbs.CreateCQIgnoreOverrun)}
		if a.flags == 0 {
			a.compMask = 0
		}
		q.ptr, err = c.lib.object(c.extended(extCreateCQ), c.ptr, uintptr(unsafe.Pointer(a)))
	}
	if err != nil {
		return nil, explain(err, "a completion queue")
	}
	c.cqs.Store(q.ptr, q)
	return q, nil
}

// Cap returns the room of the CQ.
func (q *cq) Cap() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ptr == 0 {
		return 0
	}
	return int(*at[int32](q.ptr + offCQSize))
}

var errCQ = fail(syscall.EIO, "the CQ has overrun, or the device has failed")

// Poll takes completions.
func (q *cq) Poll(wcs []verbs.WC) (int, error) {
	n, err := q.poll(wcs)
	for i := range wcs[:n] {
		if wcs[i].Status != verbs.WCSuccess {
			q.ctx.broken(&wcs[i])
		}
	}
	return n, err
}

func (q *cq) poll(wcs []verbs.WC) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ptr == 0 {
		return 0, syscall.EINVAL
	}
	if q.fields != 0 {
		for n < len(wcs) {
			if found, err := q.pollOne(&wcs[n]); !found {
				return n, err
			}
			n++
		}
		return n, nil
	}
	for n < len(wcs) {
		want := min(len(wcs)-n, pollBatch)
		got := int(int32(q.caller.do(q.ctx.pollCQ, q.ptr, uintptr(want), uintptr(unsafe.Pointer(q.wcs)))))
		if got < 0 {
			return n, errCQ
		}
		for i := range q.wcs[:got] {
			q.wcs[i].toWC(&wcs[n])
			n++
		}
		if got < want {
			break
		}
	}
	if n == 0 && q.failed.Load() {
		return 0, errCQ
	}
	return n, nil
}

// toWC sets all fields of a completion.
func (w *cWC) toWC(to *verbs.WC) {
	*to = verbs.WC{WRID: w.wrID, Status: verbs.WCStatus(w.status), VendorErr: w.vendorErr, QPNum: w.qpNum}
	if to.Status != verbs.WCSuccess {
		return // the other members are not defined
	}
	to.Opcode, to.ByteLen, to.SrcQP, to.WCFlags = verbs.WCOpcode(w.opcode), w.byteLen, w.srcQP, verbs.WCFlags(w.flags)
	to.PKeyIndex, to.SLID, to.SL, to.DLIDPathBits = w.pkeyIndex, w.slid, w.sl, w.dlidPathBits
	setImm(to, w.imm)
}

// setImm sets the immediate data or the invalidated key.
func setImm(to *verbs.WC, imm uint32) {
	switch {
	case to.WCFlags&verbs.WCWithImm != 0:
		to.ImmData = be32(imm)
	case to.WCFlags&verbs.WCWithInv != 0:
		to.InvalidatedRKey = imm
	}
}

// be32 converts between host order and big endian; both processors are little endian.
func be32(v uint32) uint32 { return bits.ReverseBytes32(v) }

// PollOne takes a completion.
func (q *cq) PollOne(wc *verbs.WC, _ bool) (bool, error) {
	if q.fields == 0 {
		n, err := q.Poll(unsafe.Slice(wc, 1))
		return n == 1, err
	}
	q.mu.Lock()
	if q.ptr == 0 {
		q.mu.Unlock()
		return false, syscall.EINVAL
	}
	found, err := q.pollOne(wc)
	q.mu.Unlock()
	if found && wc.Status != verbs.WCSuccess {
		q.ctx.broken(wc)
	}
	return found, err
}

// pollOne takes a completion of a struct ibv_cq_ex, as a batch of one.
//
// +checklocks:q.mu
func (q *cq) pollOne(wc *verbs.WC) (bool, error) {
	attr := (*uint32)(unsafe.Pointer(q.wcs)) // struct ibv_poll_cq_attr
	*attr = 0
	switch n := int32(q.read(cqStartPoll, uintptr(unsafe.Pointer(q.wcs)))); {
	case n == int32(syscall.ENOENT):
		if q.failed.Load() {
			return false, errCQ
		}
		return false, nil
	case n != 0:
		return false, errCQ
	}
	*wc = verbs.WC{
		WRID: *at[uint64](q.ptr + offCQExWRID), Status: verbs.WCStatus(*at[uint32](q.ptr + offCQExStatus)),
		VendorErr: uint32(q.read(cqReadVendorErr, 0)), QPNum: uint32(q.read(cqReadQPNum, 0)),
	}
	if wc.Status == verbs.WCSuccess {
		q.readFields(wc)
	}
	q.read(cqEndPoll, 0)
	return true, nil
}

// read calls a function of struct ibv_cq_ex, with an argument that most do not have.
//
// +checklocks:q.mu
func (q *cq) read(off, arg uintptr) uintptr {
	return q.caller.do(*at[uintptr](q.ptr + off), q.ptr, arg, 0)
}

// readFields reads the fields of a successful completion.
//
// +checklocks:q.mu
func (q *cq) readFields(wc *verbs.WC) {
	wc.Opcode, wc.ByteLen = verbs.WCOpcode(q.read(cqReadOpcode, 0)), uint32(q.read(cqReadByteLen, 0))
	wc.WCFlags, wc.SrcQP = verbs.WCFlags(q.read(cqReadFlags, 0)), uint32(q.read(cqReadSrcQP, 0))
	wc.SLID, wc.SL = uint16(q.read(cqReadSLID, 0)), uint8(q.read(cqReadSL, 0))
	wc.DLIDPathBits = uint8(q.read(cqReadPathBits, 0))
	setImm(wc, uint32(q.read(cqReadImm, 0)))
	if q.fields&verbs.WCExWithCompletionTimestamp != 0 {
		wc.Timestamp = uint64(q.read(cqReadTimestamp, 0))
	}
	if q.fields&verbs.WCExWithCompletionTimestampWallclock != 0 {
		wc.Wallclock = uint64(q.read(cqReadWallclock, 0))
	}
	if q.fields&verbs.WCExWithFlowTag != 0 {
		wc.FlowTag = uint32(q.read(cqReadFlowTag, 0))
	}
	if q.fields&verbs.WCExWithTMInfo != 0 {
		info := (*cTMInfo)(unsafe.Pointer(q.wcs))
		*info = cTMInfo{}
		q.read(cqReadTMInfo, uintptr(unsafe.Pointer(info)))
		wc.TM = verbs.TMInfo{Tag: info.tag, Priv: info.priv}
	}
	if q.fields&verbs.WCExWithCVLAN != 0 {
		wc.CVLAN = uint16(q.read(cqReadCVLAN, 0))
	}
}

// ReqNotify requests an event.
func (q *cq) ReqNotify(solicitedOnly bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ptr == 0 {
		return syscall.EINVAL
	}
	var only uintptr
	if solicitedOnly {
		only = 1
	}
	if n := int32(q.caller.do(q.ctx.reqNotifyCQ, q.ptr, only, 0)); n != 0 || q.failed.Load() {
		return errCQ
	}
	return nil
}

// fail reports that the CQ is in error.
func (q *cq) fail() {
	q.failed.Store(true)
	q.up.Error()
}

// Resize changes the room of the CQ.
func (q *cq) Resize(cqe int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return explain(q.ctx.lib.status(q.ctx.lib.resizeCQ, q.ptr, uintptr(cqe)), "another size")
}

// Moderate sets the moderation of events.
func (q *cq) Moderate(m verbs.ModerateCQ) error {
	const moderate = 1
	a := &cModifyCQ{mask: moderate, count: m.Count, period: m.Period}
	q.mu.Lock()
	defer q.mu.Unlock()
	return explain(q.ctx.lib.status(q.ctx.extended(extModifyCQ), q.ptr, uintptr(unsafe.Pointer(a))), "moderation")
}

// Destroy destroys the CQ. C waits until its events are acknowledged, which needs no lock of the CQ.
func (q *cq) Destroy() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.ctx.lib.status(q.ctx.lib.destroyCQ, q.ptr); err != nil {
		return explain(err, "the completion queue")
	}
	q.ctx.cqs.CompareAndDelete(q.ptr, q)
	q.ptr = 0
	return nil
}
