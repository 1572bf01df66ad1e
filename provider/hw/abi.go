//go:build linux && (amd64 || arm64)

package hw

import "structs"

// The structures of libibverbs on processors with 64 bits, as programs compiled against its headers see them. A test
// compares them with the headers. Members that a comment marks BE are big endian. C's pointers are of type uintptr:
// they point to memory that Go does not manage, or to memory that the owner of the structure keeps reachable.

type cSGE struct {
	_            structs.HostLayout
	addr         uint64
	length, lkey uint32
}

// cSendWR is struct ibv_send_wr. remote is the union wr: of RDMA {address, key}, of an atomic {address, compare or
// addend, swap, key}, of UD {address handle, QP number and Q_Key}. The members from mw on are the union of bind_mw and
// tso: of TSO mw is the header, and mwRKey its length with the MSS in the upper half.
type cSendWR struct {
	_             structs.HostLayout
	wrID          uint64
	next, sgList  uintptr
	numSGE        int32
	opcode, flags uint32
	imm           uint32 // BE; the key of an invalidation is in host order
	remote        [4]uint64
	remoteSRQN, _ uint32
	mw            uintptr
	mwRKey, _     uint32
	bind          cBindInfo
}

type cBindInfo struct {
	_            structs.HostLayout
	mr           uintptr
	addr, length uint64
	access, _    uint32
}

// cMWBind is struct ibv_mw_bind.
type cMWBind struct {
	_        structs.HostLayout
	wrID     uint64
	flags, _ uint32
	info     cBindInfo
}

type cRecvWR struct {
	_            structs.HostLayout
	wrID         uint64
	next, sgList uintptr
	numSGE, _    int32
}

type cWC struct {
	_                   structs.HostLayout
	wrID                uint64
	status, opcode      uint32
	vendorErr, byteLen  uint32
	imm                 uint32 // BE; an invalidated key is in host order
	qpNum, srcQP, flags uint32
	pkeyIndex, slid     uint16
	sl, dlidPathBits    uint8
}

type cGlobalRoute struct {
	_                                 structs.HostLayout
	dgid                              [16]byte
	flowLabel                         uint32
	sgidIndex, hopLimit, trafficClass uint8
}

type cAHAttr struct {
	_                                              structs.HostLayout
	grh                                            cGlobalRoute
	dlid                                           uint16
	sl, srcPathBits, staticRate, isGlobal, portNum uint8
}

type cQPCap struct {
	_                                                       structs.HostLayout
	maxSendWR, maxRecvWR, maxSendSGE, maxRecvSGE, maxInline uint32
}

// cQPInitAttr is struct ibv_qp_init_attr_ex. The members before compMask are struct ibv_qp_init_attr.
type cQPInitAttr struct {
	_                   structs.HostLayout
	context             uintptr
	sendCQ, recvCQ, srq uintptr
	cap                 cQPCap
	typ                 uint32
	sigAll              int32
	compMask            uint32
	pd, xrcd            uintptr
	createFlags         uint32
	maxTSOHeader        uint16
	rwqIndTbl           uintptr
	rxHash              cRxHash
	sourceQPN           uint32
	sendOps             uint64
}

// Bits of cQPInitAttr.compMask.
const (
	qpInitPD          = 1 << 0
	qpInitXRCD        = 1 << 1
	qpInitCreateFlags = 1 << 2
	qpInitMaxTSO      = 1 << 3
	qpInitIndTable    = 1 << 4
	qpInitRxHash      = 1 << 5
	qpInitSendOps     = 1 << 6
)

type cQPAttr struct {
	_                                                          structs.HostLayout
	state, curState, pathMTU, pathMigState                     uint32
	qkey, rqPSN, sqPSN, destQPNum                              uint32
	access                                                     uint32
	cap                                                        cQPCap
	ah, altAH                                                  cAHAttr
	pkeyIndex, altPKeyIndex                                    uint16
	enSQDAsyncNotify, sqDraining, maxRdAtomic, maxDestRdAtomic uint8
	minRNRTimer, portNum, timeout, retryCnt, rnrRetry          uint8
	altPortNum, altTimeout                                     uint8
	// The addresses make C align the structure to 8 bytes.
	rateLimit, _ uint32
}

type cSRQAttr struct {
	_                       structs.HostLayout
	maxWR, maxSGE, srqLimit uint32
}

// cSRQInitAttr is struct ibv_srq_init_attr_ex. The members before compMask are struct ibv_srq_init_attr.
type cSRQInitAttr struct {
	_            structs.HostLayout
	context      uintptr
	attr         cSRQAttr
	compMask     uint32
	typ          uint32
	pd, xrcd, cq uintptr
	tmCap        [2]uint32
}

// Bits of cSRQInitAttr.compMask.
const (
	srqInitType = 1 << 0
	srqInitPD   = 1 << 1
	srqInitXRCD = 1 << 2
	srqInitCQ   = 1 << 3
	srqInitTM   = 1 << 4
)

