package verbs

// CreateCQFlags modify a CQ (enum ibv_create_cq_attr_flags).
type CreateCQFlags uint32

// The flags (IBV_CREATE_CQ_ATTR_*).
const (
	CreateCQSingleThreaded CreateCQFlags = 1 << 0 // one goroutine at a time polls: batches do not lock
	CreateCQIgnoreOverrun  CreateCQFlags = 1 << 1 // in a full CQ a new completion replaces the oldest
)

// String joins the names of the flags without IBV_CREATE_CQ_ATTR_.
func (f CreateCQFlags) String() string {
	return flagsOf([]string{"SINGLE_THREADED", "IGNORE_OVERRUN"}, uint64(f), "|")
}

// CreateCQWCFlags is the set of valid fields of a CQ's completions (enum ibv_create_cq_wc_flags).
type CreateCQWCFlags uint64

// The fields (IBV_WC_EX_WITH_*).
const (
	WCExWithByteLen                      CreateCQWCFlags = 1 << 0
	WCExWithImm                          CreateCQWCFlags = 1 << 1 // and the key of SEND_WITH_INV
	WCExWithQPNum                        CreateCQWCFlags = 1 << 2
	WCExWithSrcQP                        CreateCQWCFlags = 1 << 3
	WCExWithSLID                         CreateCQWCFlags = 1 << 4
	WCExWithSL                           CreateCQWCFlags = 1 << 5
	WCExWithDLIDPathBits                 CreateCQWCFlags = 1 << 6
	WCExWithCompletionTimestamp          CreateCQWCFlags = 1 << 7
	WCExWithCVLAN                        CreateCQWCFlags = 1 << 8
	WCExWithFlowTag                      CreateCQWCFlags = 1 << 9
	WCExWithTMInfo                       CreateCQWCFlags = 1 << 10
	WCExWithCompletionTimestampWallclock CreateCQWCFlags = 1 << 11

	// WCStandardFlags are the fields of struct ibv_wc (IBV_WC_STANDARD_FLAGS).
	WCStandardFlags = WCExWithByteLen | WCExWithImm | WCExWithQPNum | WCExWithSrcQP | WCExWithSLID | WCExWithSL |
		WCExWithDLIDPathBits
	// CreateCQSupWCFlags are all fields (IBV_CREATE_CQ_SUP_WC_FLAGS).
	CreateCQSupWCFlags = WCStandardFlags | WCExWithCompletionTimestamp | WCExWithCVLAN | WCExWithFlowTag | WCExWithTMInfo |
		WCExWithCompletionTimestampWallclock
)

var wcExNames = []string{
	"BYTE_LEN", "IMM", "QP_NUM", "SRC_QP", "SLID", "SL", "DLID_PATH_BITS", "COMPLETION_TIMESTAMP", "CVLAN", "FLOW_TAG",
	"TM_INFO", "COMPLETION_TIMESTAMP_WALLCLOCK",
}

// String joins the names of the flags without IBV_WC_EX_WITH_.
func (f CreateCQWCFlags) String() string { return flagsOf(wcExNames, uint64(f), "|") }

// CQAttrMask names the attributes that CQ.Modify changes (enum ibv_cq_attr_mask).
type CQAttrMask uint32

// The attributes (IBV_CQ_ATTR_*).
const (
	CQAttrModerate CQAttrMask = 1 << 0
	CQAttrReserved CQAttrMask = 1 << 1 // the first bit without a meaning; not an attribute
)

// String joins the names of the bits without IBV_CQ_ATTR_.
func (m CQAttrMask) String() string { return flagsOf([]string{"MODERATE", "RESERVED"}, uint64(m), "|") }

// QPCreateFlags modify a QP (enum ibv_qp_create_flags).
type QPCreateFlags uint32

// The flags (IBV_QP_CREATE_*).
const (
	QPCreateBlockSelfMcastLB   QPCreateFlags = 1 << 1  // the QP does not receive its own multicast
	QPCreateScatterFCS         QPCreateFlags = 1 << 8  // receives include the frame check sequence
	QPCreateCVLANStripping     QPCreateFlags = 1 << 9  // receives do not include the VLAN tag
	QPCreateSourceQPN          QPCreateFlags = 1 << 10 // packets carry SourceQPN
	QPCreatePCIWriteEndPadding QPCreateFlags = 1 << 11 // the device writes whole cache lines
)

var qpCreateNames = []string{
	1: "BLOCK_SELF_MCAST_LB", 8: "SCATTER_FCS", 9: "CVLAN_STRIPPING", 10: "SOURCE_QPN", 11: "PCI_WRITE_END_PADDING",
}

const qpCreateAll = QPCreateBlockSelfMcastLB | QPCreateScatterFCS | QPCreateCVLANStripping | QPCreateSourceQPN |
	QPCreatePCIWriteEndPadding

// String joins the names of the flags without IBV_QP_CREATE_.
func (f QPCreateFlags) String() string { return flagsOf(qpCreateNames, uint64(f), "|") }

// SendOpsFlags is the set of operations of a QPEx (enum ibv_qp_create_send_ops_flags).
type SendOpsFlags uint64

// The operations (IBV_QP_EX_WITH_*).
const (
	QPExWithRDMAWrite         SendOpsFlags = 1 << 0
	QPExWithRDMAWriteWithImm  SendOpsFlags = 1 << 1
	QPExWithSend              SendOpsFlags = 1 << 2
	QPExWithSendWithImm       SendOpsFlags = 1 << 3
	QPExWithRDMARead          SendOpsFlags = 1 << 4
	QPExWithAtomicCmpAndSwp   SendOpsFlags = 1 << 5
	QPExWithAtomicFetchAndAdd SendOpsFlags = 1 << 6
	QPExWithLocalInv          SendOpsFlags = 1 << 7
	QPExWithBindMW            SendOpsFlags = 1 << 8
	QPExWithSendWithInv       SendOpsFlags = 1 << 9
	QPExWithTSO               SendOpsFlags = 1 << 10
	QPExWithFlush             SendOpsFlags = 1 << 11
	QPExWithAtomicWrite       SendOpsFlags = 1 << 12

	sendOpsAll = QPExWithAtomicWrite<<1 - 1
)

// opcodes returns the set with the bit 1<<WROpcode for each operation. From QPExWithFlush on these bits are not those
// of SendOpsFlags.
func (f SendOpsFlags) opcodes() uint32 {
	set := uint32(f) & (1<<(WRTSO+1) - 1)
	if f&QPExWithFlush != 0 {
		set |= 1 << WRFlush
	}
	if f&QPExWithAtomicWrite != 0 {
		set |= 1 << WRAtomicWrite
	}
	return set
}

var sendOpsNames = []string{
	"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
	"ATOMIC_FETCH_AND_ADD",
	"LOCAL_INV", "BIND_MW", "SEND_WITH_INV", "TSO", "FLUSH", "ATOMIC_WRITE",
}

// String joins the names of the operations without IBV_QP_EX_WITH_.
func (f SendOpsFlags) String() string { return flagsOf(sendOpsNames, uint64(f), "|") }
