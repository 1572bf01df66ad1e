package soft

import (
	"errors"
	"sync"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/verbs"
)

// memoryAccess are the access rights that regions enforce.
const memoryAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead |
	verbs.AccessRemoteAtomic |
	verbs.AccessMWBind | verbs.AccessZeroBased | verbs.AccessFlushGlobal

// impliedAccess are the flags without effect: regions always have on-demand paging (see odpCaps), and packets are
// always handled in order.
const impliedAccess = verbs.AccessOnDemand | verbs.AccessHugeTLB | verbs.AccessRelaxedOrdering

// checkAccess refuses flags that the device does not support.
func checkAccess(access verbs.AccessFlags) error {
	if no := access &^ (memoryAccess | impliedAccess); no != 0 {
		return fail(verbs.EOPNOTSUPP, "access %v: must be among %v", no, memoryAccess|impliedAccess)
	}
	return nil
}

// RegMR registers memory.
func (p *pd) RegMR(buf []byte, iova uint64, access verbs.AccessFlags) (verbs.DriverMR, error) {
	if err := checkAccess(access); err != nil {
		return nil, err
	}
	if buf == nil { // the whole address space: verbs has checked that ON_DEMAND is set
		if no := access &^ (verbs.AccessLocalWrite | impliedAccess); no != 0 {
			return nil, fail(verbs.EOPNOTSUPP, "access %v to the whole address space: must be among %v", no,
				verbs.AccessLocalWrite|impliedAccess)
		}
		return p.add(&mr.Region{PD: p.num, Access: mr.Access(access & memoryAccess), Whole: true})
	}
	return p.add(&mr.Region{PD: p.num, Access: mr.Access(access & memoryAccess), Base: iova, Buf: buf,
		Share: shareOf(buf)})
}

func (p *pd) add(r *mr.Region) (verbs.DriverMR, error) {
	if err := p.ctx.regions.Add(r); err != nil {
		return nil, verbsError("", err)
	}
	return &region{ctx: p.ctx, r: r}, nil
}

// region is a DriverMR. The verbs layer serialises its calls.
type region struct {
	verbs.DriverUnsupported
	ctx *deviceContext
	r   *mr.Region
}

// LKey returns the key for local work requests.
func (m *region) LKey() uint32 { return m.r.LKey }

// RKey returns the key for peers.
func (m *region) RKey() uint32 { return m.r.RKey }

// Rereg replaces the region and keeps its keys. Nothing touches the old memory afterwards.
func (m *region) Rereg(p verbs.DriverPD, buf []byte, iova uint64, access *verbs.AccessFlags) error {
	next := *m.r
	next.PD, next.Buf, next.Base, next.Share = p.(*pd).num, buf, iova, shareOf(buf)
	if access != nil {
		if err := checkAccess(*access); err != nil {
			return err
		}
		next.Access = mr.Access(*access & memoryAccess)
	}
	if err := m.ctx.regions.Replace(m.r, &next); err != nil {
		return verbsError("", err)
	}
	old := m.r
	m.r = &next
	m.ctx.waitUnused()
	unshare(old)
	return nil
}

// Dereg removes the region unless memory windows are bound to it. Nothing touches its memory afterwards (V-MR-20).
func (m *region) Dereg() error {
	if err := m.ctx.regions.Remove(m.r); err != nil {
		return verbsError("", err)
	}
	m.ctx.waitUnused()
	unshare(m.r)
	return nil
}

// shareOf returns how other processes of this host read the memory of a region: by its file if it is from AllocBuffer,
// with system calls otherwise.
func shareOf(buf []byte) any {
	file, off := verbs.BufferFile(buf)
	if file == nil {
		return link.NewPlainShare()
	}
	st, err := file.Stat()
	if err != nil {
		return link.NewPlainShare()
	}
	return link.NewShare(file, st.Size(), off)
}

// unshare closes the file of a removed region. No shard uses it any more; other processes may still read it.
func unshare(r *mr.Region) {
	if s, ok := r.Share.(*link.Share); ok {
		s.Close()
	}
}

// waitUnused waits until no shard and no copy of inline data uses a region that was removed from the table.
func (c *deviceContext) waitUnused() {
	c.eng.Quiesce()
	c.dev.inline.Lock()
	c.dev.inline.Unlock() //nolint:staticcheck // waits for the readers
}

// populate is populatePages. Tests replace it.
var populate = populatePages

// AdviseMR brings the pages of the SGEs into memory before it returns, if all SGEs are valid.
func (p *pd) AdviseMR(advice verbs.AdviseMRAdvice, _ verbs.AdviseMRFlags, list []verbs.SGE) error {
	need := mr.Access(0)
	if advice == verbs.AdvicePrefetchWrite {
		need = mr.LocalWrite
	}
	for i := range list {
		if err := p.withAdvised(i, list[i], need, func([]byte) error { return nil }); err != nil {
			return err
		}
	}
	if advice == verbs.AdvicePrefetchNoFault {
		return nil // pages in memory need no work
	}
	for i, rest := range list {
		for rest.Length > 0 {
			piece := rest
			piece.Length = min(piece.Length, adviceStep)
			if err := p.withAdvised(i, piece, need, func(b []byte) error { return populate(b, need != 0) }); err != nil {
				return err
			}
			rest.Addr, rest.Length = rest.Addr+uint64(piece.Length), rest.Length-piece.Length
		}
	}
	return nil
}

