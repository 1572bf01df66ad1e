//go:build linux && (amd64 || arm64)

package hw

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// devContext is a DriverContext: a struct ibv_context with one completion channel for all of its CQs.
type devContext struct {
	verbs.DriverUnsupported
	lib     *library
	dev     *device
	ptr     uintptr
	channel uintptr // the completion channel
	up      verbs.DriverContextEvents
	attr    verbs.DeviceAttr

	noRegion *[16]uint64 // a struct ibv_mr of zeroes and what libraries have behind it; see bindInfo

	pollCQ, reqNotifyCQ, postSend, postRecv, postSRQRecv uintptr // the device's functions

	async, completions *watcher

	cqs, qps, srqs, wqs sync.Map // *cq, *qp, *srq and *wq by the address of C's structure
	numbers             sync.Map // *qp by number

	inline  sync.RWMutex   // read-held while data is copied from regions
	regions map[uint32]*mr // by lkey; guarded by inline
}

// open opens a struct ibv_device.
func (d *device) open(lib *library, ptr uintptr, up verbs.DriverContextEvents) (*devContext, error) {
	c := &devContext{lib: lib, dev: d, up: up, regions: map[uint32]*mr{}}
	var err error
	if c.ptr, err = lib.object(lib.openDevice, ptr); err != nil {
		return nil, d.openError(err)
	}
	if _, err := os.Stat(filepath.Join(sysfs, d.info.Name, "parent")); err == nil { // only rdma_rxe has this file
		c.noRegion = new([16]uint64)
	}
	op := func(off uintptr) uintptr { return *at[uintptr](c.ptr + offContextOps + off) }
	c.pollCQ, c.reqNotifyCQ = op(opPollCQ), op(opReqNotifyCQ)
	c.postSend, c.postRecv, c.postSRQRecv = op(opPostSend), op(opPostRecv), op(opPostSRQRecv)
	if c.attr, err = c.queryDevice(); err == nil {
		err = c.watchEvents()
	}
	if err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// Close closes the device.
func (c *devContext) Close() error {
	c.async.stop()
	c.completions.stop()
	return c.release()
}

// release frees what C has of the context.
func (c *devContext) release() error {
	if c.channel != 0 {
		if err := c.lib.status(c.lib.destroyCompChannel, c.channel); err != nil {
			return explain(err, "the completion channel")
		}
		c.channel = 0
	}
	return explain(c.lib.status(c.lib.closeDevice, c.ptr), "closing the device")
}

// extended returns a function of struct verbs_context; 0 if the device or the library does not have it.
func (c *devContext) extended(distance uintptr) uintptr {
	if *at[uintptr](c.ptr + offContextCompat) != ^uintptr(0) {
		return 0
	}
	const sizeOfContext = 328 + mutexMore
	if *at[uintptr](c.ptr - extSize) < distance+sizeOfContext {
		return 0
	}
	return *at[uintptr](c.ptr - distance)
}

// NumCompVectors returns the number of completion vectors.
func (c *devContext) NumCompVectors() int { return max(1, int(*at[int32](c.ptr + offContextVectors))) }

// QueryDevice returns the attributes of the device.
func (c *devContext) QueryDevice() (verbs.DeviceAttr, error) { return c.attr, nil }

func (c *devContext) queryDevice() (verbs.DeviceAttr, error) {
	a := new(cDeviceAttrEx)
	if fn := c.extended(extQueryDevice); fn != 0 {
		if c.lib.status(fn, c.ptr, 0, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a)) == nil {
			return a.verbs(), nil
		}
	}
	*a = cDeviceAttrEx{}
	if err := c.lib.status(c.lib.queryDevice, c.ptr, uintptr(unsafe.Pointer(&a.orig))); err != nil {
		return verbs.DeviceAttr{}, explain(err, "the attributes of the device")
	}
	return a.verbs(), nil
}

