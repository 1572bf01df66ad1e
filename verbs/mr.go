package verbs

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"
)

// MR is a memory region: memory that the device may use (struct ibv_mr). It is safe for concurrent use.
//
// The device writes to the memory whenever a request or a peer makes it, without regard to Go's memory model: look at
// it only when a completion says that it is done. The region keeps the memory reachable until Close.
type MR struct {
	life   life
	drv    MRDriver
	from   *MR    // of an imported region
	handle uint32 // see Handle
	null   bool   // see AllocNullMR
	dm     *DM    // of RegDMMR
	length uint64 // of a null region or one of device memory
	addr   atomic.Uint64
	keys   atomic.Uint64 // lkey<<32 | rkey

	mu     sync.Mutex // guards what follows and serialises Rereg and Close
	pd     *PD
	buf    []byte
	access AccessFlags
	pin    *mapping
}

// RegMR registers buf, 1..MaxMRSize bytes, with the given rights (ibv_reg_mr). Peers and SGEs give addresses of the
// region as those of buf in this process, or with AccessZeroBased as offsets into it. Memory may be registered
// several times, and any memory may be: of Go's heap, of a mapped file, of C, of AllocBuffer. EINVAL for bad rights
// (remote writing and atomics need AccessLocalWrite; memory that the process may not write cannot have it) or a bad
// length, ENOMEM without resources. nil with AccessOnDemand asks for a region of the whole address space (implicit
// on-demand paging): EOPNOTSUPP, since a peer could then make the process crash.
func (pd *PD) RegMR(buf []byte, access AccessFlags) (*MR, error) {
	return pd.regMR("reg_mr", buf, naturalIOVA(buf, access), access)
}

// RegMRIOVA is RegMR with an address of the caller's choice for the region's start (ibv_reg_mr_iova). With
// AccessZeroBased iova must be 0.
func (pd *PD) RegMRIOVA(buf []byte, iova uint64, access AccessFlags) (*MR, error) {
	if access&AccessZeroBased != 0 && iova != 0 {
		return nil, newError("reg_mr_iova", pd.obj(), EINVAL, "ZERO_BASED goes with iova 0 only, not %#x", iova)
	}
	return pd.regMR("reg_mr_iova", buf, iova, access)
}

// naturalIOVA is where a region begins unless the caller says so.
func naturalIOVA(buf []byte, access AccessFlags) uint64 {
	if access&AccessZeroBased != 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
}

func (pd *PD) regMR(op string, buf []byte, iova uint64, access AccessFlags) (*MR, error) {
	if !pd.life.use(kindMR) {
		return nil, errClosed(op, pd.obj())
	}
	mr := &MR{pd: pd, buf: buf, access: access}
	err := pd.ctx.checkMR(op, buf, iova, access)
	if err == nil {
		mr.pin = pinBuffer(buf)
		mr.drv, err = pd.drv.RegMR(buf, iova, access&accessKnown)
		err = driverError(op, pd.obj(), err)
	}
	if err != nil {
		mr.pin.unpin()
		pd.life.drop(kindMR)
		return nil, err
	}
	memoryRegistered()
	mr.publish(iova)
	return mr, nil
}

// checkMR is what a region must fulfil, for RegMR and Rereg.
func (ctx *Context) checkMR(op string, buf []byte, iova uint64, access AccessFlags) error {
	if err := ctx.checkAccess(op, access); err != nil {
		return err
	}
	n := uint64(len(buf))
	switch {
	case buf == nil && access&AccessOnDemand != 0:
		return newError(op, ctx.obj(), EOPNOTSUPP, "a region of the whole address space (implicit on-demand paging) is not possible")
	case n == 0:
		return newError(op, ctx.obj(), EINVAL, "the memory is empty; 1 to %d bytes are possible", ctx.attr.MaxMRSize)
	case n > ctx.attr.MaxMRSize:
		return newError(op, ctx.obj(), EINVAL, "%d bytes are too many; 1 to %d are possible", n, ctx.attr.MaxMRSize)
	case iova > math.MaxUint64-n+1:
		return newError(op, ctx.obj(), EINVAL, "%d bytes from address %#x on do not fit 64 bits", n, iova)
	}
	if ownBuffer(buf) {
		return nil // readable and writable; the list of mappings is long where there are many buffers
	}
	if err := checkMemory(buf, access&AccessLocalWrite != 0); err != nil {
		return newError(op, ctx.obj(), EINVAL, "%v", err)
	}
	return nil
}