// adviceStep is the length in bytes of what AdviseMR brings in at once. Meanwhile no region is removed, and a post of
// inline data waits for the removal.
const adviceStep = 2 << 20

// withAdvised calls f with the memory of an SGE, which stays registered until f returns.
func (p *pd) withAdvised(i int, s verbs.SGE, need mr.Access, f func([]byte) error) error {
	p.ctx.dev.inline.RLock()
	defer p.ctx.dev.inline.RUnlock()
	b, err := p.advised(i, &s, need)
	if err != nil {
		return err
	}
	if err := f(b); err != nil {
		return fail(syscall.EFAULT, "SGE %d, address %#x, %d bytes: cannot bring the pages in: %v", i, s.Addr, s.Length,
			err)
	}
	return nil
}

// advised returns the memory of an SGE.
func (p *pd) advised(i int, s *verbs.SGE, need mr.Access) ([]byte, error) {
	b, err := p.ctx.regions.Check(s.LKey, s.Addr, uint64(s.Length), p.num, need)
	if err == nil {
		return b, nil
	}
	errno := verbs.EINVAL
	switch {
	case errors.Is(err, mr.ErrPD), errors.Is(err, mr.ErrAccess):
		errno = syscall.EPERM
	case errors.Is(err, mr.ErrBounds):
		errno = syscall.EFAULT
	}
	return nil, fail(errno, "SGE %d, lkey %#x, address %#x, %d bytes: %v", i, s.LKey, s.Addr, s.Length, err)
}

// Limits of device memory, which is ordinary memory whose address the program does not have.
const (
	maxDMSize  = 256 << 20 // bytes of a device
	maxDMAlign = 21        // log2; 2 MiB
)

// dmBudget accounts for a device's memory.
type dmBudget struct {
	mu sync.Mutex // guards used
	// +checklocks:mu
	used uint64 // bytes
}

func (b *dmBudget) take(n uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > maxDMSize-b.used {
		return fail(verbs.ENOMEM, "length %d: must be at most %d bytes, which are left of the device's %d", n,
			maxDMSize-b.used, uint64(maxDMSize))
	}
	b.used += n
	return nil
}

func (b *dmBudget) giveBack(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// dm is a DriverDM.
type dm struct {
	dev *device
	mem []byte
}

// AllocDM allocates device memory.
func (c *deviceContext) AllocDM(length uint64, logAlign uint32) (verbs.DriverDM, error) {
	if logAlign > maxDMAlign {
		return nil, fail(verbs.EINVAL, "alignment 2^%d bytes: must be 2^0 to 2^%d", logAlign, maxDMAlign)
	}
	if err := c.dev.dm.take(length); err != nil {
		return nil, err
	}
	align := uint64(1) << logAlign
	mem := make([]byte, length+align-1)
	skip := -uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & (align - 1)
	return &dm{c.dev, mem[skip : skip+length : skip+length]}, nil
}

// CopyTo copies into device memory.
func (d *dm) CopyTo(offset uint64, src []byte) error {
	return copied(mr.Copy(d.mem[offset:], src))
}

// CopyFrom copies out of device memory.
func (d *dm) CopyFrom(dst []byte, offset uint64) error {
	return copied(mr.Copy(dst, d.mem[offset:]))
}

// copied returns the error of a copy of the program's memory.
func copied(_ int, ok bool) error {
	if !ok {
		return fail(syscall.EFAULT, "the program's memory is not mapped")
	}
	return nil
}

// Free returns the memory to the device.
func (d *dm) Free() error {
	d.dev.dm.giveBack(uint64(len(d.mem)))
	d.mem = nil
	return nil
}

// RegDMMR registers device memory.
func (p *pd) RegDMMR(d verbs.DriverDM, offset, length uint64, access verbs.AccessFlags) (verbs.DriverMR, error) {
	return p.RegMR(d.(*dm).mem[offset:offset+length:offset+length], 0, access)
}

// AllocNullMR makes a null region, which reads as zeroes and ignores writes.
func (p *pd) AllocNullMR() (verbs.DriverMR, error) {
	return p.add(&mr.Region{PD: p.num, Access: mr.LocalWrite, Null: true})
}

// window is a DriverMW.
type window struct {
	ctx *deviceContext
	w   *mr.Window
	key uint32 // the initial key
}

// AllocMW makes a memory window.
func (p *pd) AllocMW(t verbs.MWType) (verbs.DriverMW, error) {
	w := &window{ctx: p.ctx, w: &mr.Window{PD: p.num, Type: mr.WindowType(t)}}
	if err := p.ctx.regions.AddWindow(w.w); err != nil {
		return nil, verbsError("", err)
	}
	w.key = p.ctx.regions.Key(w.w)
	return w, nil
}

// RKey returns the initial key of the window.
func (w *window) RKey() uint32 { return w.key }

// Dealloc unbinds and removes the window. No peer touches memory through it afterwards.
func (w *window) Dealloc() error {
	w.ctx.regions.RemoveWindow(w.w)
	w.ctx.waitUnused()
	return nil
}

// toBinding converts the binding of a BIND_MW request.
func toBinding(wr *verbs.SendWR) mr.Binding {
	info := wr.BindInfo
	b := mr.Binding{
		Window: driver.Of[*window](wr.MW).w, RKey: wr.RKey, Access: mr.Access(info.Access), Addr: info.Addr,
		Length: info.Length,
	}
	if info.MR != nil {
		b.LKey = info.MR.LKey()
	}
	return b
}