func (x *cDeviceAttrEx) verbs() verbs.DeviceAttr {
	a := &x.orig
	fw, _, _ := bytes.Cut(a.fwVer[:], []byte{0})
	return verbs.DeviceAttr{
		FWVer: string(fw), NodeGUID: a.nodeGUID, SysImageGUID: a.sysImageGUID, MaxMRSize: a.maxMRSize,
		PageSizeCap: a.pageSizeCap, VendorID: a.vendorID, VendorPartID: a.vendorPartID, HWVer: a.hwVer,
		MaxQP: int(a.maxQP), MaxQPWR: int(a.maxQPWR),
		DeviceCapFlags: verbs.DeviceCapFlags(a.capFlags) | verbs.DeviceCapFlags(x.capFlagsEx),
		MaxSGE:         int(a.maxSGE), MaxSGERd: int(a.maxSGERd), MaxCQ: int(a.maxCQ), MaxCQE: int(a.maxCQE),
		MaxMR: int(a.maxMR), MaxPD: int(a.maxPD),
		MaxQPRdAtom: int(a.maxQPRdAtom), MaxEERdAtom: int(a.maxEERdAtom), MaxResRdAtom: int(a.maxResRdAtom),
		MaxQPInitRdAtom: int(a.maxQPInitRdAtom), MaxEEInitRdAtom: int(a.maxEEInitRdAtom),
		AtomicCap: verbs.AtomicCap(a.atomicCap), MaxEE: int(a.maxEE), MaxRDD: int(a.maxRDD), MaxMW: int(a.maxMW),
		MaxRawIPv6QP: int(a.maxRawIPv6QP), MaxRawEthyQP: int(a.maxRawEthyQP), MaxMcastGrp: int(a.maxMcastGrp),
		MaxMcastQPAttach: int(a.maxMcastQPAttach), MaxTotalMcastQPAttach: int(a.maxTotalMcastQPAttach),
		MaxAH: int(a.maxAH), MaxFMR: int(a.maxFMR), MaxMapPerFMR: int(a.maxMapPerFMR), MaxSRQ: int(a.maxSRQ),
		MaxSRQWR: int(a.maxSRQWR), MaxSRQSGE: int(a.maxSRQSGE), MaxPKeys: a.maxPKeys,
		LocalCAAckDelay: a.localCAAckDelay, PhysPortCnt: a.physPortCnt,
		ODPCaps: verbs.ODPCaps{
			General: verbs.ODPGeneralCaps(x.odpGeneral), RC: verbs.ODPTransportCaps(x.odpRC),
			UC: verbs.ODPTransportCaps(x.odpUC), UD: verbs.ODPTransportCaps(x.odpUD),
		},
		XRCODPCaps:              verbs.ODPTransportCaps(x.xrcODP),
		CompletionTimestampMask: x.timestampMask, HCACoreClock: x.coreClock,
		TSOCaps: verbs.TSOCaps{MaxTSO: x.maxTSO, SupportedQPTs: x.tsoQPTs},
		PacketPacingCaps: verbs.PacketPacingCaps{
			QPRateLimitMin: x.rateMin, QPRateLimitMax: x.rateMax, SupportedQPTs: x.rateQPTs,
		},
		RSSCaps: verbs.RSSCaps{
			SupportedQPTs: x.rssQPTs, MaxRWQIndirectionTables: x.rssTables, MaxRWQIndirectionTableSize: x.rssTableSize,
			RxHashFieldsMask: x.rssFields, RxHashFunction: x.rssFunction,
		},
		MaxWQTypeRQ:   x.maxWQTypeRQ,
		RawPacketCaps: verbs.RawPacketCaps(x.rawPacketCaps),
		TMCaps: verbs.TMCaps{
			MaxRndvHdrSize: x.tmHdr, MaxNumTags: x.tmTags, Flags: verbs.TMCapFlags(x.tmFlags), MaxOps: x.tmOps,
			MaxSGE: min(x.tmSGE, maxTagSGEs),
		},
		MaxDMSize: x.maxDMSize,
		CQModCaps: verbs.CQModerationCaps{MaxCQCount: x.modCount, MaxCQPeriod: x.modPeriod},
		PCIAtomicCaps: verbs.PCIAtomicCaps{
			FetchAdd: verbs.PCIAtomicSizes(x.pciFetchAdd), Swap: verbs.PCIAtomicSizes(x.pciSwap),
			CompareSwap: verbs.PCIAtomicSizes(x.pciCompareSwap),
		},
	}
}

// QueryPort returns the attributes of a port.
func (c *devContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	a := new(cPortAttr)
	var err error
	if fn := c.extended(extQueryPort); fn != 0 {
		err = c.lib.status(fn, c.ptr, uintptr(port), uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a))
	} else {
		err = c.lib.status(c.lib.queryPort, c.ptr, uintptr(port), uintptr(unsafe.Pointer(a)))
	}
	if err != nil {
		return verbs.PortAttr{}, explain(err, "the attributes of the port")
	}
	return verbs.PortAttr{
		State: verbs.PortState(a.state), MaxMTU: verbs.MTU(a.maxMTU), ActiveMTU: verbs.MTU(a.activeMTU),
		GIDTblLen: int(a.gidTblLen), PortCapFlags: verbs.PortCapFlags(a.capFlags), MaxMsgSz: a.maxMsgSz,
		BadPKeyCntr: a.badPKeyCntr, QKeyViolCntr: a.qkeyViolCntr, PKeyTblLen: a.pkeyTblLen, LID: a.lid, SMLID: a.smLID,
		LMC: a.lmc, MaxVLNum: a.maxVLNum, SMSL: a.smSL, SubnetTimeout: a.subnetTimeout, InitTypeReply: a.initTypeReply,
		ActiveWidth: verbs.LinkWidth(a.activeWidth), ActiveSpeed: verbs.LinkSpeed(a.activeSpeed),
		PhysState: verbs.PhysState(a.physState), LinkLayer: verbs.LinkLayer(a.linkLayer),
		Flags: verbs.PortFlags(a.flags), PortCapFlags2: verbs.PortCapFlags2(a.capFlags2),
	}, nil
}

