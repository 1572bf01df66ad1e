package verbs

// The interfaces of this file are those of features that a driver may lack. A driver has them if its objects have the
// methods.

// DeviceExQuerier is a ContextDriver that has more to tell than QueryDevice does.
type DeviceExQuerier interface {
	// QueryDeviceEx fills attr, of which DeviceCapFlagsEx is that of QueryDevice. Orig is not its business.
	QueryDeviceEx(attr *DeviceAttrEx) error
}

// DMAllocator is a ContextDriver that has device memory.
type DMAllocator interface {
	// AllocDM gets length bytes, 1 at least, that begin at a multiple of 2^logAlign.
	AllocDM(length uint64, logAlign uint32) (DMDriver, error)
}

// DMDriver is device memory. The verbs layer has checked that ranges lie in it.
type DMDriver interface {
	CopyTo(offset uint64, src []byte) error
	CopyFrom(dst []byte, offset uint64) error
	Free() error
}

// DMRegistrar is a PDDriver that can register device memory. The region's addresses begin at 0.
type DMRegistrar interface {
	RegDMMR(dm DMDriver, offset, length uint64, access AccessFlags) (MRDriver, error)
}

// NullMRAllocator is a PDDriver that has null regions.
type NullMRAllocator interface {
	AllocNullMR() (MRDriver, error)
}

// MRAdviser is a PDDriver that takes advice on regions with on-demand paging.
type MRAdviser interface {
	AdviseMR(advice AdviseMRAdvice, flags AdviseMRFlags, list []SGE) error
}

// MWAllocator is a PDDriver that has memory windows. It may lack a type.
type MWAllocator interface {
	AllocMW(t MWType) (MWDriver, error)
}

// MWDriver is a memory window. Binds come through PostSend as requests with opcode WRBindMW, for windows of type 1
// too, and without a region if they unbind one. They may come after Dealloc, from a goroutine that began before it, and
// then complete with WCMWBindErr.
type MWDriver interface {
	// RKey is the key after AllocMW.
	RKey() uint32
	Dealloc() error
}
