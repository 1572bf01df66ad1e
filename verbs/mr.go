package verbs

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// MR is a memory region: memory registered for the device (struct ibv_mr). It is safe for concurrent use.
//
// The device writes to the memory when a request or a peer asks for it, without regard to Go's memory model: read it
// only after a completion reports that the request is done. The region keeps the memory reachable until Close.
type MR struct {
	lifetime lifetime
	drv      DriverMR
	from     *MR    // of an imported region
	handle   uint32 // see Handle
	null     bool   // see AllocNullMR
	dm       *DM    // of RegDMMR
	dmaBuf   bool   // of RegDMABufMR
	length   uint64 // of a region without memory of the process
	addr     atomic.Uint64
	keys     atomic.Uint64 // lkey<<32 | rkey

	mu     sync.Mutex // guards what follows and serialises Rereg and Close
	pd     *PD
	buf    []byte
	access AccessFlags
	pin    pins
}

// RegMR registers buf, 1 to MaxMRSize bytes, with access flags (ibv_reg_mr). Peers and SGEs use the addresses of buf
// in this process, or with AccessZeroBased offsets into buf. Any memory may be registered, also several times: of
// Go's heap, of a mapped file, of C, of AllocBuffer, also of several mappings that adjoin. The memory must stay mapped
// until Close.
//
// Errors: EINVAL for a bad length or bad access flags; remote writing and atomics need AccessLocalWrite. EFAULT for
// memory that is not mapped or that the process may not read or, with AccessLocalWrite, not write. ENOMEM without
// resources.
//
// A nil buf with AccessOnDemand registers the whole address space of the process (implicit on-demand paging), if the
// device has ODPSupportImplicit: SGEs name any memory of the process, which the program keeps mapped, and if it is of
// Go's heap reachable, until the request has completed; a request for memory that is not mapped completes with an
// error. EINVAL for an iova, AccessZeroBased or AccessHugeTLB. A software device gives peers no rights to such a region
// (EOPNOTSUPP).
func (pd *PD) RegMR(buf []byte, access AccessFlags) (*MR, error) {
	return pd.regMR("reg_mr", buf, naturalIOVA(buf, access), access)
}

// RegMRIOVA is RegMR with iova as the address of the region's start for peers and SGEs (ibv_reg_mr_iova). With
// AccessZeroBased iova must be 0.
func (pd *PD) RegMRIOVA(buf []byte, iova uint64, access AccessFlags) (*MR, error) {
	if access&AccessZeroBased != 0 && iova != 0 {
		return nil, newError("reg_mr_iova", pd.obj(), EINVAL, "iova %#x: must be 0 with ZERO_BASED", iova)
	}
	return pd.regMR("reg_mr_iova", buf, iova, access)
}

// naturalIOVA returns the address of a region's start if the caller does not choose it.
func naturalIOVA(buf []byte, access AccessFlags) uint64 {
	if access&AccessZeroBased != 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
}

func (pd *PD) regMR(op string, buf []byte, iova uint64, access AccessFlags) (*MR, error) {
	if err := pd.use(op, kindMR); err != nil {
		return nil, err
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
		pd.lifetime.drop(kindMR)
		return nil, err
	}
	memoryRegistered()
	mr.publish(iova)
	return mr, nil
}

// checkMR checks memory, address and access flags, for RegMR and Rereg.
func (vctx *Context) checkMR(op string, buf []byte, iova uint64, access AccessFlags) error {
	if err := vctx.checkAccess(op, access); err != nil {
		return err
	}
	n := uint64(len(buf))
	switch {
	case buf == nil && access&AccessOnDemand != 0:
		return vctx.checkWhole(op, iova, access)
	case n == 0:
		return newError(op, vctx.obj(), EINVAL, "0 bytes: must be 1 to %d", vctx.attr.MaxMRSize)
	case n > vctx.attr.MaxMRSize:
		return newError(op, vctx.obj(), EINVAL, "%d bytes: must be 1 to %d", n, vctx.attr.MaxMRSize)
	case iova > math.MaxUint64-n+1:
		return newError(op, vctx.obj(), EINVAL, "%d bytes at address %#x: the end must not exceed 2^64", n, iova)
	}
	if ownBuffer(buf) {
		return nil // readable and writable; the list of mappings is long where there are many buffers
	}
	check := checkMemory
	if access&AccessOnDemand != 0 {
		check = checkMappings // which brings no page into memory
	}
	if err := check(buf, access&AccessLocalWrite != 0); err != nil {
		return newError(op, vctx.obj(), syscall.EFAULT, "%v", err)
	}
	return nil
}