type cDeviceAttr struct {
	_                                                                        structs.HostLayout
	fwVer                                                                    [64]byte
	nodeGUID, sysImageGUID                                                   [8]byte // BE
	maxMRSize, pageSizeCap                                                   uint64
	vendorID, vendorPartID, hwVer                                            uint32
	maxQP, maxQPWR                                                           int32
	capFlags                                                                 uint32
	maxSGE, maxSGERd, maxCQ, maxCQE, maxMR, maxPD                            int32
	maxQPRdAtom, maxEERdAtom, maxResRdAtom, maxQPInitRdAtom, maxEEInitRdAtom int32
	atomicCap                                                                uint32
	maxEE, maxRDD, maxMW, maxRawIPv6QP, maxRawEthyQP                         int32
	maxMcastGrp, maxMcastQPAttach, maxTotalMcastQPAttach, maxAH              int32
	maxFMR, maxMapPerFMR, maxSRQ, maxSRQWR, maxSRQSGE                        int32
	maxPKeys                                                                 uint16
	localCAAckDelay, physPortCnt                                             uint8
}

// cDeviceAttrEx is struct ibv_device_attr_ex.
type cDeviceAttrEx struct {
	_                                    structs.HostLayout
	orig                                 cDeviceAttr
	compMask                             uint32
	odpGeneral                           uint64
	odpRC, odpUC, odpUD                  uint32
	timestampMask, coreClock, capFlagsEx uint64
	maxTSO, tsoQPTs                      uint32
	rssQPTs, rssTables, rssTableSize     uint32
	rssFields                            uint64
	rssFunction                          uint8
	_                                    [7]byte
	maxWQTypeRQ                          uint32
	rateMin, rateMax, rateQPTs           uint32
	rawPacketCaps                        uint32
	tmHdr, tmTags, tmFlags, tmOps, tmSGE uint32
	modCount, modPeriod                  uint16
	maxDMSize                            uint64
	pciFetchAdd, pciSwap, pciCompareSwap uint16
	xrcODP, physPortCntEx                uint32
}

// cPortAttr is struct ibv_port_attr of release 44.
type cPortAttr struct {
	_                                                     structs.HostLayout
	state, maxMTU, activeMTU                              uint32
	gidTblLen                                             int32
	capFlags, maxMsgSz, badPKeyCntr, qkeyViolCntr         uint32
	pkeyTblLen, lid, smLID                                uint16
	lmc, maxVLNum, smSL, subnetTimeout, initTypeReply     uint8
	activeWidth, activeSpeed, physState, linkLayer, flags uint8
	capFlags2                                             uint16
}

type cGIDEntry struct {
	_                           structs.HostLayout
	gid                         [16]byte
	index, port, typ, netdevIdx uint32
}

type cAsyncEvent struct {
	_       structs.HostLayout
	element uintptr // or the number of a port, in the lower 32 bits
	typ     uint32
}

type cECE struct {
	_                           structs.HostLayout
	vendorID, options, compMask uint32
}

type cCQInitAttr struct {
	_               structs.HostLayout
	cqe             uint32
	context         uintptr
	channel         uintptr
	compVector      uint32
	wcFlags         uint64
	compMask, flags uint32
	parentDomain    uintptr
}

type cModifyCQ struct {
	_             structs.HostLayout
	mask          uint32
	count, period uint16
}

type cXRCDInit struct {
	_          structs.HostLayout
	compMask   uint32
	fd, oflags int32
}

type cQPOpen struct {
	_               structs.HostLayout
	compMask, qpNum uint32
	xrcd, context   uintptr
	typ             uint32
}

type cRateLimit struct {
	_          structs.HostLayout
	rate, size uint32
	pktSize    uint16
	compMask   uint32
}

type cAllocDM struct {
	_                  structs.HostLayout
	length             uint64
	logAlign, compMask uint32
}

type cCounterAttach struct {
	_                     structs.HostLayout
	desc, index, compMask uint32
}

type cWQInitAttr struct {
	_                     structs.HostLayout
	context               uintptr
	typ                   uint32
	maxWR, maxSGE         uint32
	pd, cq                uintptr
	compMask, createFlags uint32
}

type cWQAttr struct {
	_                                      structs.HostLayout
	mask, state, current, flags, flagsMask uint32
}

// cIndTableInit is struct ibv_rwq_ind_table_init_attr.
type cIndTableInit struct {
	_        structs.HostLayout
	logSize  uint32
	table    uintptr
	compMask uint32
}

// cRxHash is struct ibv_rx_hash_conf.
type cRxHash struct {
	_              structs.HostLayout
	function, size uint8
	key            uintptr
	fields         uint64
}

