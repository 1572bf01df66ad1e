package soft

import (
	"math"

	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/verbs"
)

// Limits of the device. Memory is the only physical limit, so some are higher than those of rdma_rxe.
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

// deviceAttr returns the attributes that do not depend on a context.
func (d *device) deviceAttr() verbs.DeviceAttr {
	attr := verbs.DeviceAttr{
		FWVer:                 version,
		NodeGUID:              d.guid,
		SysImageGUID:          d.guid,
		MaxMRSize:             1 << 47,
		PageSizeCap:           0xfffff000,
		VendorID:              0xffffff, // as rdma_rxe's: not assigned
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
		MaxPKeys:              d.maxPKeys(),
		LocalCAAckDelay:       15,
		PhysPortCnt:           uint8(len(d.ports)),
		DeviceCapFlags: verbs.DeviceResizeMaxWR | verbs.DeviceBadPKeyCntr | verbs.DeviceBadQKeyCntr |
			verbs.DeviceAutoPathMig | verbs.DeviceUDAVPortEnforce |
			verbs.DeviceCurrQPStateMod | verbs.DevicePortActiveEvent | verbs.DeviceSysImageGUID | verbs.DeviceRCRNRNAKGen |
			verbs.DeviceSRQResize | verbs.DeviceXRC | verbs.DeviceMemWindow | verbs.DeviceMemMgtExtensions |
			verbs.DeviceMemWindowType2B,
	}
	if len(d.ports) > 1 {
		attr.DeviceCapFlags |= verbs.DeviceChangePhyPort
	}
	if !d.spec.streams {
		attr.DeviceCapFlags |= verbs.DeviceUDIPCsum
	}
	if d.hasFrames() {
		attr.MaxRawEthyQP = maxQP
		attr.DeviceCapFlags |= verbs.DeviceManagedFlowSteering | verbs.DeviceRawIPCsum
	}
	return attr
}

// version is the firmware version that the device reports.
const version = "1.0"

// Every region of a software device has on-demand paging: the kernel brings a page in when the device touches it. So
// ON_DEMAND needs no work, and HUGETLB has no effect. A region of the whole address space gives peers no rights, since
// they could end the process with an address of a free part of Go's heap (internal/mr/whole.go).

// odpCaps are the operations on regions with on-demand paging: all of them.
var odpCaps = verbs.ODPCaps{
	General: verbs.ODPSupport | verbs.ODPSupportImplicit,
	RC: verbs.ODPSend | verbs.ODPRecv | verbs.ODPWrite | verbs.ODPRead | verbs.ODPAtomic | verbs.ODPSRQRecv |
		verbs.ODPFlush | verbs.ODPAtomicWrite,
	UC: verbs.ODPSend | verbs.ODPRecv | verbs.ODPWrite,
	UD: verbs.ODPSend | verbs.ODPRecv | verbs.ODPSRQRecv,
}

// xrcODPCaps are the same for XRC, which receives only from SRQs.
const xrcODPCaps = verbs.ODPSend | verbs.ODPWrite | verbs.ODPRead | verbs.ODPAtomic | verbs.ODPSRQRecv |
	verbs.ODPFlush | verbs.ODPAtomicWrite

// QueryDevice returns the attributes of the device.
func (c *deviceContext) QueryDevice() (verbs.DeviceAttr, error) {
	attr := c.dev.deviceAttr()
	attr.ODPCaps, attr.XRCODPCaps = odpCaps, xrcODPCaps
	attr.MaxDMSize = maxDMSize
	attr.TMCaps = tmCaps
	attr.CQModCaps = verbs.CQModerationCaps{MaxCQCount: math.MaxUint16, MaxCQPeriod: math.MaxUint16}
	attr.DeviceCapFlags |= verbs.DeviceFlushGlobal | verbs.DeviceAtomicWrite | verbs.DevicePCIWriteEndPadding
	attr.PacketPacingCaps = verbs.PacketPacingCaps{
		QPRateLimitMin: minRate, QPRateLimitMax: maxRate,
		SupportedQPTs: 1<<verbs.QPTypeRC | 1<<verbs.QPTypeUC | 1<<verbs.QPTypeUD | 1<<verbs.QPTypeXRCSend,
	}
	attr.TSOCaps = verbs.TSOCaps{MaxTSO: raw.MaxTSO, SupportedQPTs: 1 << verbs.QPTypeUD}
	c.dev.rawCaps(&attr)
	c.dev.streamCaps(&attr)
	attr.CompletionTimestampMask, attr.HCACoreClock = math.MaxUint64, 1e6 // ticks are nanoseconds
	return attr, nil
}
