package verbs

import (
	"fmt"
	"sync"
	"syscall"
)

// DM is memory of the device (struct ibv_dm). The program accesses it with CopyTo and CopyFrom, requests and peers
// through the regions of PD.RegDMMR. It is safe for concurrent use.
type DM struct {
	ctx      *Context
	drv      DriverDM
	length   uint64
	from     *DM    // the original of imported memory, else nil
	handle   uint32 // see export
	lifetime lifetime
	mu       sync.RWMutex // read-held by copies, so that Close waits for them
}

// AllocDMAttr holds the attributes of new device memory (struct ibv_alloc_dm_attr).
type AllocDMAttr struct {
	Length      uint64 // bytes, at least 1; DeviceAttr.MaxDMSize is the total of the device
	LogAlignReq uint32 // alignment of the start: 2^LogAlignReq bytes; atomics need 3
}

// AllocDM allocates device memory, filled with zeroes (ibv_alloc_dm). Close frees it. EINVAL for length 0 or an
// unsupported alignment, ENOMEM if the device has not enough memory left, EOPNOTSUPP if it has none.
func (vctx *Context) AllocDM(attr AllocDMAttr) (*DM, error) {
	const op = "alloc_dm"
	if attr.Length == 0 {
		return nil, newError(op, vctx.obj(), EINVAL, "0 bytes: must be 1 or more")
	}
	if err := vctx.use(op, kindDM); err != nil {
		return nil, err
	}
	dm := &DM{ctx: vctx, length: attr.Length}
	var err error
	if dm.drv, err = vctx.drv.AllocDM(attr.Length, attr.LogAlignReq); err != nil {
		vctx.lifetime.drop(kindDM)
		return nil, driverError(op, vctx.obj(), err)
	}
	return dm, nil
}

// Context returns the context of the memory.
func (dm *DM) Context() *Context { return dm.ctx }

// Length returns the size in bytes.
func (dm *DM) Length() uint64 { return dm.length }

func (dm *DM) obj() string { return fmt.Sprintf("DM of %d bytes of %s", dm.length, dm.ctx.obj()) }

// CopyTo copies src to the device memory at offset (ibv_memcpy_to_dm). EFAULT, and nothing is copied, if the range
// exceeds the memory.
func (dm *DM) CopyTo(offset uint64, src []byte) error {
	return dm.access("memcpy_to_dm", offset, len(src), func() error { return dm.drv.CopyTo(offset, src) })
}

// CopyFrom fills dst from the device memory at offset (ibv_memcpy_from_dm). EFAULT, and nothing is copied, if the
// range exceeds the memory.
func (dm *DM) CopyFrom(dst []byte, offset uint64) error {
	return dm.access("memcpy_from_dm", offset, len(dst), func() error { return dm.drv.CopyFrom(dst, offset) })
}

// access calls do for n bytes at offset. The memory stays allocated until do has returned.
func (dm *DM) access(op string, offset uint64, n int, do func() error) error {
	dm.mu.RLock()
	defer dm.mu.RUnlock()
	if dm.lifetime.closed.Load() {
		return errClosed(op, dm.obj())
	}
	if offset > dm.length || uint64(n) > dm.length-offset {
		return newError(op, dm.obj(), syscall.EFAULT, "%d bytes at offset %d: must be within the device memory", n, offset)
	}
	return driverError(op, dm.obj(), do())
}

// Close frees the memory (ibv_free_dm), or ends its import. EBUSY while regions are registered over it, or other
// contexts have imported it.
func (dm *DM) Close() error {
	const op = "free_dm"
	dm.mu.Lock()
	defer dm.mu.Unlock()
	if dm.from != nil {
		return dm.unimport()
	}
	if err := dm.lifetime.close(op, dm); err != nil {
		return err
	}
	if err := destroyed(dm.drv.Free()); err != nil {
		dm.lifetime.reopen()
		return driverError(op, dm.obj(), err)
	}
	unexport(&dm.handle, exports.dms)
	dm.ctx.lifetime.drop(kindDM)
	return dm.ctx.ended(op, dm)
}

// RegDMMR registers length bytes of device memory at offset (ibv_reg_dm_mr). access must have AccessZeroBased: peers
// and SGEs give addresses as offsets from the region's start. EINVAL for bad access flags, or a range that is empty
// or not within the memory.
func (pd *PD) RegDMMR(dm *DM, offset, length uint64, access AccessFlags) (*MR, error) {
	const op = "reg_dm_mr"
	switch {
	case dm == nil || dm.ctx != pd.ctx:
		return nil, newError(op, pd.obj(), EINVAL, "dm must be device memory of the same context")
	case access&AccessZeroBased == 0:
		return nil, newError(op, pd.obj(), EINVAL, "a region of device memory must be ZERO_BASED")
	case length == 0 || offset > dm.length || length > dm.length-offset:
		return nil, newError(op, dm.obj(), EINVAL,
			"%d bytes at offset %d: must be 1 or more bytes within the device memory", length, offset)
	}
	if err := pd.ctx.checkAccess(op, access); err != nil {
		return nil, err
	}
	if !dm.lifetime.use(kindMR) {
		return nil, errClosed(op, dm.obj())
	}
	mr, err := pd.newSpecialMR(op, &MR{dm: dm, length: length, access: access}, 0, func() (DriverMR, error) {
		return pd.drv.RegDMMR(dm.drv, offset, length, access&accessKnown)
	})
	if err != nil {
		dm.lifetime.drop(kindMR)
	}
	return mr, err
}
