// Package control is how tools look into running programs: each process that has a device open answers questions on a
// socket of its own. This package has what is asked and answered, and the asking side; the provider answers.
//
// The socket is an abstract unix socket, so it spans the network namespace, as the addresses of devices do, leaves no
// file behind, and needs no right: a process answers its own user and root. A question is one line:
//
//	report            the process's devices, QPs and counters, as JSON
//	capture DEVICE    blocks of pcapng, for as long as the asker listens
//
// What the provider does not know, as the IDs of connection management, others add (AddSource). It imports the standard library.
package control

import "fmt"

// The questions.
const (
	AskReport  = "report"
	AskCapture = "capture"

	prefix = "@verbena-control/"
)

// Name is the address of a process's socket.
func Name(uid, pid int) string { return fmt.Sprintf("%s%d/%d", prefix, uid, pid) }

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
	QP    uint32 `json:"qp"` // 0 if it has none
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
