//go:build linux && cgo

package main

import "C"

import (
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

//export vrb_query_device
func vrb_query_device(h, out unsafe.Pointer) C.int {
	d, err := (*contextObj)(h).QueryDevice()
	if err != nil {
		return errno(err)
	}
	a := (*cDeviceAttrEx)(out)
	*a = cDeviceAttrEx{cDeviceAttr: plainDevice(&d)}
	copy(a.fw[:63], d.FWVer)
	a.odp, a.odpRC, a.odpUC, a.odpUD = uint64(d.ODPCaps.General), uint32(d.ODPCaps.RC), uint32(d.ODPCaps.UC),
		uint32(d.ODPCaps.UD)
	a.timestampMask, a.coreClock, a.capsEx = d.CompletionTimestampMask, d.HCACoreClock, uint64(d.DeviceCapFlags)
	a.maxTSO, a.tsoQPTs = d.TSOCaps.MaxTSO, d.TSOCaps.SupportedQPTs
	r := &d.RSSCaps
	a.rssQPTs, a.rssTables, a.rssTableSize = r.SupportedQPTs, r.MaxRWQIndirectionTables, r.MaxRWQIndirectionTableSize
	a.rssFields, a.rssFunction = r.RxHashFieldsMask, r.RxHashFunction
	a.maxWQ = d.MaxWQTypeRQ
	p := &d.PacketPacingCaps
	a.rateMin, a.rateMax, a.rateQPTs = p.QPRateLimitMin, p.QPRateLimitMax, p.SupportedQPTs
	a.rawCaps = uint32(d.RawPacketCaps)
	t := &d.TMCaps
	a.tmHdr, a.tmTags, a.tmFlags, a.tmOps, a.tmSGE = t.MaxRndvHdrSize, t.MaxNumTags, uint32(t.Flags), t.MaxOps, t.MaxSGE
	a.modCount, a.modPeriod = d.CQModCaps.MaxCQCount, d.CQModCaps.MaxCQPeriod
	a.maxDM = d.MaxDMSize
	c := &d.PCIAtomicCaps
	a.atomicFetch, a.atomicSwap, a.atomicCompare = uint16(c.FetchAdd), uint16(c.Swap), uint16(c.CompareSwap)
	a.xrcODP, a.portsEx = uint32(d.XRCODPCaps), uint32(d.PhysPortCnt)
	return 0
}

func plainDevice(d *verbs.DeviceAttr) cDeviceAttr {
	return cDeviceAttr{
		nodeGUID: d.NodeGUID, imageGUID: d.SysImageGUID, maxMR: d.MaxMRSize, pageSizes: d.PageSizeCap,
		vendor: d.VendorID, part: d.VendorPartID, hw: d.HWVer, maxQP: int32(d.MaxQP), maxQPWR: int32(d.MaxQPWR),
		caps: uint32(d.DeviceCapFlags), maxSGE: int32(d.MaxSGE), maxSGERd: int32(d.MaxSGERd), maxCQ: int32(d.MaxCQ),
		maxCQE: int32(d.MaxCQE), maxMRs: int32(d.MaxMR), maxPD: int32(d.MaxPD), qpRdAtom: int32(d.MaxQPRdAtom),
		eeRdAtom: int32(d.MaxEERdAtom), resRdAtom: int32(d.MaxResRdAtom), qpInitRdAtom: int32(d.MaxQPInitRdAtom),
		eeInitRdAtom: int32(d.MaxEEInitRdAtom), atomic: uint32(atomicCap(d)), maxEE: int32(d.MaxEE),
		maxRDD: int32(d.MaxRDD), maxMW: int32(d.MaxMW), rawIPv6: int32(d.MaxRawIPv6QP), rawEthy: int32(d.MaxRawEthyQP),
		mcastGrp: int32(d.MaxMcastGrp), mcastQP: int32(d.MaxMcastQPAttach), mcastTotal: int32(d.MaxTotalMcastQPAttach),
		maxAH: int32(d.MaxAH), maxFMR: int32(d.MaxFMR), mapPerFMR: int32(d.MaxMapPerFMR), maxSRQ: int32(d.MaxSRQ),
		maxSRQWR: int32(d.MaxSRQWR), srqSGE: int32(d.MaxSRQSGE), maxPKeys: d.MaxPKeys, ackDelay: d.LocalCAAckDelay,
		ports: d.PhysPortCnt,
	}
}

// atomicCap is what adapters report, atomic among the QPs of the device: UCX uses no atomics of a device that reports
// more.
func atomicCap(d *verbs.DeviceAttr) verbs.AtomicCap { return min(d.AtomicCap, verbs.AtomicHCA) }
