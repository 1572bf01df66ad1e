// Package control lets tools inspect running programs: each process that has a device open answers questions on its
// own socket. The package defines questions and answers, and has the side of the tools; the provider answers.
//
// The socket is an abstract unix socket, so it belongs to the network namespace, as the addresses of devices do,
// leaves no file behind, and needs no right: a process answers its own user and root. A tool has two seconds for its
// question and to read the answer, and the number of concurrent answers is limited. A question is one line:
//
//	report                      the process's devices, QPs and counters, as JSON
//	objects                     the same with each protection domain, region, CQ, SRQ and context
//	counters DEVICE             the counters of a device, a line "NAME VALUE" for each, under the names of their files in
//	                            the kernel's sysfs; nothing if the process does not have it open
//	capture DEVICE [ANNOUNCED]  blocks of pcapng, until the tool closes the connection
//
// A capture also announces itself, on a socket that a program calls when it opens a device. So a program that runs
// for a moment is captured from its first packet on.
//
// Other packages add their state to reports, such as the IDs of connection management (AddSource). The package
// imports internal/{fdset,peeruser,untrusted}, the standard library and golang.org/x/sys.
package control

import "strconv"

// The questions.
const (
	AskReport   = "report"
	AskObjects  = "objects"
	AskCounters = "counters"
	AskCapture  = "capture"
)

// A Silent is a process that does not answer.
type Silent struct {
	Name string
	Err  error
}

// A Report describes a process.
type Report struct {
	PID     int      `json:"pid"` // 0: the process has none in this PID namespace
	Comm    string   `json:"comm"`
	Devices []Device `json:"devices"`
	// Elsewhere is empty for a process that has a number in this PID namespace. For another one it is the process's
	// user and its number there, 1000/1, which a suffix makes unique in the network namespace: 1000/1.1.
	Elsewhere string `json:"-"`
	UID       int    `json:"-"` // the user of the process
	Account   int    `json:"-"` // the user whose limits count for it: the owner of a subordinate one
}

// ID returns a text that no two processes of a network namespace share: the process number, or Elsewhere.
func (r *Report) ID() string {
	if r.Elsewhere != "" {
		return r.Elsewhere
	}
	return strconv.Itoa(r.PID)
}

// A Device is a device that the process has open.
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
	CM        []Counter `json:"cm,omitempty"`      // of connection management; empty if the program uses none
	Objects   *Objects  `json:"objects,omitempty"` // nil in the answer to report
}

// Objects are the objects that a report only counts. Their numbers start at 1 in each process.
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
	CQE     int    `json:"cqe"` // size in completions
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
	Dest     uint32    `json:"dest"`            // of the peer; 0 if it has none
	Peer     string    `json:"peer"`            // its address, of a connection of TCP with the port; empty if it has none
	Local    string    `json:"local,omitempty"` // the own end of a connection of TCP, address and port; empty without one
	RQPSN    uint32    `json:"rq_psn"`
	SQPSN    uint32    `json:"sq_psn"`
	Mig      string    `json:"mig"`
	PD       uint32    `json:"pd"`
	Port     int       `json:"port,omitempty"` // of the device, from 1
	Counters []Counter `json:"counters"`
}

// CMID is an ID of connection management.
type CMID struct {
	Num   uint32 `json:"num"`            // from 1 in each process
	QP    uint32 `json:"qp"`             // 0 if it has none
	Port  int    `json:"port,omitempty"` // of the device, from 1; 0 before it is bound to one
	Type  string `json:"type"`
	State string `json:"state"`
	PS    string `json:"ps"`
	Src   string `json:"src"` // address and port; empty if it has none
	Dst   string `json:"dst"`
}

// A Counter is a value under the name that the kernel uses.
type Counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}
