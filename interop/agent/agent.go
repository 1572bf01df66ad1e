// Package agent is the protocol between the interop runner and the two ends of a verbs case. An end is a
// program that performs single verbs calls on request: peer/main.go on Verbena, peer/peer.py on the
// kernel's device through pyverbs. Each case is written once, in the runner, and either end may take either
// side.
//
// The runner writes one JSON request per line to the end's standard input, and the end answers each with
// one line of JSON. Values that verbs.h defines (opcodes, flags, statuses, access flags, QP states) are
// transferred unchanged. Memory is addressed by offsets into the region that an end registers for the case.
package agent

// The operations of a Request, with the fields that they use.
const (
	// Open creates the objects. It uses Type, Family, Size, Access, QPAccess, MaxSend, MaxRecv, MaxSGE, Inline, SRQ, QPs
	// and Place, and returns Addr, RKey, GID and QPNs.
	Open    = "open"
	Connect = "connect" // QP, and Path: RESET to RTS
	Put     = "put"     // Off, Data: writes memory
	Get     = "get"     // Off, Len: returns Data
	Sum     = "sum"     // Off, Len: returns Sum, the SHA-256 of memory
	Recv    = "recv"    // QP, WRs: post_recv, or post_srq_recv if there is an SRQ
	Send    = "send"    // QP, WRs: post_send
	Poll    = "poll"    // CQ, N, MS: returns WCs, when there are N of them or after MS milliseconds
	Arm     = "arm"     // Solicited: req_notify on the receive CQ
	Event   = "event"   // MS: time-out for the receive CQ's event; returns Got
	Bind    = "bind"    // QP, Off, Len, Access: binds a memory window of type 2; returns RKey
	Attach  = "attach"  // QP, GID: joins a multicast group
	State   = "state"   // QP: returns State, from query_qp
	Close   = "close"   // destroys everything, as does the end of the requests
)

// Request is a call that an end executes. Fields that the operation does not use are zero.
type Request struct {
	Op string `json:"op"`

	Type string `json:"type"` // RC, UC or UD
	// selects the GID: 4 for the IPv4 address, 6 for the IPv6 address, 0 for the link-local one
	Family   int    `json:"family"`
	Size     int    `json:"size"`   // of the region, bytes
	Access   uint32 `json:"access"` // of the region, or of a window
	QPAccess uint32 `json:"qp_access"`
	MaxSend  int    `json:"max_send"`
	MaxRecv  int    `json:"max_recv"`
	MaxSGE   int    `json:"max_sge"`
	Inline   int    `json:"inline"`
	SRQ      bool   `json:"srq"`
	QPs      int    `json:"qps"`
	Place    bool   `json:"place"` // the QPs use ATOMIC_WRITE

	QP int `json:"qp"` // index of a QP of Open
	Path

	Off  int    `json:"off"`
	Len  int    `json:"len"`
	Data []byte `json:"data,omitempty"` // base64 in JSON

	WRs       []WR   `json:"wrs,omitempty"`
	CQ        string `json:"cq"` // send or recv
	N         int    `json:"n"`
	MS        int    `json:"ms"`
	Solicited bool   `json:"solicited"`
}

// Path is the path to the peer with the attributes of the connection.
type Path struct {
	QPN          uint32 `json:"qpn"`
	GID          string `json:"gid"`
	MTU          int    `json:"mtu"` // bytes
	RQPSN        uint32 `json:"rq_psn"`
	SQPSN        uint32 `json:"sq_psn"`
	RdAtomic     int    `json:"rd_atomic"`
	DestRdAtomic int    `json:"dest_rd_atomic"`
	RNRTimer     int    `json:"rnr_timer"`
	Timeout      int    `json:"timeout"`
	Retry        int    `json:"retry"`
	RNRRetry     int    `json:"rnr_retry"`
	QKey         uint32 `json:"qkey"` // UD
}

// WR is a send or receive work request.
type WR struct {
	ID     uint64   `json:"id"`
	SGE    [][2]int `json:"sge"` // offset and length
	Opcode int      `json:"opcode"`
	Flags  int      `json:"flags"`
	Imm    uint32   `json:"imm"` // host byte order
	Inv    uint32   `json:"inv"` // key to invalidate

	RAddr      uint64 `json:"raddr"`
	RKey       uint32 `json:"rkey"`
	CompareAdd uint64 `json:"compare_add"`
	Swap       uint64 `json:"swap"`

	QPN  uint32 `json:"qpn"` // UD
	QKey uint32 `json:"qkey"`
	GID  string `json:"gid"`
}

// WC is a work completion.
type WC struct {
	ID     uint64 `json:"id"`
	Status int    `json:"status"`
	Opcode int    `json:"opcode"`
	Len    uint32 `json:"len"`
	Imm    uint32 `json:"imm"` // host byte order; the invalidated key for SEND_WITH_INV
	QPN    uint32 `json:"qpn"`
	SrcQP  uint32 `json:"src_qp"`
	Flags  int    `json:"flags"`
	Cause  string `json:"cause,omitempty"` // explanation of a failure
}

// Response is an end's answer. Error is empty if the operation succeeded.
type Response struct {
	Error string `json:"error,omitempty"`
	Errno int    `json:"errno,omitempty"`

	Addr  uint64   `json:"addr,omitempty"`
	RKey  uint32   `json:"rkey,omitempty"`
	GID   string   `json:"gid,omitempty"`
	QPNs  []uint32 `json:"qpns,omitempty"`
	Data  []byte   `json:"data,omitempty"`
	Sum   string   `json:"sum,omitempty"`
	WCs   []WC     `json:"wcs,omitempty"`
	Got   bool     `json:"got,omitempty"`
	State int      `json:"state,omitempty"`
}
