//go:build linux && (amd64 || arm64)

package hw

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// What this file has, devices may lack. extended then returns no function, and the call EOPNOTSUPP.

// dm is a DriverDM.
type dm struct {
	ctx *devContext
	ptr uintptr
}

// AllocDM allocates memory of the device.
func (c *devContext) AllocDM(length uint64, logAlign uint32) (verbs.DriverDM, error) {
	a := &cAllocDM{length: length, logAlign: logAlign}
	ptr, err := c.lib.object(c.extended(extAllocDM), c.ptr, uintptr(unsafe.Pointer(a)))
	if err != nil {
		return nil, explain(err, fmt.Sprintf("%d bytes of device memory", length))
	}
	return &dm{c, ptr}, nil
}

// CopyTo copies to the memory.
func (d *dm) CopyTo(offset uint64, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	fn := *at[uintptr](d.ptr + offDMCopyTo)
	return explain(d.ctx.lib.status(fn, d.ptr, uintptr(offset), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src))),
		"copying to device memory")
}

// CopyFrom copies from the memory.
func (d *dm) CopyFrom(dst []byte, offset uint64) error {
	if len(dst) == 0 {
		return nil
	}
	fn := *at[uintptr](d.ptr + offDMCopyFrom)
	return explain(d.ctx.lib.status(fn, uintptr(unsafe.Pointer(&dst[0])), d.ptr, uintptr(offset), uintptr(len(dst))),
		"copying from device memory")
}

// Free frees the memory.
func (d *dm) Free() error {
	return explain(d.ctx.lib.status(d.ctx.extended(extFreeDM), d.ptr), "the device memory")
}

// RegDMMR registers memory of the device.
func (p *pd) RegDMMR(m verbs.DriverDM, offset, length uint64, access verbs.AccessFlags) (verbs.DriverMR, error) {
	ptr, err := p.ctx.lib.object(p.ctx.extended(extRegDMMR), p.ptr, m.(*dm).ptr, uintptr(offset), uintptr(length),
		uintptr(access))
	if err != nil {
		return nil, explain(err, fmt.Sprintf("%d bytes of device memory with %v", length, access))
	}
	return &mr{pd: p, ptr: ptr, access: access}, nil
}

// RegDMABufMR registers memory that a descriptor of the kernel's dma-buf stands for.
func (p *pd) RegDMABufMR(offset, length, iova uint64, fd int, access verbs.AccessFlags) (verbs.DriverMR, error) {
	ptr, err := p.ctx.lib.object(p.ctx.lib.regDMABuf, p.ptr, uintptr(offset), uintptr(length), uintptr(iova),
		uintptr(fd), uintptr(access))
	if err != nil {
		return nil, explain(err, fmt.Sprintf("%d bytes at %d of the dma-buf %d with %v", length, offset, fd, access))
	}
	return &mr{pd: p, ptr: ptr, iova: iova, access: access}, nil
}

// counters is a DriverCounters: the packets are the value 0, the bytes the value 1.
type counters struct {
	ctx *devContext
	ptr uintptr
}

// CreateCounters makes counters.
func (c *devContext) CreateCounters() (verbs.DriverCounters, error) {
	ptr, err := c.lib.object(c.extended(extCreateCounters), c.ptr, uintptr(unsafe.Pointer(new(uint64))))
	if err != nil {
		return nil, explain(err, "counters")
	}
	n := &counters{c, ptr}
	for i, desc := range []verbs.CounterDescription{verbs.CounterPackets, verbs.CounterBytes} {
		a := &cCounterAttach{desc: uint32(desc), index: uint32(i)}
		if err := c.lib.status(c.extended(extAttachCounters), ptr, uintptr(unsafe.Pointer(a)), 0); err != nil {
			_ = n.Destroy()
			return nil, explain(err, "a counter of "+desc.String())
		}
	}
	return n, nil
}

// Attach would make an existing rule count. The counters are described when they are made, which fixes the rules'
// way of counting.
func (n *counters) Attach(verbs.DriverHandle) error {
	return fail(syscall.EOPNOTSUPP, "counters of a rule that exists: name them in FlowSpecActionCount when it is made")
}

