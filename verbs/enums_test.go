package verbs

import (
	"fmt"
	"testing"
)

// values checks that enum values have the manual's numbers, from 0 on in its order.
func values[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int32](t *testing.T, from int64, got ...T) {
	t.Helper()
	for i, v := range got {
		if int64(v) != from+int64(i) {
			t.Errorf("%T number %d is %d", v, i, v)
		}
	}
}

// bits checks the bit numbers of flags.
func checkBits[T ~uint8 | ~uint16 | ~uint32 | ~uint64](t *testing.T, flags map[int]T) {
	t.Helper()
	for bit, v := range flags {
		if uint64(v) != 1<<bit {
			t.Errorf("%v is %#x; want bit %d", v, uint64(v), bit)
		}
	}
}

// texts checks the texts of the values from 0 on.
func texts[T ~uint8 | ~uint16 | ~uint32 | ~int32](t *testing.T, from T, want ...string) {
	t.Helper()
	for i, w := range want {
		v := from + T(i)
		if got := fmt.Sprint(v); got != w {
			t.Errorf("%T(%d) is %q; want %q", v, uint64(v), got, w)
		}
	}
}

func TestV_DEV_08_NodeTypes(t *testing.T) {
	values(t, -1, NodeUnknown)
	values(t, 1, NodeCA, NodeSwitch, NodeRouter, NodeRNIC, NodeUSNIC, NodeUSNICUDP, NodeUnspecified)
}

func TestV_DEV_09_TransportTypes(t *testing.T) {
	values(t, -1, TransportUnknown, TransportIB, TransportIWARP, TransportUSNIC, TransportUSNICUDP, TransportUnspecified)
}

func TestV_QDEV_05_DeviceCapFlags(t *testing.T) {
	checkBits(t, map[int]DeviceCapFlags{
		0: DeviceResizeMaxWR, 1: DeviceBadPKeyCntr, 2: DeviceBadQKeyCntr, 3: DeviceRawMulti, 4: DeviceAutoPathMig,
		5: DeviceChangePhyPort,
		6: DeviceUDAVPortEnforce, 7: DeviceCurrQPStateMod, 8: DeviceShutdownPort, 9: DeviceInitType,
		10: DevicePortActiveEvent,
		11: DeviceSysImageGUID, 12: DeviceRCRNRNAKGen, 13: DeviceSRQResize, 14: DeviceNNotifyCQ, 17: DeviceMemWindow,
		18: DeviceUDIPCsum,
		20: DeviceXRC, 21: DeviceMemMgtExtensions, 23: DeviceMemWindowType2A, 24: DeviceMemWindowType2B, 25: DeviceRCIPCsum,
		26: DeviceRawIPCsum, 29: DeviceManagedFlowSteering, 34: DeviceRawScatterFCS, 36: DevicePCIWriteEndPadding,
	})
	if s := (DeviceSRQResize | DeviceXRC | 1<<63).String(); s != "SRQ_RESIZE|XRC|0x8000000000000000" {
		t.Error(s)
	}
}

func TestV_QDEV_06_AtomicCaps(t *testing.T) {
	values(t, 0, AtomicNone, AtomicHCA, AtomicGlob)
	texts(t, AtomicCap(0), "ATOMIC_NONE", "ATOMIC_HCA", "ATOMIC_GLOB", "AtomicCap(3)")
}

func TestV_PORT_03_PortStates(t *testing.T) {
	values(t, 0, PortNOP, PortDown, PortInit, PortArmed, PortActive, PortActiveDefer)
}

func TestV_PORT_04_MTUs(t *testing.T) {
	values(t, 1, MTU256, MTU512, MTU1024, MTU2048, MTU4096)
	for i, bytes := range []int{256, 512, 1024, 2048, 4096} {
		m := MTU(i + 1)
		if m.Bytes() != bytes || MTUOf(bytes) != m || m.String() != fmt.Sprint(bytes) {
			t.Errorf("MTU %d: %d bytes, %v, back %d", m, m.Bytes(), m, MTUOf(bytes))
		}
	}
	for _, m := range []MTU{0, 6, 1 << 31} {
		if m.Bytes() != 0 {
			t.Errorf("MTU %d has %d bytes", m, m.Bytes())
		}
	}
	for _, bytes := range []int{0, -256, 128, 1000, 8192} {
		if MTUOf(bytes) != 0 {
			t.Errorf("%d bytes are MTU %d", bytes, MTUOf(bytes))
		}
	}
}