type cOpsWR struct {
	_                  structs.HostLayout
	wrID               uint64
	next               uintptr
	opcode             uint32
	flags              int32
	unexpected, handle uint32
	recvWRID           uint64
	sgList             uintptr
	numSGE             int32
	tag, mask          uint64
}

type cTMInfo struct {
	_    structs.HostLayout
	tag  uint64
	priv uint32
}

type cValues struct {
	_        structs.HostLayout
	compMask uint32
	sec      int64
	nsec     int64
}

// Offsets in structures of which Go needs a few members. A test compares them with the headers.
const (
	offDeviceNodeType  = 16
	offDeviceTransport = 20
	offDeviceName      = 24
	offDeviceFile      = 88

	offContextOps     = 8
	offContextAsyncFD = 268
	offContextVectors = 272
	offContextCompat  = 320 + mutexMore

	offChannelFD = 8

	offMRLKey = 36
	offMRRKey = 40

	offMWRKey = 16

	offCQSize     = 28
	offCQExStatus = 132 + mutexMore
	offCQExWRID   = 136 + mutexMore

	offQPNum = 52

	offDMCopyTo   = 8
	offDMCopyFrom = 16

	offWQNum      = 32
	offWQPostRecv = 48
	offWQMutex    = 56
	offWQCond     = 96 + mutexMore

	offIndTableNum = 12

	offQPExWRID  = 168 + mutexMore
	offQPExFlags = 176 + mutexMore
)

// Offsets of functions in struct ibv_context_ops.
const (
	opAllocMW     = 56
	opBindMW      = 64
	opDeallocMW   = 72
	opPollCQ      = 88
	opReqNotifyCQ = 96
	opPostSRQRecv = 160
	opPostSend    = 200
	opPostRecv    = 208
)

// Distances of functions in front of struct ibv_context, in struct verbs_context, and of its size.
const (
	extSize            = 8
	extCloseXRCD       = 24
	extOpenXRCD        = 32
	extCreateSRQ       = 40
	extGetSRQNum       = 48
	extCreateQP        = 56
	extOpenQP          = 64
	extCreateFlow      = 80
	extDestroyFlow     = 96
	extQueryDevice     = 104
	extCreateCQ        = 120
	extQueryRTValues   = 128
	extCreateWQ        = 136
	extModifyWQ        = 144
	extDestroyWQ       = 152
	extCreateIndTable  = 160
	extDestroyIndTable = 168
	extPostSRQOps      = 176
	extModifyCQ        = 184
	extRateLimit       = 216
	extFreeDM          = 248
	extAllocDM         = 256
	extRegDMMR         = 264
	extDestroyCounters = 272
	extCreateCounters  = 280
	extAttachCounters  = 288
	extReadCounters    = 296
	extAllocNullMR     = 304
	extAdviseMR        = 312
	extQueryPort       = 320
)

// Offsets of functions in struct ibv_cq_ex.
const (
	cqStartPoll     = 144 + mutexMore
	cqNextPoll      = 152 + mutexMore
	cqEndPoll       = 160 + mutexMore
	cqReadOpcode    = 168 + mutexMore
	cqReadVendorErr = 176 + mutexMore
	cqReadByteLen   = 184 + mutexMore
	cqReadImm       = 192 + mutexMore
	cqReadQPNum     = 200 + mutexMore
	cqReadSrcQP     = 208 + mutexMore
	cqReadFlags     = 216 + mutexMore
	cqReadSLID      = 224 + mutexMore
	cqReadSL        = 232 + mutexMore
	cqReadPathBits  = 240 + mutexMore
	cqReadTimestamp = 248 + mutexMore
	cqReadCVLAN     = 256 + mutexMore
	cqReadFlowTag   = 264 + mutexMore
	cqReadTMInfo    = 272 + mutexMore
	cqReadWallclock = 280 + mutexMore
)

// Offsets of functions in struct ibv_qp_ex.
const (
	wrCmpSwap     = 184 + mutexMore
	wrFetchAdd    = 192 + mutexMore
	wrBindMW      = 200 + mutexMore
	wrLocalInv    = 208 + mutexMore
	wrRead        = 216 + mutexMore
	wrWrite       = 224 + mutexMore
	wrWriteImm    = 232 + mutexMore
	wrSend        = 240 + mutexMore
	wrSendImm     = 248 + mutexMore
	wrSendInv     = 256 + mutexMore
	wrSendTSO     = 264 + mutexMore
	wrSetUDAddr   = 272 + mutexMore
	wrSetSRQN     = 280 + mutexMore
	wrSetInline   = 288 + mutexMore
	wrSetSGEList  = 312 + mutexMore
	wrStart       = 320 + mutexMore
	wrComplete    = 328 + mutexMore
	wrAbort       = 336 + mutexMore
	wrAtomicWrite = 344 + mutexMore
	wrFlush       = 352 + mutexMore
)
