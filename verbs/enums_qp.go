package verbs

import "time"

// QPType is the transport service of a QP (enum ibv_qp_type).
type QPType uint32

// The QP types (IBV_QPT_*).
const (
	QPTypeRC        QPType = 2 // reliable connection
	QPTypeUC        QPType = 3 // unreliable connection
	QPTypeUD        QPType = 4 // unreliable datagram
	QPTypeRawPacket QPType = 8
	QPTypeXRCSend   QPType = 9
	QPTypeXRCRecv   QPType = 10
	QPTypeDriver    QPType = 0xff
)

var qpTypeNames = []string{2: "RC", 3: "UC", 4: "UD", 8: "RAW_PACKET", 9: "XRC_SEND", 10: "XRC_RECV", 0xff: "DRIVER"}

// String returns the name without IBV_QPT_.
func (t QPType) String() string { return nameOf("QPType", qpTypeNames, int64(t)) }

// QPState is the state of a QP (enum ibv_qp_state).
type QPState uint32

// The QP states (IBV_QPS_*).
const (
	QPSReset   QPState = 0
	QPSInit    QPState = 1
	QPSRTR     QPState = 2 // ready to receive
	QPSRTS     QPState = 3 // ready to send
	QPSSQD     QPState = 4 // send queue drained, or draining
	QPSSQE     QPState = 5 // send queue in error; UC and UD
	QPSErr     QPState = 6
	QPSUnknown QPState = 7
)

var qpStateNames = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN"}

// String returns the name without IBV_QPS_.
func (s QPState) String() string { return nameOf("QPState", qpStateNames, int64(s)) }

// QPAttrMask names attributes of a QP (enum ibv_qp_attr_mask).
type QPAttrMask uint32

// The attributes of a QP (IBV_QP_*) and the fields of QPAttr that they stand for.
const (
	QPAttrState            QPAttrMask = 1 << 0 // QPState
	QPAttrCurState         QPAttrMask = 1 << 1 // CurQPState
	QPAttrEnSQDAsyncNotify QPAttrMask = 1 << 2
	QPAttrAccessFlags      QPAttrMask = 1 << 3
	QPAttrPKeyIndex        QPAttrMask = 1 << 4
	QPAttrPort             QPAttrMask = 1 << 5 // PortNum
	QPAttrQKey             QPAttrMask = 1 << 6
	QPAttrAV               QPAttrMask = 1 << 7 // AHAttr
	QPAttrPathMTU          QPAttrMask = 1 << 8
	QPAttrTimeout          QPAttrMask = 1 << 9
	QPAttrRetryCnt         QPAttrMask = 1 << 10
	QPAttrRNRRetry         QPAttrMask = 1 << 11
	QPAttrRQPSN            QPAttrMask = 1 << 12
	QPAttrMaxQPRdAtomic    QPAttrMask = 1 << 13 // MaxRdAtomic
	QPAttrAltPath          QPAttrMask = 1 << 14 // AltAHAttr, AltPKeyIndex, AltPortNum, AltTimeout
	QPAttrMinRNRTimer      QPAttrMask = 1 << 15
	QPAttrSQPSN            QPAttrMask = 1 << 16
	QPAttrMaxDestRdAtomic  QPAttrMask = 1 << 17
	QPAttrPathMigState     QPAttrMask = 1 << 18
	QPAttrCap              QPAttrMask = 1 << 19
	QPAttrDestQPN          QPAttrMask = 1 << 20
	QPAttrRateLimit        QPAttrMask = 1 << 25

	qpAttrAll QPAttrMask = 1<<21 - 1 | QPAttrRateLimit
)

