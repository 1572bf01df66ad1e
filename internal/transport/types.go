package transport

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Type of a QP; values of enum ibv_qp_type.
type Type uint8

// The QP types.
const (
	RC        Type = 2
	UC        Type = 3
	UD        Type = 4
	RawPacket Type = 8
	XRCSend   Type = 9
	XRCRecv   Type = 10
)

// State of a QP; values of enum ibv_qp_state.
type State uint32

// The QP states.
const (
	Reset State = 0
	Init  State = 1
	RTR   State = 2
	RTS   State = 3
	SQD   State = 4
	SQE   State = 5
	Err   State = 6
)

// CanMove reports whether there is a transition from a state to another one, for some attributes.
func (s State) CanMove(to State) bool {
	switch to {
	case Reset, Err:
		return true
	case Init:
		return s == Reset || s == Init
	case RTR:
		return s == Init
	case RTS:
		return s == RTR || s == RTS || s == SQD || s == SQE
	case SQD:
		return s == RTS || s == SQD
	}
	return false
}

// Receives reports whether a QP in the state processes packets; in the others it drops them.
func (s State) Receives() bool { return s != Reset && s != Init && s != Err }

// Op is the operation of a send work request; values of enum ibv_wr_opcode.
type Op uint8

// The operations.
const (
	OpWrite    Op = 0
	OpWriteImm Op = 1
	OpSend     Op = 2
	OpSendImm  Op = 3
	OpRead     Op = 4
	OpCmpSwap  Op = 5
	OpFetchAdd Op = 6
	OpLocalInv Op = 7
	OpBindMW   Op = 8
	OpSendInv  Op = 9
	OpTSO      Op = 10

	OpFlush       Op = 14
	OpAtomicWrite Op = 15
)

// SendFlags of a send work request; values of enum ibv_send_flags.
type SendFlags uint8

// The send flags.
const (
	Fence     SendFlags = 1 << 0
	Signaled  SendFlags = 1 << 1
	Solicited SendFlags = 1 << 2
	Inline    SendFlags = 1 << 3
	IPCsum    SendFlags = 1 << 4
)

// Status of a completion; values of enum ibv_wc_status.
type Status uint8

// The completion statuses that these transports produce.
const (
	Success        Status = 0
	LocLenErr      Status = 1
	LocQPOpErr     Status = 2
	LocProtErr     Status = 4
	WRFlushErr     Status = 5
	MWBindErr      Status = 6
	BadRespErr     Status = 7
	LocAccessErr   Status = 8
	RemInvReqErr   Status = 9
	RemAccessErr   Status = 10
	RemOpErr       Status = 11
	RetryExcErr    Status = 12
	RNRRetryExcErr Status = 13
	RemAbortErr    Status = 16
	FatalErr       Status = 19
	GeneralErr     Status = 21
	TMErr          Status = 22

	TMRndvIncomplete Status = 23
)

// CQOp is the opcode of a completion; values of enum ibv_wc_opcode.
type CQOp uint8

// The completion opcodes.
const (
	CQSend        CQOp = 0
	CQWrite       CQOp = 1
	CQRead        CQOp = 2
	CQCompSwap    CQOp = 3
	CQFetchAdd    CQOp = 4
	CQBindMW      CQOp = 5
	CQLocalInv    CQOp = 6
	CQTSO         CQOp = 7
	CQFlush       CQOp = 8
	CQAtomicWrite CQOp = 9
	CQRecv        CQOp = 128
	CQRecvRDMAImm CQOp = 129
	CQTMAdd       CQOp = 130
	CQTMDel       CQOp = 131
	CQTMSync      CQOp = 132
	CQTMRecv      CQOp = 133
	CQTMNoTag     CQOp = 134
)

// CQFlags of a completion; values of enum ibv_wc_flags.
type CQFlags uint8

// The completion flags.
const (
	WithGRH CQFlags = 1 << 0
	WithImm CQFlags = 1 << 1
	WithInv CQFlags = 1 << 3

	IPCsumOK CQFlags = 1 << 2

	TMSyncReq   CQFlags = 1 << 4
	TMMatch     CQFlags = 1 << 5
	TMDataValid CQFlags = 1 << 6
)

// Event is an asynchronous event of a QP or SRQ; values of enum ibv_event_type.
type Event uint8

// The events that a transport raises.
const (
	EventQPFatal          Event = 1
	EventQPReqErr         Event = 2
	EventQPAccessErr      Event = 3
	EventCommEst          Event = 4
	EventSQDrained        Event = 5
	EventPathMig          Event = 6
	EventPathMigErr       Event = 7
	EventSRQErr           Event = 14
	EventSRQLimitReached  Event = 15
	EventQPLastWQEReached Event = 16
	EventWQFatal          Event = 19
)

