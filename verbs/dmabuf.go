package verbs

import (
	"math"
	"syscall"
)

// RegDMABufMR registers length bytes, 1 to MaxMRSize, at offset of the memory behind the dma-buf descriptor fd
// (ibv_reg_dmabuf_mr). Another device, such as a GPU, owns the memory. iova is the address of the region's start for
// peers and SGEs; adapters require the same offset in a page for iova and offset. The kernel keeps the memory while
// the region exists; the program owns fd and may close it when RegDMABufMR has returned. MR.Bytes of the region is
// nil, and Rereg refuses it.
//
// Errors: EINVAL for a bad range or bad access flags: at most AccessLocalWrite, AccessRemoteWrite, AccessRemoteRead,
// AccessRemoteAtomic and AccessRelaxedOrdering. EBADF if fd is not open, EINVAL if it is not a dma-buf. EOPNOTSUPP if
// the device cannot reach such memory; the software device cannot. ENOMEM without resources.
func (pd *PD) RegDMABufMR(offset, length, iova uint64, fd int, access AccessFlags) (*MR, error) {
	const op = "reg_dmabuf_mr"
	const possible = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessRelaxedOrdering
	most := pd.ctx.attr.MaxMRSize
	switch {
	case fd < 0 || fd > math.MaxInt32:
		return nil, newError(op, pd.obj(), syscall.EBADF, "descriptor %d: must be an open dma-buf", fd)
	case length == 0 || length > most:
		return nil, newError(op, pd.obj(), EINVAL, "%d bytes: must be 1 to %d", length, most)
	case offset > math.MaxUint64-length:
		return nil, newError(op, pd.obj(), EINVAL, "%d bytes at offset %d: the end must be below 2^64", length, offset)
	case iova > math.MaxUint64-length+1:
		return nil, newError(op, pd.obj(), EINVAL, "%d bytes at address %#x: the end must not exceed 2^64", length, iova)
	case access&^(possible|accessOptional) != 0:
		return nil, newError(op, pd.obj(), EINVAL, "access flags %v of a dma-buf: must be of %v",
			access&^(possible|accessOptional), possible)
	}
	if err := pd.ctx.checkAccess(op, access); err != nil {
		return nil, err
	}
	return pd.newSpecialMR(op, &MR{dmaBuf: true, length: length, access: access}, iova, func() (DriverMR, error) {
		return pd.drv.RegDMABufMR(offset, length, iova, fd, access&accessKnown)
	})
}
