package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
)

// Limits of the device. Where they are not those of rdma_rxe it is because memory is the only real limit.
const (
	maxQP       = 1<<20 - 16
	maxQPWR     = 1 << 16
	maxSGE      = 32
	maxInline   = 4096
	maxCQE      = 1 << 20
	maxRdAtom   = 128
	maxSRQWR    = 1 << 16
	maxObjects  = 1 << 20 // CQs, MRs and MWs, PDs, AHs, SRQs
	maxMessage  = 1 << 31
	mcastGroups = 8192
	mcastQPs    = 1024
)

// deviceAttr describes the device.
func (d *device) deviceAttr() verbs.DeviceAttr {
	attr := verbs.DeviceAttr{
		FWVer:                 version,
		NodeGUID:              d.guid,
		SysImageGUID:          d.guid,
		MaxMRSize:             1 << 47,
		PageSizeCap:           0xfffff000,
		VendorID:              0xffffff, // as rdma_rxe's: nobody's
		HWVer:                 0,
		MaxQP:                 maxQP,
		MaxQPWR:               maxQPWR,
		MaxSGE:                maxSGE,
		MaxSGERd:              maxSGE,
		MaxCQ:                 maxObjects,
		MaxCQE:                maxCQE,
		MaxMR:                 maxObjects,
		MaxPD:                 maxObjects,
		MaxQPRdAtom:           maxRdAtom,
		MaxQPInitRdAtom:       maxRdAtom,
		MaxResRdAtom:          maxQP * maxRdAtom,
		AtomicCap:             verbs.AtomicGlob,
		MaxMW:                 maxObjects,
		MaxMcastGrp:           mcastGroups,
		MaxMcastQPAttach:      mcastQPs,
		MaxTotalMcastQPAttach: mcastGroups * mcastQPs,
		MaxAH:                 maxObjects,
		MaxSRQ:                maxObjects,
		MaxSRQWR:              maxSRQWR,
		MaxSRQSGE:             maxSGE,
		MaxPKeys:              1,
		LocalCAAckDelay:       15,
		PhysPortCnt:           1,
		DeviceCapFlags: verbs.DeviceBadPKeyCntr | verbs.DeviceBadQKeyCntr | verbs.DeviceAutoPathMig | verbs.DeviceUDAVPortEnforce |
			verbs.DeviceCurrQPStateMod | verbs.DevicePortActiveEvent | verbs.DeviceSysImageGUID | verbs.DeviceRCRNRNAKGen |
			verbs.DeviceSRQResize | verbs.DeviceXRC | verbs.DeviceMemWindow | verbs.DeviceMemMgtExtensions | verbs.DeviceMemWindowType2B,
	}
	if d.hasFrames() {
		attr.MaxRawEthyQP = maxQP
		attr.DeviceCapFlags |= verbs.DeviceManagedFlowSteering | verbs.DeviceRawIPCsum
	}
	return attr
}

// version is what the device says of its firmware.
const version = "1.0"