// SGE names a piece of registered memory.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// CQE is a completion queue entry.
type CQE struct {
	WRID      uint64
	Status    Status
	Op        CQOp
	Flags     CQFlags
	Solicited bool // the completion triggers a CQ armed for solicited events
	Frame     bool // of an Ethernet frame: Tag is the flow tag, AppCtx the stripped VLAN tag
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32 // host order; the invalidated R_Key if Flags has WithInv
	QPN       uint32
	SrcQP     uint32
	PKeyIndex uint16
	SL        uint8  // of a datagram: its packet type, see verbs.WC
	AppCtx    uint32 // tag matching: from the message's header
	Tag       uint64 // tag matching: from the message's header

	QP    *QP        // nil for a tag list operation
	Send  bool       // from the send queue
	Slot  uint32     // if Send: the slots up to and including this one are free once the CQE is polled
	SQ    *SendQueue // the queue of Slot if QP is nil
	RQ    *RecvQueue // unless Send: the queue of the receive, perhaps an SRQ; its slot is free once the CQE is polled
	Tags  *TagList   // of a tag list operation or a matched message
	Cause *Failure   // details if Status is not Success
}

// Failure describes why a work request failed.
type Failure struct {
	Status    Status
	QPN       uint32
	DestQPN   uint32
	Peer      string        // the peer's address
	Reason    string        // one clause: "no acknowledgement", "the responder answered NAK remote access error"
	Syndrome  uint8         // of the NAK, if there was one
	LastSent  uint32        // PSN
	LastAck   uint32        // PSN
	Retries   int           // resends before giving up
	Elapsed   time.Duration // since the request was first sent
	Heard     bool          // whether any packet ever came back from the peer
	PeerEnded bool          // the process of the peer is known to have ended
	Stream    bool          // of a QP over TCP
	Refused   link.Refusal  // for RetryExcErr: the last send error of this host since the last acknowledgement
	Payload   int           // for RetryExcErr: of the request's longest packet or the response's, bytes
	First     *Failure      // for a flushed request: the failure of the QP; nil after ibv_modify_qp to ERR
}

// CompletionQueue takes completions. Push is called with the QP's shard held: it copies *e and must not call the QP.
type CompletionQueue interface {
	Push(e *CQE)
}

// Host is the shard as seen by a QP. Its methods are called with the shard held.
type Host interface {
	// Raise reports an asynchronous event of the QP (or of its SRQ).
	Raise(qp *QP, ev Event)
	// StateChanged reports that the QP moved to another state by itself.
	StateChanged(qp *QP, s State)
}

// Revoker is a Host that supports packets by reference. Revoke invalidates the outstanding references of qp: their
// memory is about to be reused, and the receiver must treat these packets as lost.
type Revoker interface {
	Revoke(qp *QP)
}

// SilenceHost is a Host that takes notice of peers that do not answer. PeerSilent reports that a check of keep-alive
// has moved qp to ERR.
type SilenceHost interface {
	PeerSilent(qp *QP)
}

// Attr holds the attributes that ibv_modify_qp sets. The verbs layer has checked ranges and masks.
type Attr struct {
	// Each message uses these fields.
	DestQPN   uint32
	Access    uint32 // qp_access_flags, as mr.Access
	PKeyIndex uint16
	PKey      uint16
	Timeout   uint8 // code 0 to 31; 0: no limit
	RetryCnt  uint8 // 0 to 7
	RNRRetry  uint8 // 0 to 7; 7: no limit
	Mig       MigState
	MTU       int // path MTU in bytes, 256 to 4096

	MaxRdAtomic   int // initiator depth
	MaxDestRdAtom int // responder resources
	State         State
	Path          link.Path // AH_ATTR
	PathOwner     any       // state of the layer above that belongs to Path
	QKey          uint32
	RQPSN, SQPSN  uint32
	SQDNotify     bool  // en_sqd_async_notify
	MinRNRTimer   uint8 // code 0 to 31
	Port          uint8

	// The alternate path. Migration exchanges it with Path.
	Alt        link.Path
	AltOwner   any
	AltPKey    uint16
	AltPKeyIdx uint16
	AltPort    uint8
	AltTimeout uint8
}

// MigState is the path migration state; values of enum ibv_mig_state.
type MigState uint8

// The states of path migration.
const (
	Migrated MigState = 0 // only the primary path is in use
	Rearm    MigState = 1 // waits until the peer is ready to migrate
	Armed    MigState = 2 // may migrate
)