// Read returns the values.
func (n *counters) Read() (packets, bytes uint64, err error) {
	v := new([2]uint64)
	err = n.ctx.lib.status(n.ctx.extended(extReadCounters), n.ptr, uintptr(unsafe.Pointer(v)), uintptr(len(v)), 0)
	return v[0], v[1], explain(err, "the counters")
}

// Destroy destroys the counters.
func (n *counters) Destroy() error {
	return explain(n.ctx.lib.status(n.ctx.extended(extDestroyCounters), n.ptr), "the counters")
}

// flow is a DriverHandle.
type flow struct {
	ctx *devContext
	ptr uintptr
}

// CreateFlow activates a flow rule.
func (q *qp) CreateFlow(attr *verbs.FlowAttr) (verbs.DriverHandle, error) {
	b, err := verbs.AppendFlowAttr(nil, attr, func(object any) uint64 {
		if n := driver.Of[*counters](object); n != nil {
			return uint64(n.ptr)
		}
		return 0
	})
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ptr == 0 {
		return nil, syscall.EINVAL
	}
	ptr, err := q.ctx.lib.object(q.ctx.extended(extCreateFlow), q.ptr, uintptr(unsafe.Pointer(&b[0])))
	runtime.KeepAlive(attr) // with the counters
	if err != nil {
		return nil, explain(err, "a flow rule of "+attr.Type.String())
	}
	return &flow{q.ctx, ptr}, nil
}

// Destroy removes the rule.
func (f *flow) Destroy() error {
	return explain(f.ctx.lib.status(f.ctx.extended(extDestroyFlow), f.ptr), "the flow rule")
}

// wq is a DriverWQ.
type wq struct {
	ctx   *devContext
	up    verbs.DriverEvents
	ptr   uintptr
	state atomic.Uint32 // a WQState
	rq    recvQueue
}

// CreateWQ makes a work queue.
func (p *pd) CreateWQ(init *verbs.WQInitAttr, up verbs.DriverEvents) (verbs.DriverWQ, error) {
	const withFlags = 1
	c := p.ctx
	a := &cWQInitAttr{typ: uint32(init.Type), maxWR: init.MaxWR, maxSGE: init.MaxSGE, pd: p.ptr, cq: addrOf(init.CQ)}
	if init.CreateFlags != 0 {
		a.compMask, a.createFlags = withFlags, uint32(init.CreateFlags)
	}
	if a.cq == 0 {
		return nil, fail(syscall.EINVAL, "the CQ is closed, or not of provider hw")
	}
	ptr, err := c.lib.object(c.extended(extCreateWQ), c.ptr, uintptr(unsafe.Pointer(a)))
	if err != nil {
		return nil, explain(err, "a work queue")
	}
	// What the inline function of verbs.h adds to the device's function. Events of the queue need both.
	c.lib.initLock(ptr+offWQMutex, ptr+offWQCond)
	init.MaxWR, init.MaxSGE = max(a.maxWR, init.MaxWR), max(a.maxSGE, init.MaxSGE)
	w := &wq{ctx: c, up: up, ptr: ptr}
	w.state.Store(uint32(verbs.WQSReset))
	w.rq.init(ptr, *at[uintptr](ptr + offWQPostRecv))
	c.wqs.Store(ptr, w)
	return w, nil
}

// initLock initialises a mutex and a condition of C.
func (l *library) initLock(mutex, cond uintptr) {
	if l.mutexInit != 0 && l.condInit != 0 {
		call(l.mutexInit, mutex, 0)
		call(l.condInit, cond, 0)
	}
}

// WQN returns the number.
func (w *wq) WQN() uint32 { return *at[uint32](w.ptr + offWQNum) }

// State returns the state.
func (w *wq) State() verbs.WQState { return verbs.WQState(w.state.Load()) }

