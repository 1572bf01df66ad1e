package transport

import (
	"net/netip"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
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
	id    uint64 // never that of another QP, as numbers may be
	state atomic.Uint32
	attr  Attr
	path  *link.Path // attr.Path, shared with the packets under way

	refused link.Refusal // since the last packet was acknowledged
	// baseFlags are in the BTH of every packet: the M bit, which says that the path is migrated, that is: in use. Adapters
	// expect it from a peer without automatic path migration; rxe sends 0 and looks at neither.
	baseFlags  uint32
	complained bool // PATH_MIG_ERR was raised since the QP was armed
	req        requester
	resp       responder
	first      *Failure // what broke the QP
	Counters   Counters
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
	qp := &QP{Config: c, id: lastID.Add(1), baseFlags: wire.BTHMigReq}
	qp.req.init(qp)
	qp.resp.init(qp)
	return qp
}

// State may be read by anybody at any time.
func (qp *QP) State() State { return State(qp.state.Load()) }

// MTU is the path MTU in bytes.
func (qp *QP) MTU() int { return qp.attr.MTU }

// Attr is the QP's attributes as they are now.
func (qp *QP) Attr() Attr { a := qp.attr; a.State = qp.State(); return a }

// Path is where RC and UC packets go, nil before RTR.
func (qp *QP) Path() *link.Path { return qp.path }

// takePath has attr.Path used from now on.
func (qp *QP) takePath() {
	p := qp.attr.Path
	p.Refused, qp.refused = &qp.refused, link.Refusal{}
	qp.path = &p
}

// PeerAddr is the address that RC and UC packets must come from.
func (qp *QP) PeerAddr() netip.Addr { return qp.attr.Path.Dst }