var qpAttrNames = []string{
	"QP_STATE", "QP_CUR_STATE", "QP_EN_SQD_ASYNC_NOTIFY", "QP_ACCESS_FLAGS", "QP_PKEY_INDEX", "QP_PORT", "QP_QKEY",
	"QP_AV",
	"QP_PATH_MTU", "QP_TIMEOUT", "QP_RETRY_CNT", "QP_RNR_RETRY", "QP_RQ_PSN", "QP_MAX_QP_RD_ATOMIC", "QP_ALT_PATH",
	"QP_MIN_RNR_TIMER", "QP_SQ_PSN", "QP_MAX_DEST_RD_ATOMIC", "QP_PATH_MIG_STATE", "QP_CAP", "QP_DEST_QPN", "", "", "", "",
	"QP_RATE_LIMIT",
}

// String joins the names of the attributes without IBV_ with commas: "QP_AV, QP_DEST_QPN".
func (m QPAttrMask) String() string { return flagsOf(qpAttrNames, uint64(m), ", ") }

// MigState is the state of automatic path migration (enum ibv_mig_state).
type MigState uint32

// The path migration states (IBV_MIG_*).
const (
	MigMigrated MigState = 0 // there is one path; as an argument of Modify: move to the alternate path
	MigRearm    MigState = 1 // an alternate path is loaded; becomes MigArmed when the peer's QP is in MigRearm too
	// moves to the alternate path when the other one fails, or when the peer moves; not an argument of Modify
	MigArmed MigState = 2
)

var migStateNames = []string{"MIGRATED", "REARM", "ARMED"}

// String returns the name without IBV_MIG_.
func (s MigState) String() string { return nameOf("MigState", migStateNames, int64(s)) }

// MTU is the code of a payload size of packets (enum ibv_mtu). Bytes returns the size.
type MTU uint32

// The MTUs (IBV_MTU_*).
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes returns the payload size in bytes, 256 to 4096; 0 for an invalid value.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// MTUOf returns the MTU of a payload size in bytes; 0 if bytes is not 256, 512, 1024, 2048 or 4096.
func MTUOf(bytes int) MTU {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m
		}
	}
	return 0
}

var mtuNames = []string{"", "256", "512", "1024", "2048", "4096"}

// String returns the size in bytes.
func (m MTU) String() string { return nameOf("MTU", mtuNames, int64(m)) }

// SRQAttrMask names attributes of an SRQ (enum ibv_srq_attr_mask).
type SRQAttrMask uint32

// The attributes of an SRQ (IBV_SRQ_*).
const (
	SRQAttrMaxWR SRQAttrMask = 1 << 0 // MaxWR and MaxSGE
	SRQAttrLimit SRQAttrMask = 1 << 1 // SRQLimit
)

var srqAttrNames = []string{"SRQ_MAX_WR", "SRQ_LIMIT"}

// String joins the names of the attributes without IBV_ with commas.
func (m SRQAttrMask) String() string { return flagsOf(srqAttrNames, uint64(m), ", ") }

// SRQType is the kind of an SRQ (enum ibv_srq_type).
type SRQType uint32

// The SRQ types (IBV_SRQT_*).
const (
	SRQTypeBasic SRQType = 0
	SRQTypeXRC   SRQType = 1
	SRQTypeTM    SRQType = 2 // tag matching
)

var srqTypeNames = []string{"BASIC", "XRC", "TM"}

// String returns the name without IBV_SRQT_.
func (t SRQType) String() string { return nameOf("SRQType", srqTypeNames, int64(t)) }

// rnrTens holds the delays of the RNR timer codes in units of 10 us (IBTA volume 1, table 45). The manual's table has
// other values for the codes 6 to 21, which are wrong.
var rnrTens = [32]int{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRDelay returns the delay of a MinRNRTimer code, 0 to 31: the time that a peer waits after an RNR NAK before it
// sends again.
func RNRDelay(code uint8) time.Duration {
	return time.Duration(rnrTens[code&31]) * 10 * time.Microsecond
}

// AckTimeout returns the duration of a Timeout code, 0 to 31: 4.096 us x 2^code. It is 0 for code 0, which disables
// the time-out.
func AckTimeout(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << (code & 31)
}
