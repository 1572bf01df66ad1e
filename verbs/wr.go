package verbs

// SGE names a range of registered memory (struct ibv_sge).
//
// Addr is an address of the region: MR.Addr plus an offset, or the offset alone for a zero-based region. Length is in
// bytes. LKey is MR.LKey. MR.SGE returns one.
type SGE struct {
	Addr   uint64
	Length uint32 // bytes, 0 to 2^31
	LKey   uint32
}

// SendWR is a send work request (struct ibv_send_wr).
//
// Fields that an opcode does not use are ignored. SGList and Inline are read during PostSend only. The memory that
// SGList names belongs to the device until the request's completion is polled.
type SendWR struct {
	WRID   uint64
	Opcode WROpcode
	Flags  SendFlags
	SGList []SGE

	// Inline holds the data of a request with SendInline. It is copied during PostSend: it need not be registered
	// and may be reused afterwards. If nil, the memory of SGList is copied instead.
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

	Flush Flush // Flush; RemoteAddr and RKey give the memory
}

// Flush holds the parameters of a FLUSH besides the peer's address and key. The C structure ibv_send_wr has no field
// for it: C programs post FLUSHes by ibv_wr_flush only.
type Flush struct {
	Length uint32 // bytes, up to 2^31
	Type   PlacementType
	Level  SelectivityLevel
}

// TSO holds the parameters of a request that the device cuts into frames or datagrams (the member tso of struct
// ibv_send_wr). SGList is the data without headers.
type TSO struct {
	Hdr []byte // the headers in front of each piece, up to TCP; at most QPInitAttr.MaxTSOHeader bytes
	MSS uint16 // bytes of data in each piece but the last
}

// RecvWR is a receive work request (struct ibv_recv_wr). SGList is read during the post call only.
type RecvWR struct {
	WRID   uint64
	SGList []SGE
}

// WC is a work completion (struct ibv_wc). If Status is not WCSuccess only WRID, Status, VendorErr, QPNum and Cause are
// valid.
//
// Its fields are also what the readers of struct ibv_cq_ex return: ibv_wc_read_opcode, ibv_wc_read_vendor_err,
// ibv_wc_read_byte_len and so on. Those from Timestamp on are 0 unless CQOptions.WCFlags asked for them.
type WC struct {
	WRID            uint64
	Status          WCStatus
	Opcode          WCOpcode // (ibv_wc_read_opcode)
	VendorErr       uint32   // the device's own code of a failure (ibv_wc_read_vendor_err)
	ByteLen         uint32   // bytes; of receives, READs, atomics; on UD including 40 bytes of GRH (ibv_wc_read_byte_len)
	ImmData         uint32   // host order; if WCFlags has WCWithImm (ibv_wc_read_imm_data)
	InvalidatedRKey uint32   // the key that the peer invalidated; if WCFlags has WCWithInv (ibv_wc_read_invalidated_rkey)
	QPNum           uint32   // (ibv_wc_read_qp_num)
	SrcQP           uint32   // UD (ibv_wc_read_src_qp)
	WCFlags         WCFlags  // (ibv_wc_read_wc_flags)
	PKeyIndex       uint16   // UD (ibv_wc_read_pkey_index)
	SLID            uint16   // 0 on RoCE (ibv_wc_read_slid)
	SL              uint8    // UD receives on RoCEv2: 9 over IPv6, 10 over IPv4; else 0 (ibv_wc_read_sl)
	DLIDPathBits    uint8    // (ibv_wc_read_dlid_path_bits)

	// Cause describes the failure; nil if Status is WCSuccess.
	Cause *WCError

	Timestamp uint64 // ticks of the device's clock; see DeviceAttr.HCACoreClock (ibv_wc_read_completion_ts)
	Wallclock uint64 // when the completion came into the CQ, ns since 1970 (ibv_wc_read_completion_wallclock_ns)
	FlowTag   uint32 // tag of the flow rule that matched (ibv_wc_read_flow_tag)
	CVLAN     uint16 // VLAN tag of a received frame, host order (ibv_wc_read_cvlan)
	TM        TMInfo // tag of a message (ibv_wc_read_tm_info)
}

// TMInfo is the tag of a message (struct ibv_wc_tm_info).
type TMInfo struct {
	Tag  uint64
	Priv uint32
}