// Modify changes the state and flags.
func (w *wq) Modify(from, to verbs.WQState, flags, mask verbs.WQFlags) error {
	a := &cWQAttr{state: uint32(to), current: uint32(from), flags: uint32(flags), flagsMask: uint32(mask)}
	if from != to {
		a.mask |= uint32(verbs.WQAttrState | verbs.WQAttrCurrState)
	}
	if mask != 0 {
		a.mask |= uint32(verbs.WQAttrFlags)
	}
	if a.mask == 0 {
		return nil
	}
	if err := w.ctx.lib.status(w.ctx.extended(extModifyWQ), w.ptr, uintptr(unsafe.Pointer(a))); err != nil {
		return explain(err, "the device refuses the attributes")
	}
	w.state.CompareAndSwap(uint32(from), uint32(to))
	return nil
}

// PostRecv posts receives.
func (w *wq) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if w.State() == verbs.WQSReset {
		return 0, fail(syscall.EINVAL, "not possible in RESET")
	}
	return w.rq.post(wrs)
}

// failed takes the event of a failure.
func (w *wq) failed(t verbs.EventType) {
	w.state.Store(uint32(verbs.WQSErr))
	w.up.Event(t)
}

// Destroy destroys the queue.
func (w *wq) Destroy() error {
	w.rq.close()
	if err := w.ctx.lib.status(w.ctx.extended(extDestroyWQ), w.ptr); err != nil {
		w.rq.reopen(w.ptr)
		return explain(err, "the work queue")
	}
	w.ctx.wqs.CompareAndDelete(w.ptr, w)
	return nil
}

// indTable is a DriverRWQIndTable.
type indTable struct {
	ctx *devContext
	ptr uintptr
}

// CreateRWQIndTable makes an indirection table of 2^n queues.
func (c *devContext) CreateRWQIndTable(wqs []verbs.DriverWQ) (verbs.DriverRWQIndTable, error) {
	list := make([]uintptr, len(wqs))
	for i, w := range wqs {
		list[i] = w.(*wq).ptr
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&list[0])
	a := &cIndTableInit{logSize: uint32(bits.Len(uint(len(list))) - 1), table: uintptr(unsafe.Pointer(&list[0]))}
	ptr, err := c.lib.object(c.extended(extCreateIndTable), c.ptr, uintptr(unsafe.Pointer(a)))
	if err != nil {
		return nil, explain(err, fmt.Sprintf("an indirection table of %d entries", len(list)))
	}
	return &indTable{c, ptr}, nil
}

// Num returns the number.
func (t *indTable) Num() uint32 { return *at[uint32](t.ptr + offIndTableNum) }

// Destroy destroys the table.
func (t *indTable) Destroy() error {
	return explain(t.ctx.lib.status(t.ctx.extended(extDestroyIndTable), t.ptr), "the indirection table")
}

// PostOps executes operations of tag matching, one call of C for each: C writes the handle of a buffer into its
// request.
func (s *srq) PostOps(ops []verbs.OpsWR) (int, error) {
	fn := s.ctx.extended(extPostSRQOps)
	type request struct {
		wr   cOpsWR
		bad  uintptr
		sges [maxTagSGEs]cSGE
	}
	r := new(request)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(r)
	for i := range ops {
		o := &ops[i]
		if len(o.SGList) > len(r.sges) {
			return i, fail(syscall.EINVAL, "%d SGEs: must be 0 to %d", len(o.SGList), len(r.sges))
		}
		for k, e := range o.SGList {
			r.sges[k] = cSGE{addr: e.Addr, length: e.Length, lkey: e.LKey}
		}
		r.wr = cOpsWR{wrID: o.WRID, opcode: uint32(o.Opcode), flags: int32(o.Flags), unexpected: o.UnexpectedCnt,
			handle: o.Handle, recvWRID: o.RecvWRID, sgList: uintptr(unsafe.Pointer(&r.sges[0])),
			numSGE: int32(len(o.SGList)), tag: o.Tag, mask: o.Mask}
		err := s.ctx.lib.status(fn, s.ptr, uintptr(unsafe.Pointer(&r.wr)), uintptr(unsafe.Pointer(&r.bad)))
		if errno, ok := err.(syscall.Errno); ok && err != nil {
			return i, postError(int32(errno))
		}
		if o.Opcode == verbs.TagAdd {
			o.Handle = r.wr.handle
		}
	}
	return len(ops), nil
}

// maxTagSGEs bounds the SGEs of a buffer with a tag. Devices have fewer.
const maxTagSGEs = 32