// checkWhole checks a region of the whole address space.
func (vctx *Context) checkWhole(op string, iova uint64, access AccessFlags) error {
	switch {
	case vctx.attr.ODPCaps.General&ODPSupportImplicit == 0:
		return newError(op, vctx.obj(), EOPNOTSUPP,
			"implicit on-demand paging (a nil buffer with ON_DEMAND): the device does not have SUPPORT_IMPLICIT")
	case iova != 0 || access&AccessZeroBased != 0:
		return newError(op, vctx.obj(), EINVAL, "iova %#x, access %v: the whole address space has its own addresses",
			iova, access)
	case access&AccessHugeTLB != 0:
		return newError(op, vctx.obj(), EINVAL, "HUGETLB: the whole address space is not of huge pages")
	}
	return nil
}

// checkAccess checks the access flags of a region.
func (vctx *Context) checkAccess(op string, access AccessFlags) error {
	const remote = AccessRemoteWrite | AccessRemoteAtomic
	switch unknown := access &^ (accessKnown | accessOptional); {
	case unknown != 0:
		return newError(op, vctx.obj(), EINVAL, "unknown access flags %v", unknown)
	case access&remote != 0 && access&AccessLocalWrite == 0:
		return newError(op, vctx.obj(), EINVAL, "%v needs LOCAL_WRITE too", access&remote)
	case access&AccessHugeTLB != 0 && access&AccessOnDemand == 0:
		return newError(op, vctx.obj(), EINVAL, "HUGETLB needs ON_DEMAND")
	}
	return nil
}

// publish makes the driver's keys and the address visible.
func (mr *MR) publish(iova uint64) {
	mr.addr.Store(iova)
	mr.keys.Store(uint64(mr.drv.LKey())<<32 | uint64(mr.drv.RKey()))
}

// PD returns the protection domain of the region.
func (mr *MR) PD() *PD {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	return mr.pd
}

// Context returns the context of the region.
func (mr *MR) Context() *Context { return mr.PD().ctx }

// Addr returns the address of the region's first byte for SGEs and peers: the iova, 0 for a zero-based region.
func (mr *MR) Addr() uint64 { return mr.addr.Load() }

// whole reports whether the region is the whole address space.
func (mr *MR) whole() bool { return !mr.special() && mr.Bytes() == nil }

// Length returns the region's size in bytes; the largest int for a null region and for the whole address space.
func (mr *MR) Length() int {
	if mr.whole() {
		return math.MaxInt
	}
	if mr.special() {
		return int(min(mr.length, math.MaxInt))
	}
	return len(mr.Bytes())
}

// LKey returns the key for SGEs of local requests. It may equal RKey.
func (mr *MR) LKey() uint32 { return uint32(mr.keys.Load() >> 32) }

// RKey returns the key for requests of peers; 0 for a null region. The program sends it to the peers.
func (mr *MR) RKey() uint32 { return uint32(mr.keys.Load()) }

// Bytes returns the memory; nil for a null region, device memory and a dma-buf.
func (mr *MR) Bytes() []byte {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	return mr.buf
}

// Access returns the access flags of the region.
func (mr *MR) Access() AccessFlags {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	return mr.access
}

// SGE returns an SGE of n bytes at offset off of the region (struct ibv_sge). It checks nothing: a request with an
// SGE outside of the region completes with WCLocProtErr. A negative off stands for the unsigned number of the same
// bits, such as an address in an implicit region of a 32-bit program.
func (mr *MR) SGE(off, n int) SGE {
	length := uint32(math.MaxUint32)
	if n >= 0 && uint64(n) < math.MaxUint32 {
		length = uint32(n)
	}
	return SGE{Addr: mr.addr.Load() + uint64(uint(off)), Length: length, LKey: mr.LKey()}
}

func (mr *MR) obj() string { return fmt.Sprintf("MR lkey 0x%08x", mr.LKey()) }