// PKeyTable returns the P_Key table of a port.
func (c *devContext) PKeyTable(port uint8) ([]uint16, error) {
	attr, err := c.QueryPort(port)
	if err != nil {
		return nil, err
	}
	keys := make([]uint16, attr.PKeyTblLen)
	be := new([2]byte)
	for i := range keys {
		if err := c.lib.status(c.lib.queryPKey, c.ptr, uintptr(port), uintptr(i), uintptr(unsafe.Pointer(be))); err != nil {
			return nil, explain(err, "the P_Key table")
		}
		keys[i] = uint16(be[0])<<8 | uint16(be[1])
	}
	return keys, nil
}

// RawClock reads the device's clock.
func (c *devContext) RawClock() (uint64, error) {
	const rawClock = 1
	v := &cValues{compMask: rawClock}
	if err := c.lib.status(c.extended(extQueryRTValues), c.ptr, uintptr(unsafe.Pointer(v))); err != nil {
		return 0, explain(err, "the device's clock")
	}
	return uint64(v.sec)*1e9 + uint64(v.nsec), nil
}

// pd is a DriverPD.
type pd struct {
	verbs.DriverUnsupported
	ctx *devContext
	ptr uintptr
}

// AllocPD makes a protection domain.
func (c *devContext) AllocPD() (verbs.DriverPD, error) {
	ptr, err := c.lib.object(c.lib.allocPD, c.ptr)
	if err != nil {
		return nil, explain(err, "a protection domain")
	}
	return &pd{ctx: c, ptr: ptr}, nil
}

// Dealloc frees the PD.
func (p *pd) Dealloc() error {
	return explain(p.ctx.lib.status(p.ctx.lib.deallocPD, p.ptr), "freeing the PD")
}

// ah is a DriverHandle.
type ah struct {
	lib *library
	ptr uintptr
}

// CreateAH makes an address handle.
func (p *pd) CreateAH(attr verbs.AHAttr) (verbs.DriverHandle, error) {
	if err := checkGIDIndex(&attr); err != nil {
		return nil, err
	}
	a := new(cAHAttr)
	a.set(&attr)
	ptr, err := p.ctx.lib.object(p.ctx.lib.createAH, p.ptr, uintptr(unsafe.Pointer(a)))
	if err != nil {
		return nil, explain(err, "an address handle for "+attr.GRH.DGID.String())
	}
	return &ah{p.ctx.lib, ptr}, nil
}

// Destroy frees the address handle.
func (a *ah) Destroy() error {
	return explain(a.lib.status(a.lib.destroyAH, a.ptr), "an address handle")
}

// checkGIDIndex refuses a GID index that struct ibv_global_route has no room for. Some adapters have longer tables.
func checkGIDIndex(v *verbs.AHAttr) error {
	if v.IsGlobal && (v.GRH.SGIDIndex < 0 || v.GRH.SGIDIndex > math.MaxUint8) {
		return fail(syscall.EINVAL, "SGID index %d: must be 0 to 255 on an adapter, as libibverbs has 8 bits for it",
			v.GRH.SGIDIndex)
	}
	return nil
}

func (a *cAHAttr) set(v *verbs.AHAttr) {
	*a = cAHAttr{
		grh: cGlobalRoute{
			dgid: v.GRH.DGID, flowLabel: v.GRH.FlowLabel, sgidIndex: uint8(v.GRH.SGIDIndex), hopLimit: v.GRH.HopLimit,
			trafficClass: v.GRH.TrafficClass,
		},
		dlid: v.DLID, sl: v.SL, srcPathBits: v.SrcPathBits, staticRate: uint8(v.StaticRate), portNum: v.PortNum,
	}
	if v.IsGlobal {
		a.isGlobal = 1
		if a.grh.hopLimit == 0 {
			a.grh.hopLimit = defaultHopLimit
		}
	}
}

// defaultHopLimit is what 0 stands for.
const defaultHopLimit = 64

func (a *cAHAttr) verbs() verbs.AHAttr {
	return verbs.AHAttr{
		GRH: verbs.GlobalRoute{
			DGID: a.grh.dgid, FlowLabel: a.grh.flowLabel, SGIDIndex: int(a.grh.sgidIndex), HopLimit: a.grh.hopLimit,
			TrafficClass: a.grh.trafficClass,
		},
		DLID: a.dlid, SL: a.sl, SrcPathBits: a.srcPathBits, StaticRate: verbs.StaticRate(a.staticRate),
		IsGlobal: a.isGlobal != 0, PortNum: a.portNum,
	}
}
