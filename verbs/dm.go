package verbs

import (
	"fmt"
	"sync"
	"syscall"
)

// DM is memory of the device (struct ibv_dm). The processor reaches it by copies only, requests and peers by the regions
// that PD.RegDMMR makes of it. It is safe for concurrent use.
type DM struct {
	ctx    *Context
	drv    DMDriver
	length uint64
	life   life
	mu     sync.RWMutex // read-held by copies, so that Close waits for them
}

// AllocDMAttr says what device memory to get (struct ibv_alloc_dm_attr).
type AllocDMAttr struct {
	Length      uint64 // bytes, 1 at least; DeviceAttrEx.MaxDMSize is what the device has in all
	LogAlignReq uint32 // it begins at a multiple of 2^LogAlignReq bytes; atomics need 3
}

// AllocDM gets device memory, which holds zeroes (ibv_alloc_dm). EINVAL for length 0 or an alignment that is not
// possible, ENOMEM if the device has not so much left, EOPNOTSUPP if it has none at all.
func (ctx *Context) AllocDM(attr AllocDMAttr) (*DM, error) {
	const op = "alloc_dm"
	drv, ok := ctx.drv.(DMAllocator)
	switch {
	case !ok:
		return nil, newError(op, ctx.obj(), EOPNOTSUPP, "the device has no memory of its own")
	case attr.Length == 0:
		return nil, newError(op, ctx.obj(), EINVAL, "0 bytes are not possible; 1 is the least")
	case !ctx.life.use(kindDM):
		return nil, errClosed(op, ctx.obj())
	}
	dm := &DM{ctx: ctx, length: attr.Length}
	var err error
	if dm.drv, err = drv.AllocDM(attr.Length, attr.LogAlignReq); err != nil {
		ctx.life.drop(kindDM)
		return nil, driverError(op, ctx.obj(), err)
	}
	return dm, nil
}

// Context is the context that the memory belongs to.
func (dm *DM) Context() *Context { return dm.ctx }

// Length is the memory's size in bytes.
func (dm *DM) Length() uint64 { return dm.length }

func (dm *DM) obj() string { return fmt.Sprintf("DM of %d bytes of %s", dm.length, dm.ctx.obj()) }

// enter keeps the memory until leave, for a copy of n bytes at offset.
func (dm *DM) enter(op string, offset uint64, n int) error {
	dm.mu.RLock()
	if dm.life.closed.Load() {
		dm.mu.RUnlock()
		return errClosed(op, dm.obj())
	}
	if offset > dm.length || uint64(n) > dm.length-offset {
		dm.mu.RUnlock()
		return newError(op, dm.obj(), syscall.EFAULT, "%d bytes at offset %d do not lie in it", n, offset)
	}
	return nil
}

// CopyTo copies src to the device memory from offset on (ibv_memcpy_to_dm). EFAULT, and nothing is copied, if that is
// more than it holds.
func (dm *DM) CopyTo(offset uint64, src []byte) error {
	const op = "memcpy_to_dm"
	if err := dm.enter(op, offset, len(src)); err != nil {
		return err
	}
	defer dm.mu.RUnlock()
	return driverError(op, dm.obj(), dm.drv.CopyTo(offset, src))
}

// CopyFrom fills dst from the device memory, from offset on (ibv_memcpy_from_dm). EFAULT, and nothing is copied, if
// that is more than it holds.
func (dm *DM) CopyFrom(dst []byte, offset uint64) error {
	const op = "memcpy_from_dm"
	if err := dm.enter(op, offset, len(dst)); err != nil {
		return err
	}
	defer dm.mu.RUnlock()
	return driverError(op, dm.obj(), dm.drv.CopyFrom(dst, offset))
}

// Close frees the memory (ibv_free_dm). EBUSY while regions are registered over it.
func (dm *DM) Close() error {
	const op = "free_dm"
	dm.mu.Lock()
	defer dm.mu.Unlock()
	if err := dm.life.end(op, dm.obj()); err != nil {
		return err
	}
	if err := destroyed(dm.drv.Free()); err != nil {
		dm.life.revive()
		return driverError(op, dm.obj(), err)
	}
	dm.ctx.life.drop(kindDM)
	return nil
}

// RegDMMR registers length bytes of device memory from offset on (ibv_reg_dm_mr). access must have AccessZeroBased:
// peers and SGEs give addresses as offsets from the region's start. EINVAL for bad rights, or a range that is empty or
// not within the memory.
func (pd *PD) RegDMMR(dm *DM, offset, length uint64, access AccessFlags) (*MR, error) {
	const op = "reg_dm_mr"
	drv, ok := pd.drv.(DMRegistrar)
	switch {
	case !ok:
		return nil, newError(op, pd.obj(), EOPNOTSUPP, "the device has no memory of its own")
	case dm == nil || dm.ctx != pd.ctx:
		return nil, newError(op, pd.obj(), EINVAL, "it takes device memory of the same context")
	case access&AccessZeroBased == 0:
		return nil, newError(op, pd.obj(), EINVAL, "a region of device memory must be ZERO_BASED")
	case length == 0 || offset > dm.length || length > dm.length-offset:
		return nil, newError(op, dm.obj(), EINVAL, "%d bytes at offset %d are not a part of it", length, offset)
	}
	if err := pd.ctx.checkAccess(op, access); err != nil {
		return nil, err
	}
	if !dm.life.use(kindMR) {
		return nil, errClosed(op, dm.obj())
	}
	mr, err := pd.newSpecialMR(op, &MR{dm: dm, length: length, access: access}, func() (MRDriver, error) {
		return drv.RegDMMR(dm.drv, offset, length, access&accessKnown)
	})
	if err != nil {
		dm.life.drop(kindMR)
	}
	return mr, err
}
