//go:build linux && cgo

package main

import "unsafe"

// The structures of verbs.h, as they lie in the memory of C programs on 64-bit systems.

type cSendWR struct {
	wrID   uint64
	next   *cSendWR
	sgList unsafe.Pointer
	numSGE int32
	opcode uint32
	flags  uint32
	imm    uint32 // network order; or the rkey to invalidate
	// addr is the remote address or, on UD, the struct ibv_ah. arg is rkey; compare_add; remote_qpn and remote_qkey.
	addr    uint64
	arg     uint64
	swap    uint64
	rkey    uint32 // atomics
	_       uint32
	srqn    uint32
	_       uint32
	special unsafe.Pointer // bind_mw.mw or tso.hdr
	short   uint32         // bind_mw.rkey; or tso.hdr_sz, tso.mss
	_       uint32
	bind    cBindInfo
}

type cBindInfo struct {
	mr           unsafe.Pointer
	addr, length uint64
	access       uint32
	_            uint32
}

type cRecvWR struct {
	wrID   uint64
	next   *cRecvWR
	sgList unsafe.Pointer
	numSGE int32
}

type cOpsWR struct {
	wrID          uint64
	next          *cOpsWR
	opcode, flags uint32
	unexpected    uint32
	handle        uint32
	recvWRID      uint64
	sgList        unsafe.Pointer
	numSGE        int32
	_             uint32
	tag, mask     uint64
}

type cWC struct {
	wrID         uint64
	status       uint32
	opcode       uint32
	vendorErr    uint32
	byteLen      uint32
	imm          uint32 // network order; or the invalidated rkey
	qpNum        uint32
	srcQP        uint32
	flags        uint32
	pkeyIndex    uint16
	slid         uint16
	sl           uint8
	dlidPathBits uint8
	_            [2]byte
}

type cAHAttr struct {
	dgid         [16]byte
	flowLabel    uint32
	sgidIndex    uint8
	hopLimit     uint8
	trafficClass uint8
	_            uint8
	dlid         uint16
	sl           uint8
	srcPathBits  uint8
	staticRate   uint8
	isGlobal     uint8
	portNum      uint8
	_            uint8
}

type cCap struct{ sendWR, recvWR, sendSGE, recvSGE, inline uint32 }

type cQPAttr struct {
	state, cur, mtu, mig             uint32
	qkey, rqPSN, sqPSN, dest, access uint32
	cap                              cCap
	ah, alt                          cAHAttr
	pkey, altPKey                    uint16
	enSQD, draining                  uint8
	maxRd, maxDestRd                 uint8
	minRNR, port                     uint8
	timeout, retry                   uint8
	rnrRetry, altPort                uint8
	altTimeout                       uint8
	_                                [3]byte
	rate                             uint32
}

type cSRQAttr struct{ maxWR, maxSGE, limit uint32 }

type cPortAttr struct {
	state, maxMTU, mtu        uint32
	gids                      int32
	caps, maxMsg              uint32
	badPKey, qkeyViol         uint32
	pkeys, lid, smLID         uint16
	lmc, maxVL, smSL, timeout uint8
	initType, width, speed    uint8
	phys, layer, flags        uint8
	caps2                     uint16
	speedEx                   uint32 // from rdma-core 46 on
}

type cGIDEntry struct {
	gid     [16]byte
	index   uint32
	port    uint32
	typ     uint32
	ifindex uint32
}

type cDeviceAttr struct {
	fw                         [64]byte
	nodeGUID, imageGUID        [8]byte
	maxMR, pageSizes           uint64
	vendor, part, hw           uint32
	maxQP, maxQPWR             int32
	caps                       uint32
	maxSGE, maxSGERd           int32
	maxCQ, maxCQE              int32
	maxMRs, maxPD              int32
	qpRdAtom, eeRdAtom         int32
	resRdAtom                  int32
	qpInitRdAtom, eeInitRdAtom int32
	atomic                     uint32
	maxEE, maxRDD, maxMW       int32
	rawIPv6, rawEthy           int32
	mcastGrp, mcastQP          int32
	mcastTotal, maxAH          int32
	maxFMR, mapPerFMR          int32
	maxSRQ, maxSRQWR, srqSGE   int32
	maxPKeys                   uint16
	ackDelay, ports            uint8
}

type cDeviceAttrEx struct {
	cDeviceAttr
	compMask                               uint32
	_                                      uint32
	odp                                    uint64
	odpRC, odpUC, odpUD                    uint32
	_                                      uint32
	timestampMask, coreClock, capsEx       uint64
	maxTSO, tsoQPTs                        uint32
	rssQPTs, rssTables, rssTableSize       uint32
	_                                      uint32
	rssFields                              uint64
	rssFunction                            uint8
	_                                      [7]byte
	maxWQ                                  uint32
	rateMin, rateMax, rateQPTs             uint32
	rawCaps                                uint32
	tmHdr, tmTags, tmFlags, tmOps, tmSGE   uint32
	modCount, modPeriod                    uint16
	_                                      uint32
	maxDM                                  uint64
	atomicFetch, atomicSwap, atomicCompare uint16
	_                                      uint16
	xrcODP                                 uint32
	portsEx                                uint32
}

// Each structure of an object is followed by the engine's handle and the generation of the engine.
const (
	handleOfAH       = 24
	handleOfMR       = 48
	handleOfMW       = 32
	handleOfCounters = 8
	handleOfAction   = 8
)

// handleAt returns the handle of an object of C, nil without an object and for one of a parent.
func handleAt(object unsafe.Pointer, offset uintptr) unsafe.Pointer {
	if object == nil || *(*uint32)(unsafe.Add(object, offset+8)) != generation {
		return nil
	}
	return *(*unsafe.Pointer)(unsafe.Add(object, offset))
}

// The sizes of the structures; verbena_verbs.h is checked against the same numbers.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(cSendWR{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(cSendWR{}.special)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(cSendWR{}.srqn)-72]
	_ = [1]struct{}{}[unsafe.Sizeof(cRecvWR{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(cOpsWR{})-72]
	_ = [1]struct{}{}[unsafe.Sizeof(cWC{})-48]
	_ = [1]struct{}{}[unsafe.Sizeof(cAHAttr{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(cQPAttr{})-144]
	_ = [1]struct{}{}[unsafe.Sizeof(cPortAttr{})-56]
	_ = [1]struct{}{}[unsafe.Sizeof(cGIDEntry{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(cDeviceAttr{})-232]
	_ = [1]struct{}{}[unsafe.Sizeof(cDeviceAttrEx{})-400]
	_ = [1]struct{}{}[unsafe.Offsetof(cDeviceAttrEx{}.rssFields)-312]
	_ = [1]struct{}{}[unsafe.Offsetof(cDeviceAttrEx{}.maxDM)-376]
)