// Rereg changes the properties that flags name, in one step (ibv_rereg_mr): the memory, at its own address or
// zero-based; the PD, which must be of the same context; the access flags. Arguments that flags do not name must be
// zero. The keys may change. A region with windows (EBUSY), a null region and a region of device memory or a dma-buf
// (EINVAL) cannot be changed.
//
// The error is a *ReregError. Its Code is the state of the region, which must be closed in any case.
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
	if next.pd != mr.pd && !next.pd.lifetime.use(kindMR) {
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

// checkRereg checks the arguments of Rereg.
func (mr *MR) checkRereg(op string, flags ReregFlags, pd *PD, buf []byte, access AccessFlags) error {
	switch {
	case mr.lifetime.closed.Load():
		return errClosed(op, mr.obj())
	case mr.pd.ctx.isRemoved():
		return errRemoved(op, mr)
	case mr.from != nil:
		return newError(op, mr.obj(), EINVAL, "an imported region cannot be changed")
	case mr.special():
		return newError(op, mr.obj(), EINVAL, "a null region or one of device memory or a dma-buf cannot be changed")
	case mr.buf == nil:
		return newError(op, mr.obj(), EINVAL, "a region of the whole address space cannot be changed")
	case flags&^reregSupported != 0:
		return newError(op, mr.obj(), EINVAL, "unknown flags %v; must be of %v", flags&^reregSupported, reregSupported)
	case flags == 0:
		return newError(op, mr.obj(), EINVAL, "flags are 0: must be of %v", reregSupported)
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

// move makes the driver change the region and updates mr. The caller has added a use of next.pd if that is another
// PD.
func (mr *MR) move(op string, next reregArgs) error {
	pin := pinBuffer(next.buf)
	access := next.access & accessKnown
	if err := mr.drv.Rereg(next.pd.drv, next.buf, next.iova, &access); err != nil {
		pin.unpin()
		if next.pd != mr.pd {
			next.pd.lifetime.drop(kindMR)
		}
		return driverError(op, mr.obj(), err)
	}
	mr.pin.unpin()
	if next.pd != mr.pd {
		mr.pd.lifetime.drop(kindMR)
	}
	mr.pd, mr.buf, mr.access, mr.pin = next.pd, next.buf, next.access, pin
	mr.publish(next.iova)
	return nil
}

// Close deregisters the region (ibv_dereg_mr). Its memory may be unmapped afterwards. Later requests with its keys
// complete with an error. EBUSY while memory windows are bound to it.
func (mr *MR) Close() error {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.from != nil {
		return mr.unimport()
	}
	if err := mr.lifetime.close("dereg_mr", mr); err != nil {
		return err
	}
	if err := destroyed(mr.drv.Dereg()); err != nil {
		mr.lifetime.reopen()
		return driverError("dereg_mr", mr.obj(), err)
	}
	unexport(&mr.handle, exports.mrs)
	mr.pin.unpin()
	if mr.dm != nil {
		mr.dm.lifetime.drop(kindMR)
	}
	mr.pd.lifetime.drop(kindMR)
	return mr.pd.ctx.ended("dereg_mr", mr)
}

// AllocNullMR allocates a null region, which has no memory, for SGEs of local requests (ibv_alloc_null_mr). Its LKey
// is valid with any address and length. Reads return zeroes, writes are discarded. It has no RKey, cannot be changed
// and cannot have windows. EOPNOTSUPP if the device lacks it.
func (pd *PD) AllocNullMR() (*MR, error) {
	const op = "alloc_null_mr"
	return pd.newSpecialMR(op, &MR{null: true, length: math.MaxUint64, access: AccessLocalWrite}, 0, pd.drv.AllocNullMR)
}

// newSpecialMR creates a region without memory of the process, whose addresses begin at iova.
func (pd *PD) newSpecialMR(op string, mr *MR, iova uint64, register func() (DriverMR, error)) (*MR, error) {
	if err := pd.use(op, kindMR); err != nil {
		return nil, err
	}
	var err error
	if mr.drv, err = register(); err != nil {
		pd.lifetime.drop(kindMR)
		return nil, driverError(op, pd.obj(), err)
	}
	mr.pd = pd
	mr.publish(iova)
	return mr, nil
}

// special reports whether the region has no memory of the process.
func (mr *MR) special() bool { return mr.null || mr.dmaBuf || mr.dm != nil }

// AdviseMR gives advice on regions with AccessOnDemand: load the pages of the SGEs into memory (ibv_advise_mr). Only
// the duration of later requests changes. Without AdviseMRFlush it may continue after the call returns.
//
// Errors: EINVAL for no SGEs, unknown flags or keys. EPERM for a region of another PD, or AdvicePrefetchWrite without
// AccessLocalWrite. EFAULT for a range that is not within the region, or that cannot be read or written. EOPNOTSUPP
// for unknown advice, or if the device takes none.
func (pd *PD) AdviseMR(advice AdviseMRAdvice, flags AdviseMRFlags, list ...SGE) error {
	const op = "advise_mr"
	switch {
	case advice > AdvicePrefetchNoFault:
		return newError(op, pd.obj(), EOPNOTSUPP, "unknown advice %v", advice)
	case flags&^AdviseMRFlush != 0:
		return newError(op, pd.obj(), EINVAL, "unknown flags %v; must be of FLUSH", flags&^AdviseMRFlush)
	case len(list) == 0:
		return newError(op, pd.obj(), EINVAL, "0 SGEs: must be 1 or more")
	}
	if err := pd.use(op, kindMR); err != nil { // the PD stays while the driver is at it
		return err
	}
	defer pd.lifetime.drop(kindMR)
	return driverError(op, pd.obj(), pd.drv.AdviseMR(advice, flags, list))
}
