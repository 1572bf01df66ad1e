//go:build linux && (amd64 || arm64)

package hw

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// srq is a DriverSRQ.
type srq struct {
	verbs.DriverUnsupported
	ctx *devContext
	up  verbs.DriverEvents
	ptr uintptr
	num uint32 // of type XRC
	rq  recvQueue
}

// CreateSRQ makes a shared receive queue.
func (p *pd) CreateSRQ(init *verbs.SRQInitAttr, up verbs.DriverEvents) (verbs.DriverSRQ, error) {
	a := &cSRQInitAttr{attr: cSRQAttr{maxWR: init.Attr.MaxWR, maxSGE: init.Attr.MaxSGE}}
	s := &srq{ctx: p.ctx, up: up}
	lib := p.ctx.lib
	var err error
	switch init.Type {
	case verbs.SRQTypeBasic:
		s.ptr, err = lib.object(lib.createSRQ, p.ptr, uintptr(unsafe.Pointer(a)))
	case verbs.SRQTypeXRC:
		err = s.createXRC(p, a, init)
	case verbs.SRQTypeTM:
		a.compMask, a.typ, a.pd, a.cq = srqInitType|srqInitPD|srqInitCQ|srqInitTM, uint32(init.Type), p.ptr, addrOf(init.CQ)
		a.tmCap = [2]uint32{init.TMCap.MaxNumTags, init.TMCap.MaxOps}
		s.ptr, err = lib.object(p.ctx.extended(extCreateSRQ), p.ctx.ptr, uintptr(unsafe.Pointer(a)))
	default:
		err = syscall.EOPNOTSUPP
	}
	if err != nil {
		return nil, explain(err, fmt.Sprintf("an SRQ of type %v", init.Type))
	}
	if init.Type == verbs.SRQTypeTM {
		init.TMCap.MaxNumTags, init.TMCap.MaxOps = max(init.TMCap.MaxNumTags, a.tmCap[0]), max(init.TMCap.MaxOps, a.tmCap[1])
	}
	init.Attr.MaxWR, init.Attr.MaxSGE = a.attr.maxWR, a.attr.maxSGE
	if now, err := s.Query(); err == nil { // rdma_rxe does not return the actual sizes
		init.Attr.MaxWR, init.Attr.MaxSGE = max(init.Attr.MaxWR, now.MaxWR), max(init.Attr.MaxSGE, now.MaxSGE)
	}
	s.rq.init(s.ptr, p.ctx.postSRQRecv)
	p.ctx.srqs.Store(s.ptr, s)
	return s, nil
}

// createXRC makes an SRQ of type XRC.
func (s *srq) createXRC(p *pd, a *cSRQInitAttr, init *verbs.SRQInitAttr) (err error) {
	d, lib := driver.Of[*xrcd](init.XRCD), s.ctx.lib
	if d == nil || addrOf(init.CQ) == 0 {
		return syscall.EINVAL
	}
	a.compMask = srqInitType | srqInitPD | srqInitXRCD | srqInitCQ
	a.typ, a.pd, a.xrcd, a.cq = uint32(init.Type), p.ptr, d.ptr, addrOf(init.CQ)
	if s.ptr, err = lib.object(s.ctx.extended(extCreateSRQ), s.ctx.ptr, uintptr(unsafe.Pointer(a))); err != nil {
		return err
	}
	num := new(uint32)
	if err = lib.status(s.ctx.extended(extGetSRQNum), s.ptr, uintptr(unsafe.Pointer(num))); err != nil {
		_ = lib.status(lib.destroySRQ, s.ptr)
	}
	s.num = *num
	return err
}

// SRQN returns the number of an SRQ of type XRC.
func (s *srq) SRQN() uint32 { return s.num }

// PostRecv posts receives.
func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) { return s.rq.post(wrs) }

// Modify changes sizes and limit.
func (s *srq) Modify(attr *verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	a := &cSRQAttr{maxWR: attr.MaxWR, maxSGE: attr.MaxSGE, srqLimit: attr.SRQLimit}
	if err := s.ctx.lib.status(s.ctx.lib.modifySRQ, s.ptr, uintptr(unsafe.Pointer(a)), uintptr(mask)); err != nil {
		return explain(err, "the device refuses the attributes")
	}
	if mask&verbs.SRQAttrMaxWR != 0 {
		now, err := s.Query()
		if err != nil {
			return err
		}
		attr.MaxWR, attr.MaxSGE = now.MaxWR, now.MaxSGE
	}
	return nil
}

// Query returns sizes and limit.
func (s *srq) Query() (verbs.SRQAttr, error) {
	a := new(cSRQAttr)
	if err := s.ctx.lib.status(s.ctx.lib.querySRQ, s.ptr, uintptr(unsafe.Pointer(a))); err != nil {
		return verbs.SRQAttr{}, explain(err, "the attributes of the SRQ")
	}
	return verbs.SRQAttr{MaxWR: a.maxWR, MaxSGE: a.maxSGE, SRQLimit: a.srqLimit}, nil
}

// Destroy destroys the SRQ.
func (s *srq) Destroy() error {
	s.rq.close()
	if err := s.ctx.lib.status(s.ctx.lib.destroySRQ, s.ptr); err != nil {
		s.rq.reopen(s.ptr)
		return explain(err, "the SRQ")
	}
	s.ctx.srqs.CompareAndDelete(s.ptr, s)
	return nil
}

// xrcd is a DriverXRCD.
type xrcd struct {
	ctx *devContext
	ptr uintptr
}

// OpenXRCD opens an XRC domain.
func (c *devContext) OpenXRCD(fd, flags int) (verbs.DriverXRCD, error) {
	const withFD, withFlags = 1, 2
	a := &cXRCDInit{compMask: withFD | withFlags, fd: int32(fd), oflags: int32(flags)}
	ptr, err := c.lib.object(c.extended(extOpenXRCD), c.ptr, uintptr(unsafe.Pointer(a)))
	if err != nil {
		return nil, explain(err, "an XRC domain")
	}
	return &xrcd{c, ptr}, nil
}

// CreateQP makes an XRC_RECV QP.
func (d *xrcd) CreateQP(init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	a := &cQPInitAttr{typ: uint32(init.Type), compMask: qpInitXRCD, xrcd: d.ptr}
	return d.begin(up, d.ctx.extended(extCreateQP), uintptr(unsafe.Pointer(a)))
}

// OpenQP opens a handle of an XRC_RECV QP.
func (d *xrcd) OpenQP(qpn uint32, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	const all = 1<<0 | 1<<1 | 1<<2 | 1<<3
	a := &cQPOpen{compMask: all, qpNum: qpn, xrcd: d.ptr, typ: uint32(verbs.QPTypeXRCRecv)}
	return d.begin(up, d.ctx.extended(extOpenQP), uintptr(unsafe.Pointer(a)))
}

// begin calls a function of C that makes a QP of the domain.
//
//go:uintptrescapes
func (d *xrcd) begin(up verbs.DriverQPEvents, fn, attr uintptr) (verbs.DriverQP, error) {
	ptr, err := d.ctx.lib.object(fn, d.ctx.ptr, attr)
	if err != nil {
		return nil, explain(err, "a QP of type XRC_RECV")
	}
	q := &qp{ctx: d.ctx, up: up, typ: verbs.QPTypeXRCRecv}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ptr = ptr
	q.begin(&cQPCap{}, 0)
	return q, nil
}

// Close closes the domain.
func (d *xrcd) Close() error {
	return explain(d.ctx.lib.status(d.ctx.extended(extCloseXRCD), d.ptr), "the XRC domain")
}