// checkAccess is what the rights of a region must fulfil by themselves.
func (ctx *Context) checkAccess(op string, access AccessFlags) error {
	const remote = AccessRemoteWrite | AccessRemoteAtomic
	switch unknown := access &^ (accessKnown | accessOptional); {
	case unknown != 0:
		return newError(op, ctx.obj(), EINVAL, "unknown access flags %v", unknown)
	case access&remote != 0 && access&AccessLocalWrite == 0:
		return newError(op, ctx.obj(), EINVAL, "%v needs LOCAL_WRITE too", access&remote)
	case access&AccessHugeTLB != 0 && access&AccessOnDemand == 0:
		return newError(op, ctx.obj(), EINVAL, "HUGETLB goes with ON_DEMAND only")
	}
	return nil
}

// publish makes the driver's keys and the address visible.
func (mr *MR) publish(iova uint64) {
	mr.addr.Store(iova)
	mr.keys.Store(uint64(mr.drv.LKey())<<32 | uint64(mr.drv.RKey()))
}

// PD is the protection domain that the region is in.
func (mr *MR) PD() *PD {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	return mr.pd
}

// Context is the context that the region belongs to.
func (mr *MR) Context() *Context { return mr.PD().ctx }

// Addr is the address of the region's first byte as SGEs and peers give it: the iova, 0 for a zero-based region.
func (mr *MR) Addr() uint64 { return mr.addr.Load() }

// Length is the region's size in bytes; the largest int for a null region.
func (mr *MR) Length() int {
	if mr.special() {
		return int(min(mr.length, math.MaxInt))
	}
	return len(mr.Bytes())
}

// LKey is the key for SGEs of local requests. It may equal RKey.
func (mr *MR) LKey() uint32 { return uint32(mr.keys.Load() >> 32) }

// RKey is the key for the requests of peers, who must be told it; 0 for a null region.
func (mr *MR) RKey() uint32 { return uint32(mr.keys.Load()) }

// Bytes is the memory; nil for a null region and for device memory.
func (mr *MR) Bytes() []byte {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	return mr.buf
}

// Access is what the region was registered with.
func (mr *MR) Access() AccessFlags {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	return mr.access
}

// SGE names n bytes from offset off of the region on (struct ibv_sge). It checks nothing: a request with an SGE that
// is not within the region completes with WCLocProtErr.
func (mr *MR) SGE(off, n int) SGE {
	length := uint32(math.MaxUint32)
	if n >= 0 && uint64(n) < math.MaxUint32 {
		length = uint32(n)
	}
	return SGE{Addr: mr.addr.Load() + uint64(off), Length: length, LKey: mr.LKey()}
}

func (mr *MR) obj() string { return fmt.Sprintf("MR lkey 0x%08x", mr.LKey()) }

// Rereg changes what flags name, as Close and RegMR would, but in one step (ibv_rereg_mr): the memory, at its own
// address or zero-based; the PD, which must be of the same context; the rights. Arguments that flags do not name must
// be zero. The keys may change. The error is a *ReregError, whose Code tells what became of the region. It must be
// closed in any case. A region with windows (EBUSY), a null region and one of device memory (EINVAL) cannot be changed.
func (mr *MR) Rereg(flags ReregFlags, pd *PD, buf []byte, access AccessFlags) error {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	err := mr.rereg(flags, pd, buf, access)
	if err == nil {
		return nil
	}
	// A driver that knows better says so with a *ReregError of its own.
	code := ReregErrInput
	if e := (*ReregError)(nil); errors.As(err, &e) {
		code = e.Code
	}
	return &ReregError{Code: code, Err: err}
}

