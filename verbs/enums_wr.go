package verbs

// WROpcode is the operation of a send work request (enum ibv_wr_opcode).
type WROpcode uint32

// The send work request opcodes (IBV_WR_*). QP.PostSend lists the opcodes of each QP type.
const (
	WRRDMAWrite         WROpcode = 0
	WRRDMAWriteWithImm  WROpcode = 1
	WRSend              WROpcode = 2
	WRSendWithImm       WROpcode = 3
	WRRDMARead          WROpcode = 4
	WRAtomicCmpAndSwp   WROpcode = 5
	WRAtomicFetchAndAdd WROpcode = 6
	WRLocalInv          WROpcode = 7
	WRBindMW            WROpcode = 8
	WRSendWithInv       WROpcode = 9
	WRTSO               WROpcode = 10
	WRDriver1           WROpcode = 11
	WRFlush             WROpcode = 14
	WRAtomicWrite       WROpcode = 15
)

var wrOpcodeNames = []string{
	"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
	"ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "SEND_WITH_INV", "TSO", "DRIVER1", "", "", "FLUSH", "ATOMIC_WRITE",
}

// String returns the name without IBV_WR_ (ibv_wr_opcode_str).
func (op WROpcode) String() string { return nameOf("WROpcode", wrOpcodeNames, int64(op)) }

// PlacementType is the guarantee that a FLUSH requests for written data (enum ibv_placement_type).
type PlacementType uint8

// The placement types (IBV_FLUSH_*).
const (
	FlushGlobal     PlacementType = 1 << 0 // the peer's processors see it
	FlushPersistent PlacementType = 1 << 1 // it survives a power failure

	placementAll = FlushGlobal | FlushPersistent
)

// String joins the names of the types without IBV_FLUSH_.
func (t PlacementType) String() string {
	return flagsOf([]string{"GLOBAL", "PERSISTENT"}, uint64(t), "|")
}

// SelectivityLevel is the range of data of a FLUSH (enum ibv_selectivity_level).
type SelectivityLevel uint8

// The selectivity levels (IBV_FLUSH_*).
const (
	FlushRange SelectivityLevel = 0 // the bytes that the request names
	FlushMR    SelectivityLevel = 1 // the whole region or window of the key; address and length are ignored
)

// String returns the name without IBV_FLUSH_.
func (l SelectivityLevel) String() string {
	return nameOf("SelectivityLevel", []string{"RANGE", "MR"}, int64(l))
}

// SendFlags modify a send work request (enum ibv_send_flags).
type SendFlags uint32

// The send flags (IBV_SEND_*).
const (
	SendFence     SendFlags = 1 << 0 // RC, XRC_SEND: starts after the earlier READs and atomics are done
	SendSignaled  SendFlags = 1 << 1 // success makes a completion; without effect on a QP made with SigAll
	SendSolicited SendFlags = 1 << 2 // SEND* and RDMA_WRITE_WITH_IMM: the peer's completion is a solicited one
	SendInline    SendFlags = 1 << 3 // SEND* and RDMA_WRITE*: the data is copied while posting
	SendIPCsum    SendFlags = 1 << 4 // checksum offload, if the device has it
)

var sendFlagNames = []string{"FENCE", "SIGNALED", "SOLICITED", "INLINE", "IP_CSUM"}

// String joins the names of the flags without IBV_SEND_.
func (f SendFlags) String() string { return flagsOf(sendFlagNames, uint64(f), "|") }

// WCStatus is the result of a work request (enum ibv_wc_status). It is an error, so that errors.Is(wc.Err(),
// WCRetryExcErr) tests for a cause.
type WCStatus uint32

// The completion statuses (IBV_WC_*). docs/errors.md has the usual causes of each. The software device does not raise
// those that are marked "never seen".
const (
	WCSuccess          WCStatus = 0
	WCLocLenErr        WCStatus = 1  // receive buffer too small for the message, or message longer than allowed
	WCLocQPOpErr       WCStatus = 2  // the device found the request inconsistent
	WCLocEECOpErr      WCStatus = 3  // reliable datagrams; never seen
	WCLocProtErr       WCStatus = 4  // an SGE names memory that its lkey does not permit
	WCWRFlushErr       WCStatus = 5  // the QP was in ERR or SQE before the request was done
	WCMWBindErr        WCStatus = 6  // memory window not bound
	WCBadRespErr       WCStatus = 7  // the responder's answer was invalid
	WCLocAccessErr     WCStatus = 8  // the message that took this receive has no right to the memory or key it names
	WCRemInvReqErr     WCStatus = 9  // the responder found the request invalid
	WCRemAccessErr     WCStatus = 10 // the responder's memory does not permit it
	WCRemOpErr         WCStatus = 11 // the responder failed to execute the request
	WCRetryExcErr      WCStatus = 12 // no acknowledgement after all resends
	WCRNRRetryExcErr   WCStatus = 13 // the responder had no receive posted after all resends
	WCLocRDDViolErr    WCStatus = 14 // reliable datagrams; never seen
	WCRemInvRDReqErr   WCStatus = 15 // reliable datagrams; never seen
	WCRemAbortErr      WCStatus = 16 // the responder gave up the operation; never seen
	WCInvEECNErr       WCStatus = 17 // reliable datagrams; never seen
	WCInvEECStateErr   WCStatus = 18 // reliable datagrams; never seen
	WCFatalErr         WCStatus = 19 // a CQ of the QP has overflowed
	WCRespTimeoutErr   WCStatus = 20 // reliable datagrams; never seen
	WCGeneralErr       WCStatus = 21 // another transport error; never seen
	WCTMErr            WCStatus = 22 // tag matching: a TagDel names no buffer of the list; see SRQ.PostOps
	WCTMRndvIncomplete WCStatus = 23 // tag matching: the program has to READ the message; see SRQ.PostOps
)

