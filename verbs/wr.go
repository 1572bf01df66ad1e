package verbs

// SGE names a piece of registered memory (struct ibv_sge).
//
// Addr is an address as the region has it: MR.Addr plus an offset, or the offset alone
// for a zero-based region. Length counts bytes. LKey is MR.LKey.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is a send work request (struct ibv_send_wr, manual section 43).
//
// The fields that an opcode does not use are ignored. SGList and Inline are read
// during PostSend only; the memory that SGList names belongs to the device until the request's
// completion has been polled.
type SendWR struct {
	WRID   uint64
	Opcode WROpcode
	Flags  SendFlags
	SGList []SGE

	// Inline holds the data of a request with SendInline, which is copied during PostSend: it need not be
	// registered and may be reused at once. If nil, SGList is copied instead.
	Inline []byte

	ImmData        uint32 // *WithImm: host order; big endian on the wire, as htonl of the C program's imm_data
	InvalidateRKey uint32 // SendWithInv, LocalInv

	RemoteAddr uint64 // RDMA and atomics
	RKey       uint32
	CompareAdd uint64 // compare value, or addend
	Swap       uint64

	MW       *MW         // BindMW: a window of type 2; RKey is its new key
	BindInfo *MWBindInfo // BindMW; read during PostSend only

	AH         *AH // UD
	RemoteQPN  uint32
	RemoteQKey uint32

	RemoteSRQN uint32 // XRC

	TSO *TSO // TSO; read during PostSend only

	Flush Flush // Flush; RemoteAddr and RKey say where
}

// Flush is what a FLUSH asks for besides the peer's address and key. The C structure ibv_send_wr has no place for it: there FLUSHes are posted by
// ibv_wr_flush only.
type Flush struct {
	Length uint32 // bytes, up to 2^31
	Type   PlacementType
	Level  SelectivityLevel
}

// TSO is what a request needs that the device cuts into frames or datagrams (the member tso of struct ibv_send_wr). SGList is the data,
// without the headers.
type TSO struct {
	Hdr []byte // the headers in front of each piece, up to TCP; at most QPInitAttrEx.MaxTSOHeader bytes
	MSS uint16 // bytes of data in each piece but the last
}

// RecvWR is a receive work request (struct ibv_recv_wr, manual section 42). SGList is read during the post call only.
type RecvWR struct {
	WRID   uint64
	SGList []SGE
}

// WC is a work completion (struct ibv_wc, manual section 45). If Status is not WCSuccess only WRID, Status,
// VendorErr, QPNum and Cause are valid.
type WC struct {
	WRID            uint64
	Status          WCStatus
	Opcode          WCOpcode
	VendorErr       uint32
	ByteLen         uint32 // bytes transferred; receives, reads and atomics; a UD receive counts the 40 bytes of the GRH
	ImmData         uint32 // host order; if WCFlags has WCWithImm
	InvalidatedRKey uint32 // if WCFlags has WCWithInv
	QPNum           uint32
	SrcQP           uint32 // UD
	WCFlags         WCFlags
	PKeyIndex       uint16
	SLID            uint16
	SL              uint8
	DLIDPathBits    uint8

	// Cause is why Status is not WCSuccess; nil on success.
	Cause *WCError
}