func (mr *MR) rereg(flags ReregFlags, pd *PD, buf []byte, access AccessFlags) error {
	const op = "rereg_mr"
	if err := mr.checkRereg(op, flags, pd, buf, access); err != nil {
		return err
	}
	next := reregArgs{pd: mr.pd, buf: mr.buf, access: mr.access}
	if flags&ReregChangePD != 0 {
		next.pd = pd
	}
	if flags&ReregChangeTranslation != 0 {
		next.buf = buf
	}
	if flags&ReregChangeAccess != 0 {
		next.access = access
	}
	// A region keeps its address unless the memory changes or it becomes, or ceases to be, zero-based.
	next.iova = mr.addr.Load()
	if moved := flags&ReregChangeTranslation != 0; moved || (next.access^mr.access)&AccessZeroBased != 0 {
		next.iova = naturalIOVA(next.buf, next.access)
	}
	if err := next.pd.ctx.checkMR(op, next.buf, next.iova, next.access); err != nil {
		return err
	}
	if next.pd != mr.pd && !next.pd.life.use(kindMR) {
		return errClosed(op, next.pd.obj())
	}
	return mr.move(op, next)
}

type reregArgs struct {
	pd     *PD
	buf    []byte
	iova   uint64
	access AccessFlags
}

// checkRereg is what the arguments of Rereg must fulfil by themselves.
func (mr *MR) checkRereg(op string, flags ReregFlags, pd *PD, buf []byte, access AccessFlags) error {
	switch {
	case mr.life.closed.Load():
		return errClosed(op, mr.obj())
	case mr.from != nil:
		return newError(op, mr.obj(), EINVAL, "an imported region cannot be changed")
	case mr.special():
		return newError(op, mr.obj(), EINVAL, "a null region or one of device memory cannot be changed")
	case flags&^reregSupported != 0:
		return newError(op, mr.obj(), EINVAL, "unknown flags %v; there are %v", flags&^reregSupported, reregSupported)
	case flags == 0:
		return newError(op, mr.obj(), EINVAL, "no flag says what to change; there are %v", reregSupported)
	case flags&ReregChangeTranslation != 0 && len(buf) == 0:
		return newError(op, mr.obj(), EINVAL, "CHANGE_TRANSLATION needs memory")
	case flags&ReregChangeTranslation == 0 && buf != nil:
		return newError(op, mr.obj(), EINVAL, "memory is given without CHANGE_TRANSLATION")
	case flags&ReregChangePD != 0 && (pd == nil || pd.ctx != mr.pd.ctx):
		return newError(op, mr.obj(), EINVAL, "CHANGE_PD needs a PD of the same context")
	case flags&ReregChangePD == 0 && pd != nil:
		return newError(op, mr.obj(), EINVAL, "a PD is given without CHANGE_PD")
	case flags&ReregChangeAccess == 0 && access != 0:
		return newError(op, mr.obj(), EINVAL, "access flags are given without CHANGE_ACCESS")
	}
	return nil
}

// move makes the driver change the region and follows it. It owns a use of next.pd if that is another one.
func (mr *MR) move(op string, next reregArgs) error {
	pin := pinBuffer(next.buf)
	access := next.access & accessKnown
	if err := mr.drv.Rereg(next.pd.drv, next.buf, next.iova, &access); err != nil {
		pin.unpin()
		if next.pd != mr.pd {
			next.pd.life.drop(kindMR)
		}
		return driverError(op, mr.obj(), err)
	}
	mr.pin.unpin()
	if next.pd != mr.pd {
		mr.pd.life.drop(kindMR)
	}
	mr.pd, mr.buf, mr.access, mr.pin = next.pd, next.buf, next.access, pin
	mr.publish(next.iova)
	return nil
}

// Close deregisters the region (ibv_dereg_mr). Only afterwards may its memory be unmapped. Requests that use its keys
// later complete with an error. EBUSY while memory windows are bound to it.
func (mr *MR) Close() error {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.from != nil {
		return mr.unimport()
	}
	if err := mr.life.end("dereg_mr", mr.obj()); err != nil {
		return err
	}
	if err := destroyed(mr.drv.Dereg()); err != nil {
		mr.life.revive()
		return driverError("dereg_mr", mr.obj(), err)
	}
	unexport(&mr.handle, exports.mrs)
	mr.pin.unpin()
	if mr.dm != nil {
		mr.dm.life.drop(kindMR)
	}
	mr.pd.life.drop(kindMR)
	return nil
}