var wcStatusTexts = []string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error",
	"Work Request Flushed Error", "memory management operation error", "bad response error", "local access error",
	"remote invalid request error", "remote access error", "remote operation error", "transport retry counter exceeded",
	"RNR retry counter exceeded", "local RDD violation error", "remote invalid RD request", "aborted error",
	"invalid EE context number", "invalid EE context state", "fatal error", "response timeout error", "general error",
	"TM error", "TM software rendezvous",
}

// String returns the text of ibv_wc_status_str; "unknown" for an unknown value.
func (s WCStatus) String() string { return textOf(wcStatusTexts, int64(s)) }

// Error returns String.
func (s WCStatus) Error() string { return s.String() }

var wcStatusNames = []string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
	"BAD_RESP_ERR",
	"LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR",
	"LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR",
	"RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR", "TM_RNDV_INCOMPLETE",
}

// Name returns the C name without IBV_WC_: "RETRY_EXC_ERR".
func (s WCStatus) Name() string { return nameOf("WCStatus", wcStatusNames, int64(s)) }

// WCOpcode is the operation of a completed work request (enum ibv_wc_opcode).
type WCOpcode uint32

// The completion opcodes (IBV_WC_*). Receive completions have the bit WCRecv.
const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLocalInv        WCOpcode = 6
	WCTSO             WCOpcode = 7
	WCFlush           WCOpcode = 8
	WCAtomicWrite     WCOpcode = 9
	WCRecv            WCOpcode = 1 << 7
	WCRecvRDMAWithImm WCOpcode = 129
	WCTMAdd           WCOpcode = 130
	WCTMDel           WCOpcode = 131
	WCTMSync          WCOpcode = 132
	WCTMRecv          WCOpcode = 133
	WCTMNoTag         WCOpcode = 134
	WCDriver1         WCOpcode = 135
	WCDriver2         WCOpcode = 136
	WCDriver3         WCOpcode = 137
)

var (
	wcOpcodeNames = []string{
		"SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "BIND_MW", "LOCAL_INV", "TSO", "FLUSH", "ATOMIC_WRITE",
	}
	wcRecvOpcodeNames = []string{
		"RECV", "RECV_RDMA_WITH_IMM", "TM_ADD", "TM_DEL", "TM_SYNC", "TM_RECV", "TM_NO_TAG", "DRIVER1", "DRIVER2", "DRIVER3",
	}
)

// String returns the name without IBV_WC_.
func (op WCOpcode) String() string {
	if i := int64(op) - int64(WCRecv); i >= 0 && i < int64(len(wcRecvOpcodeNames)) {
		return wcRecvOpcodeNames[i]
	}
	return nameOf("WCOpcode", wcOpcodeNames, int64(op))
}

// WCFlags name further valid data of a completion (enum ibv_wc_flags).
type WCFlags uint32

// The completion flags (IBV_WC_*).
const (
	WCGRH         WCFlags = 1 << 0 // UD: the first 40 bytes of the receive buffer hold a GRH
	WCWithImm     WCFlags = 1 << 1 // ImmData is valid
	WCIPCsumOK    WCFlags = 1 << 2 // the IP and TCP/UDP checksums were right
	WCWithInv     WCFlags = 1 << 3 // InvalidatedRKey is valid
	WCTMSyncReq   WCFlags = 1 << 4
	WCTMMatch     WCFlags = 1 << 5
	WCTMDataValid WCFlags = 1 << 6
)

var wcFlagNames = []string{"GRH", "WITH_IMM", "IP_CSUM_OK", "WITH_INV", "TM_SYNC_REQ", "TM_MATCH", "TM_DATA_VALID"}

// String joins the names of the flags without IBV_WC_.
func (f WCFlags) String() string { return flagsOf(wcFlagNames, uint64(f), "|") }