func TestV_PORT_05_PortCapFlags(t *testing.T) {
	checkBits(t, map[int]PortCapFlags{
		1: PortSM, 2: PortNoticeSup, 3: PortTrapSup, 4: PortOptIPDSup, 5: PortAutoMigrSup, 6: PortSLMapSup, 7: PortMKeyNVRAM,
		8: PortPKeyNVRAM, 9: PortLEDInfoSup, 11: PortSysImageGUIDSup, 12: PortPKeySWExtPortTrap, 14: PortExtendedSpeedsSup,
		15: PortCapMask2Sup, 16: PortCMSup, 17: PortSNMPTunnelSup, 18: PortReinitSup, 19: PortDeviceMgmtSup,
		20: PortVendorClassSup,
		21: PortDRNoticeSup, 22: PortCapMaskNoticeSup, 23: PortBootMgmtSup, 24: PortLinkLatencySup, 25: PortClientRegSup,
		26: PortIPBasedGIDs,
	})
}

func TestV_PORT_06_PortCapFlags2(t *testing.T) {
	checkBits(t, map[int]PortCapFlags2{
		0: PortSetNodeDescSup, 1: PortInfoExtSup, 2: PortVirtSup, 3: PortSwitchPortStateTableSup, 4: PortLinkWidth2XSup,
		5: PortLinkSpeedHDRSup, 10: PortLinkSpeedNDRSup, 12: PortLinkSpeedXDRSup,
	})
}

func TestV_PORT_08_Widths(t *testing.T) {
	for v, lanes := range map[LinkWidth]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2, 0: 0, 3: 0} {
		if v.Lanes() != lanes {
			t.Errorf("width %d has %d lanes; want %d", uint8(v), v.Lanes(), lanes)
		}
	}
	if LinkWidth12X.String() != "12" || LinkWidth(3).String() != "invalid width" {
		t.Error(LinkWidth12X, LinkWidth(3))
	}
}

func TestV_PORT_09_D_10_Speeds(t *testing.T) {
	want := map[LinkSpeed]string{
		1: "2.5 Gbps", 2: "5.0 Gbps", 4: "10.0 Gbps", 8: "10.0 Gbps", 16: "14.0 Gbps", 32: "25.0 Gbps", 64: "50.0 Gbps",
		128: "100.0 Gbps", 256: "200.0 Gbps", 0: "invalid speed", 3: "invalid speed",
	}
	for v, w := range want {
		if v.String() != w {
			t.Errorf("speed %d is %q; want %q", uint16(v), v, w)
		}
	}
}

func TestV_PORT_10_PhysStates(t *testing.T) {
	values(t, 1, PhysSleep, PhysPolling, PhysDisabled, PhysPortConfigurationTraining, PhysLinkUp, PhysLinkErrorRecovery,
		PhysPhyTest)
	if PhysLinkUp.String() != "LINK_UP" {
		t.Error(PhysLinkUp)
	}
}

func TestV_PORT_11_LinkLayers(t *testing.T) {
	values(t, 0, LinkLayerUnspecified, LinkLayerInfiniBand, LinkLayerEthernet)
	texts(t, LinkLayer(0), "Unspecified", "InfiniBand", "Ethernet", "LinkLayer(3)")
}

func TestV_PORT_12_PortFlags(t *testing.T) {
	checkBits(t, map[int]PortFlags{0: QPFGRHRequired})
}

func TestX_GID_01_GIDTypes(t *testing.T) {
	values(t, 0, GIDTypeIB, GIDTypeRoCEv1, GIDTypeRoCEv2)
	texts(t, GIDType(0), "IB", "RoCE v1", "RoCE v2", "GIDType(3)")
}

func TestV_AE_EventTypes(t *testing.T) { // table of section 19
	values(t, 0, EventCQErr, EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig,
		EventPathMigErr,
		EventDeviceFatal, EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange, EventSRQErr,
		EventSRQLimitReached,
		EventQPLastWQEReached, EventClientReregister, EventGIDChange, EventWQFatal, EventDeviceSpeedChange)
}

func TestV_QP_09_QPTypes(t *testing.T) {
	for v, w := range map[QPType]string{2: "RC", 3: "UC", 4: "UD", 8: "RAW_PACKET", 9: "XRC_SEND", 10: "XRC_RECV",
		0xff: "DRIVER", 5: "QPType(5)"} {
		if v.String() != w {
			t.Errorf("QP type %d is %q; want %q", uint32(v), v, w)
		}
	}
	values(t, 2, QPTypeRC, QPTypeUC, QPTypeUD)
	values(t, 8, QPTypeRawPacket, QPTypeXRCSend, QPTypeXRCRecv)
	values(t, 0xff, QPTypeDriver)
}

func TestV_QPQ_08_QPStates(t *testing.T) {
	values(t, 0, QPSReset, QPSInit, QPSRTR, QPSRTS, QPSSQD, QPSSQE, QPSErr, QPSUnknown)
	texts(t, QPState(0), "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN", "QPState(8)")
}

