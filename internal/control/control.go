// Package control is how tools look into running programs: each process that has a device open answers questions on a
// socket of its own. This package has what is asked and answered, and the asking side; the provider answers.
//
// The socket is an abstract unix socket, so it spans the network namespace, as the addresses of devices do, leaves no
// file behind, and needs no right: a process answers its own user and root. Nothing that comes in harms it: an asker has two
// seconds for its question and to take the answer, and only so many are answered at a time. A question is one line:
//
//	report                      the process's devices, QPs and counters, as JSON
//	objects                     the same with each protection domain, region, CQ, SRQ and context
//	capture DEVICE [ANNOUNCED]  blocks of pcapng, for as long as the asker listens
//
// A capture also announces itself, on a socket that a program looks for when it opens a device, and calls: a program that lives for a
// moment is captured from its first packet on.
//
// What the provider does not know, as the IDs of connection management, others add (AddSource). It imports the standard library and golang.org/x/sys.
package control

// The questions.
const (
	AskReport  = "report"
	AskObjects = "objects"
	AskCapture = "capture"
)

// Silent is a process that does not answer, by the name of its socket.
type Silent struct {
	Name string
	Err  error
}

// Report is what a process tells of itself.
type Report struct {
	PID     int      `json:"pid"`
	Comm    string   `json:"comm"`
	Devices []Device `json:"devices"`
}

// Device is one that the process has open.
type Device struct {
	Name      string    `json:"name"`
	Interface string    `json:"interface"`
	Contexts  int       `json:"contexts"`
	PDs       int       `json:"pds"`
	CQs       int       `json:"cqs"`
	MRs       int       `json:"mrs"`
	SRQs      int       `json:"srqs"`
	QPs       []QP      `json:"qps"`
	CMIDs     []CMID    `json:"cm_ids"`
	Counters  []Counter `json:"counters"`
	Objects   *Objects  `json:"objects,omitempty"` // nil in the answer to report
}

// Objects are those that a report only counts. Their numbers count from 1 in each process.
type Objects struct {
	Contexts []uint32 `json:"contexts"`
	PDs      []PD     `json:"pds"`
	CQs      []CQ     `json:"cqs"`
	MRs      []MR     `json:"mrs"`
	SRQs     []SRQ    `json:"srqs"`
}

// PD is a protection domain. Its users are QPs, regions and SRQs.
type PD struct {
	Num     uint32 `json:"num"`
	Users   int    `json:"users"`
	Context uint32 `json:"context"`
}

// CQ is a completion queue. A QP uses it once for its sends and once for its receives.
type CQ struct {
	Num     uint32 `json:"num"`
	CQE     int    `json:"cqe"` // how many completions it holds
	Users   int    `json:"users"`
	Context uint32 `json:"context"`
}

// MR is a memory region.
type MR struct {
	Num  uint32 `json:"num"`
	RKey uint32 `json:"rkey"`
	LKey uint32 `json:"lkey"`
	Len  uint64 `json:"len"` // bytes
	PD   uint32 `json:"pd"`
}

// SRQ is a shared receive queue.
type SRQ struct {
	Num  uint32   `json:"num"`
	Type string   `json:"type"` // BASIC, XRC or TM
	QPs  []uint32 `json:"qps"`  // in order
	PD   uint32   `json:"pd"`
	CQ   uint32   `json:"cq"` // 0 if it has none
}

// QP is one queue pair.
type QP struct {
	Num      uint32    `json:"num"`
	Type     string    `json:"type"`
	State    string    `json:"state"`
	Dest     uint32    `json:"dest"` // of the peer; 0 if it has none
	Peer     string    `json:"peer"` // its address; empty if it has none
	RQPSN    uint32    `json:"rq_psn"`
	SQPSN    uint32    `json:"sq_psn"`
	Mig      string    `json:"mig"`
	PD       uint32    `json:"pd"`
	Counters []Counter `json:"counters"`
}

// CMID is an ID of connection management.
type CMID struct {
	Num   uint32 `json:"num"` // counts from 1 in each process
	QP    uint32 `json:"qp"`  // 0 if it has none
	Type  string `json:"type"`
	State string `json:"state"`
	PS    string `json:"ps"`
	Src   string `json:"src"` // address and port; empty if it has none
	Dst   string `json:"dst"`
}

// Counter is one value under its kernel's name.
type Counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}
