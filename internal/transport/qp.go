package transport

import (
	"net/netip"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
)

// Config is what a QP is made of.
type Config struct {
	Num     uint32
	Type    Type
	PD      uint32
	SigAll  bool
	PortMTU int // UD: the longest message, bytes
	SQ      *SendQueue
	RQ      *RecvQueue // its own, or an SRQ; nil for XRC
	XRCD    *XRCD      // of an XRC_RECV QP, which has neither queues nor CQs nor PD
	SendCQ  CompletionQueue
	RecvCQ  CompletionQueue
	Regions *mr.Table
	Host    Host
	Owner   any // the object of the layer above
}

// QP is one queue pair. All fields but state belong to the shard that owns it.
type QP struct {
	Config
	id       uint64 // never that of another QP, as numbers may be
	state    atomic.Uint32
	attr     Attr
	path     *link.Path // attr.Path, shared with the packets under way
	req      requester
	resp     responder
	first    *Failure // what broke the QP
	Counters Counters
	// Sched belongs to the shard: its place in the list of QPs with something to send, and in the timer wheel.
	Sched Sched
}

// Sched is the shard's bookkeeping for one QP. Only internal/engine uses it.
type Sched struct {
	Next     *QP         // in the shard's list of QPs to look at
	Queued   bool        // it is in that list
	Dead     bool        // it was destroyed
	Doorbell atomic.Bool // it is in the list of doorbells that rang
	DoorNext *QP

	TimerNext, TimerPrev *QP    // neighbours in the timer wheel
	TimerSlot            uint16 // 1 + place in the wheel; 0 = not armed
	Deadline             int64  // for which the timer is armed
}

var lastID atomic.Uint64

// NewQP makes a QP in state RESET.
func NewQP(c Config) *QP {
	qp := &QP{Config: c, id: lastID.Add(1)}
	qp.req.init(qp)
	qp.resp.init(qp)
	return qp
}

// State may be read by anybody at any time.
func (qp *QP) State() State { return State(qp.state.Load()) }

// Attr is the QP's attributes as they are now.
func (qp *QP) Attr() Attr { a := qp.attr; a.State = qp.State(); return a }

// PeerAddr is the address that RC and UC packets must come from.
func (qp *QP) PeerAddr() netip.Addr { return qp.attr.Path.Dst }