// Mask selects the fields of Attr that Modify applies; values of enum ibv_qp_attr_mask.
type Mask uint32

// The attributes.
const (
	MaskState         Mask = 1 << 0
	MaskCurState      Mask = 1 << 1
	MaskSQDNotify     Mask = 1 << 2
	MaskAccess        Mask = 1 << 3
	MaskPKeyIndex     Mask = 1 << 4
	MaskPort          Mask = 1 << 5
	MaskQKey          Mask = 1 << 6
	MaskAV            Mask = 1 << 7
	MaskPathMTU       Mask = 1 << 8
	MaskTimeout       Mask = 1 << 9
	MaskRetryCnt      Mask = 1 << 10
	MaskRNRRetry      Mask = 1 << 11
	MaskRQPSN         Mask = 1 << 12
	MaskMaxRdAtomic   Mask = 1 << 13
	MaskAltPath       Mask = 1 << 14
	MaskMinRNRTimer   Mask = 1 << 15
	MaskSQPSN         Mask = 1 << 16
	MaskMaxDestRdAtom Mask = 1 << 17
	MaskMigState      Mask = 1 << 18
	MaskDestQPN       Mask = 1 << 20
)

// Counters of a QP or shard, under the names of the kernel's hw_counters.
type Counters struct {
	Events
	TxDataBytes uint64
	RxDataBytes uint64
}

// Events are the counters that few messages change. The responder writes the first group, the requester the second.
type Events struct {
	DuplicateRequest     uint64 // duplicate_request
	OutOfSequence        uint64 // out_of_sequence
	RNRNakSent           uint64 // send_rnr_err
	RespLocalLengthError uint64 // resp_local_length_error
	RespRemoteAccessErrs uint64 // resp_remote_access_errors
	RespCQEError         uint64 // resp_cqe_error
	RxWriteRequests      uint64 // rx_write_requests
	RxReadRequests       uint64 // rx_read_requests
	RxAtomicRequests     uint64 // rx_atomic_requests
	RecvDropped          uint64 // UC and UD messages dropped: no receive, too long, incomplete

	PacketSeqErr       uint64 // packet_seq_err: NAKs of that kind received
	LocalAckTimeoutErr uint64 // local_ack_timeout_err
	RNRNakRcvd         uint64 // rcvd_rnr_err
	RNRNakRetryErr     uint64 // rnr_nak_retry_err
	RetryExceeded      uint64 // retry_exceeded_err
	ReqRemoteAccessErr uint64 // req_remote_access_errors
	ReqRemoteInvalid   uint64 // req_remote_invalid_request
	ImpliedNakSeqErr   uint64 // implied_nak_seq_err
	RetransmitPackets  uint64 // packets sent again

	MarkedPackets uint64 // np_ecn_marked_roce_packets: packets received that a switch has marked
	CNPSent       uint64 // np_cnp_sent: congestion notifications sent
	CNPHandled    uint64 // rp_cnp_handled: those received by QPs with a window
	CNPIgnored    uint64 // rp_cnp_ignored: those received by other QPs

	BadPKey      uint64 // dropped by cause
	BadQKey      uint64
	BadSource    uint64
	BadState     uint64
	BadOpcode    uint64
	BadDuplicate uint64
}

// RNRDelay returns the time of an RNR NAK's timer code (IBTA volume 1, table 45).
func RNRDelay(code uint8) time.Duration { return rnrDelays[code&31] }

var rnrDelays = [32]time.Duration{
	655360 * time.Microsecond, 10 * time.Microsecond, 20 * time.Microsecond, 30 * time.Microsecond,
	40 * time.Microsecond, 60 * time.Microsecond, 80 * time.Microsecond, 120 * time.Microsecond,
	160 * time.Microsecond, 240 * time.Microsecond, 320 * time.Microsecond, 480 * time.Microsecond,
	640 * time.Microsecond, 960 * time.Microsecond, 1280 * time.Microsecond, 1920 * time.Microsecond,
	2560 * time.Microsecond, 3840 * time.Microsecond, 5120 * time.Microsecond, 7680 * time.Microsecond,
	10240 * time.Microsecond, 15360 * time.Microsecond, 20480 * time.Microsecond, 30720 * time.Microsecond,
	40960 * time.Microsecond, 61440 * time.Microsecond, 81920 * time.Microsecond, 122880 * time.Microsecond,
	163840 * time.Microsecond, 245760 * time.Microsecond, 327680 * time.Microsecond, 491520 * time.Microsecond,
}

// AckTimeout returns the time of a timeout code, 4.096 us x 2^code; 0 means unlimited.
func AckTimeout(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << (code & 31)
}
