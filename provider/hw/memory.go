//go:build linux && (amd64 || arm64)

package hw

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// mr is a DriverMR. It pins its memory.
type mr struct {
	verbs.DriverUnsupported
	pd     *pd
	ptr    uintptr
	pin    runtime.Pinner
	buf    []byte
	iova   uint64
	access verbs.AccessFlags
}

// start returns the address of memory.
func start(buf []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buf))) }

// RegMR registers memory.
func (p *pd) RegMR(buf []byte, iova uint64, access verbs.AccessFlags) (verbs.DriverMR, error) {
	m := &mr{pd: p, buf: buf, iova: iova, access: access}
	size := uintptr(len(buf))
	if buf == nil {
		size = ^uintptr(0) // the whole address space
	} else {
		m.pin.Pin(unsafe.SliceData(buf))
	}
	var err error
	switch lib := p.ctx.lib; {
	case lib.regMRIOVA2 != 0:
		m.ptr, err = lib.object(lib.regMRIOVA2, p.ptr, start(buf), size, uintptr(iova), uintptr(access))
	case uint64(start(buf)) == iova:
		m.ptr, err = lib.object(lib.regMR, p.ptr, start(buf), size, uintptr(access))
	default:
		err = syscall.EOPNOTSUPP
	}
	if err != nil {
		m.pin.Unpin()
		return nil, m.explain(err)
	}
	p.ctx.add(m)
	return m, nil
}

// explain describes an error of a registration.
func (m *mr) explain(err error) error {
	page := uint64(os.Getpagesize() - 1)
	if err == syscall.EINVAL && uint64(start(m.buf))&page != m.iova&page {
		return fail(syscall.EINVAL, "%d bytes at %#x with the address %#x: both addresses must have the same offset in a "+
			"page", len(m.buf), start(m.buf), m.iova)
	}
	return explain(err, fmt.Sprintf("%d bytes with %v", len(m.buf), m.access))
}

func (c *devContext) add(m *mr) {
	c.inline.Lock()
	defer c.inline.Unlock()
	c.regions[m.LKey()] = m
}

func (c *devContext) remove(m *mr, lkey uint32) {
	c.inline.Lock()
	defer c.inline.Unlock()
	if c.regions[lkey] == m {
		delete(c.regions, lkey)
	}
}

// LKey returns the key for local requests.
func (m *mr) LKey() uint32 { return *at[uint32](m.ptr + offMRLKey) }

// RKey returns the key for peers.
func (m *mr) RKey() uint32 { return *at[uint32](m.ptr + offMRRKey) }

// Flags of ibv_rereg_mr.
const (
	changeTranslation = 1 << 0
	changePD          = 1 << 1
	changeAccess      = 1 << 2
)

// Rereg changes memory, PD and access flags.
func (m *mr) Rereg(to verbs.DriverPD, buf []byte, iova uint64, access *verbs.AccessFlags) error {
	next := &mr{pd: to.(*pd), ptr: m.ptr, buf: buf, iova: iova, access: *access}
	flags := 0
	if start(buf) != start(m.buf) || len(buf) != len(m.buf) || iova != m.iova {
		flags |= changeTranslation
		if iova != uint64(start(buf)) {
			return fail(syscall.EOPNOTSUPP, "a region with the address %#x instead of its own %#x cannot be changed", iova,
				start(buf))
		}
	}
	if next.pd != m.pd {
		flags |= changePD
	}
	if next.access != m.access {
		flags |= changeAccess
	}
	if flags == 0 {
		return nil
	}
	next.pin.Pin(unsafe.SliceData(buf))
	before := m.LKey()
	if err := m.rereg(next, flags); err != nil {
		next.pin.Unpin()
		return err
	}
	m.pin.Unpin()
	m.pd.ctx.remove(m, before)
	m.pd, m.buf, m.iova, m.access, m.pin = next.pd, buf, iova, next.access, next.pin
	m.pd.ctx.add(m)
	return nil
}

// rereg calls ibv_rereg_mr, which returns one of verbs.ReregMRErrCode.
func (m *mr) rereg(next *mr, flags int) error {
	lib := m.pd.ctx.lib
	if lib.reregMR == 0 {
		return explain(syscall.EOPNOTSUPP, "changing a region")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pd, addr, n, access uintptr
	if flags&changePD != 0 {
		pd = next.pd.ptr
	}
	if flags&changeTranslation != 0 {
		addr, n = start(next.buf), uintptr(len(next.buf))
	}
	if flags&changeAccess != 0 {
		access = uintptr(next.access)
	}
	code := verbs.ReregMRErrCode(int32(call(lib.reregMR, m.ptr, uintptr(flags), pd, addr, n, access)))
	if code == 0 {
		return nil
	}
	return &verbs.ReregError{Code: code, Err: explain(lib.errno(), "changing a region")}
}

// Dereg deregisters the memory.
func (m *mr) Dereg() error {
	c, lkey := m.pd.ctx, m.LKey()
	c.remove(m, lkey)
	if err := c.lib.status(c.lib.deregMR, m.ptr); err != nil {
		c.add(m)
		return explain(err, "the region")
	}
	m.pin.Unpin()
	m.ptr = 0
	return nil
}

// AllocNullMR makes a region without memory.
func (p *pd) AllocNullMR() (verbs.DriverMR, error) {
	ptr, err := p.ctx.lib.object(p.ctx.extended(extAllocNullMR), p.ptr)
	if err != nil {
		return nil, explain(err, "a null region")
	}
	return &mr{pd: p, ptr: ptr}, nil
}

// AdviseMR gives advice on regions with on-demand paging.
func (p *pd) AdviseMR(advice verbs.AdviseMRAdvice, flags verbs.AdviseMRFlags, list []verbs.SGE) error {
	sges := make([]cSGE, len(list))
	for i, s := range list {
		sges[i] = cSGE{addr: s.Addr, length: s.Length, lkey: s.LKey}
	}
	return explain(p.ctx.lib.status(p.ctx.extended(extAdviseMR), p.ptr, uintptr(advice), uintptr(flags),
		uintptr(unsafe.Pointer(unsafe.SliceData(sges))), uintptr(len(sges))), "advice")
}

// mw is a DriverMW.
type mw struct {
	ctx *devContext
	ptr uintptr
	typ verbs.MWType
}

// AllocMW makes a memory window.
func (p *pd) AllocMW(t verbs.MWType) (verbs.DriverMW, error) {
	fn := *at[uintptr](p.ctx.ptr + offContextOps + opAllocMW)
	ptr, err := p.ctx.lib.object(fn, p.ptr, uintptr(t))
	if err != nil {
		return nil, explain(err, fmt.Sprintf("a window of %v", t))
	}
	return &mw{ctx: p.ctx, ptr: ptr, typ: t}, nil
}

// RKey is the key after AllocMW.
func (w *mw) RKey() uint32 { return *at[uint32](w.ptr + offMWRKey) }

// Dealloc frees the window.
func (w *mw) Dealloc() error {
	fn := *at[uintptr](w.ctx.ptr + offContextOps + opDeallocMW)
	return explain(w.ctx.lib.status(fn, w.ptr), "the window")
}

// regionOf returns C's region of a region; 0 for nil.
func regionOf(m *verbs.MR) uintptr {
	if m == nil {
		return 0
	}
	if d := driver.Of[*mr](m); d != nil {
		return d.ptr
	}
	return 0
}