func TestV_QPQ_09_AttrMask(t *testing.T) {
	flags := map[int]QPAttrMask{
		0: QPAttrState, 1: QPAttrCurState, 2: QPAttrEnSQDAsyncNotify, 3: QPAttrAccessFlags, 4: QPAttrPKeyIndex,
		5: QPAttrPort, 6: QPAttrQKey,
		7: QPAttrAV, 8: QPAttrPathMTU, 9: QPAttrTimeout, 10: QPAttrRetryCnt, 11: QPAttrRNRRetry, 12: QPAttrRQPSN,
		13: QPAttrMaxQPRdAtomic,
		14: QPAttrAltPath, 15: QPAttrMinRNRTimer, 16: QPAttrSQPSN, 17: QPAttrMaxDestRdAtomic, 18: QPAttrPathMigState,
		19: QPAttrCap,
		20: QPAttrDestQPN, 25: QPAttrRateLimit,
	}
	checkBits(t, flags)
	var all QPAttrMask
	for bit, m := range flags {
		all |= m
		if name := "QP_" + attrNamesOfSpec[bit]; m.String() != name {
			t.Errorf("bit %d is %q; want %q", bit, m, name)
		}
	}
	if all != qpAttrAll {
		t.Errorf("all attributes are %#x; want %#x", uint32(qpAttrAll), uint32(all))
	}
}

func TestV_QPQ_MigStates(t *testing.T) { // table of section 34
	values(t, 0, MigMigrated, MigRearm, MigArmed)
	texts(t, MigState(0), "MIGRATED", "REARM", "ARMED", "MigState(3)")
}

func TestV_SRQ_07_AttrMask(t *testing.T) {
	checkBits(t, map[int]SRQAttrMask{0: SRQAttrMaxWR, 1: SRQAttrLimit})
	if s := (SRQAttrMaxWR | SRQAttrLimit).String(); s != "SRQ_MAX_WR, SRQ_LIMIT" {
		t.Error(s)
	}
}

func TestV_MR_13_AccessFlags(t *testing.T) {
	checkBits(t, map[int]AccessFlags{
		0: AccessLocalWrite, 1: AccessRemoteWrite, 2: AccessRemoteRead, 3: AccessRemoteAtomic, 4: AccessMWBind,
		5: AccessZeroBased,
		6: AccessOnDemand, 7: AccessHugeTLB, 8: AccessFlushGlobal, 9: AccessFlushPersistent, 20: AccessRelaxedOrdering,
	})
	if s := (AccessLocalWrite | AccessRemoteRead).String(); s != "LOCAL_WRITE|REMOTE_READ" {
		t.Error(s)
	}
	if s := AccessFlags(0).String(); s != "0" {
		t.Error(s)
	}
}

func TestV_MR_16_ReregCodes(t *testing.T) {
	values(t, -5, ReregErrCmdAndDoForkNew, ReregErrCmd, ReregErrDoForkOld, ReregErrDontForkNew, ReregErrInput)
	if ReregErrCmd.String() != "ERR_CMD" {
		t.Error(ReregErrCmd)
	}
}

func TestV_MR_17_ReregFlags(t *testing.T) {
	checkBits(t, map[int]ReregFlags{0: ReregChangeTranslation, 1: ReregChangePD, 2: ReregChangeAccess})
}

func TestV_MW_MWTypes(t *testing.T) { // section 39
	values(t, 1, MWType1, MWType2)
	texts(t, MWType(0), "MWType(0)", "TYPE_1", "TYPE_2")
}

func TestV_SEND_06_Opcodes(t *testing.T) {
	values(t, 0, WRRDMAWrite, WRRDMAWriteWithImm, WRSend, WRSendWithImm, WRRDMARead, WRAtomicCmpAndSwp,
		WRAtomicFetchAndAdd, WRLocalInv,
		WRBindMW, WRSendWithInv, WRTSO, WRDriver1)
	values(t, 14, WRFlush, WRAtomicWrite)
	texts(t, WROpcode(0), "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
		"ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "SEND_WITH_INV", "TSO", "DRIVER1", "WROpcode(12)", "WROpcode(13)",
		"FLUSH", "ATOMIC_WRITE")
}

func TestV_SEND_08_Flags(t *testing.T) {
	checkBits(t, map[int]SendFlags{0: SendFence, 1: SendSignaled, 2: SendSolicited, 3: SendInline, 4: SendIPCsum})
	if s := (SendFence | SendInline).String(); s != "FENCE|INLINE" {
		t.Error(s)
	}
}

func TestV_WC_01_Opcodes(t *testing.T) {
	values(t, 0, WCSend, WCRDMAWrite, WCRDMARead, WCCompSwap, WCFetchAdd, WCBindMW, WCLocalInv, WCTSO, WCFlush,
		WCAtomicWrite)
	values(t, 128, WCRecv, WCRecvRDMAWithImm, WCTMAdd, WCTMDel, WCTMSync, WCTMRecv, WCTMNoTag, WCDriver1, WCDriver2,
		WCDriver3)
	texts(t, WCOpcode(0), "SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "BIND_MW", "LOCAL_INV", "TSO")
	texts(t, WCRecv, "RECV", "RECV_RDMA_WITH_IMM", "TM_ADD", "TM_DEL", "TM_SYNC", "TM_RECV", "TM_NO_TAG", "DRIVER1",
		"DRIVER2", "DRIVER3",
		"WCOpcode(138)")
}

func TestV_WC_02_ReceiveBit(t *testing.T) {
	for op := WCOpcode(0); op <= WCDriver3; op++ {
		if isRecv := op >= WCRecv; (op&WCRecv != 0) != isRecv {
			t.Errorf("%v: wrong receive bit", op)
		}
	}
}

func TestV_WC_03_Flags(t *testing.T) {
	checkBits(t, map[int]WCFlags{0: WCGRH, 1: WCWithImm, 2: WCIPCsumOK, 3: WCWithInv, 4: WCTMSyncReq, 5: WCTMMatch,
		6: WCTMDataValid})
	if s := (WCGRH | WCWithImm).String(); s != "GRH|WITH_IMM" {
		t.Error(s)
	}
}

func TestV_WC_05_Statuses(t *testing.T) {
	all := []WCStatus{
		WCSuccess, WCLocLenErr, WCLocQPOpErr, WCLocEECOpErr, WCLocProtErr, WCWRFlushErr, WCMWBindErr, WCBadRespErr,
		WCLocAccessErr,
		WCRemInvReqErr, WCRemAccessErr, WCRemOpErr, WCRetryExcErr, WCRNRRetryExcErr, WCLocRDDViolErr, WCRemInvRDReqErr,
		WCRemAbortErr,
		WCInvEECNErr, WCInvEECStateErr, WCFatalErr, WCRespTimeoutErr, WCGeneralErr, WCTMErr, WCTMRndvIncomplete,
	}
	values(t, 0, all...)
	if len(all) != 24 {
		t.Errorf("%d statuses; want 24", len(all))
	}
	if WCRetryExcErr.Name() != "RETRY_EXC_ERR" || WCStatus(24).Name() != "WCStatus(24)" {
		t.Error(WCRetryExcErr.Name(), WCStatus(24).Name())
	}
}

func TestV_STR_01_X_STR_01_Texts(t *testing.T) { // X-STR-01
	texts(t, NodeCA, "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC", "usNIC",
		"usNIC UDP")
	texts(t, PortNOP, "no state change (NOP)", "down", "init", "armed", "active", "active defer")
	texts(t, EventCQErr, "CQ error", "local work queue catastrophic error", "invalid request local work queue error",
		"local access violation work queue error", "communication established", "send queue drained", "path migrated",
		"path migration request error", "local catastrophic error", "port active", "port error", "LID change",
		"P_Key change", "SM change",
		"SRQ catastrophic error", "SRQ limit reached", "last WQE reached", "client reregistration", "GID table change",
		"WQ fatal")
	texts(t, WCSuccess, "success", "local length error", "local QP operation error", "local EE context operation error",
		"local protection error", "Work Request Flushed Error", "memory management operation error", "bad response error",
		"local access error", "remote invalid request error", "remote access error", "remote operation error",
		"transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation error",
		"remote invalid RD request",
		"aborted error", "invalid EE context number", "invalid EE context state", "fatal error", "response timeout error",
		"general error",
		"TM error", "TM software rendezvous")
}

func TestV_STR_02_D_14_InvalidValuesAreUnknown(t *testing.T) { // D-14
	for _, s := range []fmt.Stringer{
		NodeType(0), NodeType(-1), NodeType(8), PortState(6), PortState(1 << 31), EventType(21), EventType(1<<32 - 1),
		WCStatus(24),
		TransportType(-1), TransportType(5),
	} {
		if s.String() != "unknown" {
			t.Errorf("%T: %q", s, s)
		}
	}
}

func TestV_QPQ_10_RNRTimerCodes(t *testing.T) { // D-09: the IB column of section 34, in microseconds
	want := []int64{
		655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360,
		20480,
		30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	}
	for code, us := range want {
		if got := RNRDelay(uint8(code)).Microseconds(); got != us {
			t.Errorf("code %d: %d us; want %d", code, got, us)
		}
	}
}

func TestV_QPQ_TimeoutCodes(t *testing.T) { // table of section 34, in nanoseconds
	for code, ns := range map[uint8]int64{0: 0, 1: 8192, 2: 16384, 7: 524288, 8: 1048576, 14: 67108864, 16: 268435456,
		31: 8796093022208} {
		if got := AckTimeout(code).Nanoseconds(); got != ns {
			t.Errorf("code %d: %d ns; want %d", code, got, ns)
		}
	}
}
