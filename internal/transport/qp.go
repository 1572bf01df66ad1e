package transport

import (
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/prefetch"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Config holds the parameters of a new QP.
type Config struct {
	Owner     any        // the QP object of the layer above
	Guest     bool       // the QP is at home in another process; see turn.go
	SrcNum    uint32     // UD: the source QPN of datagrams; 0: Num
	PortMTU   func() int // UD: the longest message now, bytes; nil: wire.MaxPayload
	IPOffload *IPOffload // UD; nil: none
	XRCD      *XRCD      // XRC_RECV only: such a QP has no queues, CQs or PD
	Relay     Relay      // XRC_RECV: of a domain that other processes have too; otherwise nil
	Ports     Ports      // nil: the P_Keys are those that Modify gets

	// Each message uses what follows.
	SQ      *SendQueue
	RQ      *RecvQueue // the QP's own, or an SRQ; nil for XRC
	SendCQ  CompletionQueue
	RecvCQ  CompletionQueue
	Regions *mr.Table
	// Scratch may be shared by the QPs of a shard; nil: the QP gets its own.
	Scratch *Scratch
	Host    Host
	Num     uint32
	PD      uint32
	Type    Type
	SigAll  bool
}

// Scratch is memory for the completion that is being made; on the stack it would escape. QPs share it because a QP
// among many is not in the processor's caches.
type Scratch struct {
	sent, received CQE
	short          CQE // of onShortSend, which sets only a few fields; the others are zero
}

// QP is one queue pair. All fields but state belong to the shard that owns it.
//
// A program with very many QPs has none of them in the processor's caches. So what each message uses is in two places:
// from the middle of Config to the beginning of attr, and from the middle of req to the beginning of resp. The
// structures have their fields in an order for that; see PrefetchRequester.
type QP struct {
	id    uint64                 // unique in the process, unlike Num
	first *Failure               // the failure that moved the QP to SQE or ERR
	ended atomic.Pointer[string] // see Ended

	Config
	state atomic.Uint32
	// baseFlags are set in the BTH of every packet: the M bit of the MIGRATED state. Adapters expect it from a
	// peer without automatic path migration; rxe sends 0 and ignores it.
	baseFlags uint32
	path      *link.Path // a copy of attr.Path, shared with batched packets
	bytes     bytesMoved
	firstPath link.Path // the first of the copies of attr.Path: most QPs have one only
	pace      pace
	// Sched is the shard's bookkeeping: the list of QPs with packets to send and the timer wheel.
	Sched Sched
	attr  Attr

	pacing     pacing
	congestion congestion
	complained bool // PATH_MIG_ERR was raised since the QP was armed

	req  requester
	resp responder

	Doorbell Doorbell
	Counters Events
}

// bytesMoved counts the payload bytes of a QP.
type bytesMoved struct{ sent, received uint64 }

// Totals returns the QP's counters.
func (qp *QP) Totals() Counters {
	return Counters{Events: qp.Counters, TxDataBytes: qp.bytes.sent, RxDataBytes: qp.bytes.received}
}

// Sched is the shard's bookkeeping for one QP. Only internal/engine uses it.
type Sched struct {
	Next     *QP   // next in the shard's list of QPs to process
	Deadline int64 // time for which the timer is armed
	Queued   bool  // the QP is in that list
	Dead     bool  // the QP was destroyed
	Answers  int8  // how reliably the program answers messages at once; see the engine's held acknowledgements

	TimerStays           bool   // the timer stays armed while nothing is outstanding
	TimerSlot            uint16 // 1 + slot in the wheel; 0: not armed
	DeathReported        bool   // the death of the peer process was reported
	TimerOff             int64  // when it was cancelled because nothing was outstanding
	TimerNext, TimerPrev *QP    // neighbours in the timer wheel
	AckAt                int64  // when the last acknowledgement was sent or held, until the program's answer; 0: none
}

// Doorbell is the shard's bookkeeping for requests that another goroutine has posted. Only internal/engine uses it.
type Doorbell struct {
	Rung atomic.Bool // the QP is in the doorbell list
	Next *QP
}

var lastID atomic.Uint64

// NewQP returns a QP in state RESET.
func NewQP(c Config) *QP {
	qp := new(QP)
	qp.Init(c)
	return qp
}

// Init makes a zero QP one in state RESET.
func (qp *QP) Init(c Config) {
	qp.Config, qp.id, qp.baseFlags = c, lastID.Add(1), wire.BTHMigReq
	if qp.Scratch == nil {
		qp.Scratch = new(Scratch)
	}
	qp.req.init(qp)
	qp.resp.init(qp)
}

// Ended says why the QP is about to be moved to ERR from outside, for the work requests that are flushed then: a
// clause. RESET forgets it. It is safe for concurrent use.
func (qp *QP) Ended(why string) { qp.ended.Store(&why) }

// State returns the QP's state. It is safe for concurrent use.
func (qp *QP) State() State { return State(qp.state.Load()) }

// MTU returns the path MTU in bytes.
func (qp *QP) MTU() int { return qp.attr.MTU }

// Attr returns the QP's current attributes.
func (qp *QP) Attr() Attr { a := qp.attr; a.State = qp.State(); return a }

// Path returns the path of RC and UC packets, nil before RTR.
func (qp *QP) Path() *link.Path { return qp.path }

// takePath makes attr.Path the path in use. References sent along the old one are revoked: afterwards the QP does not
// know that path any more.
func (qp *QP) takePath() {
	qp.req.revoke()
	qp.resp.revoke()
	p := &qp.firstPath
	if p.Dst.IsValid() { // packets may still have it
		p = new(link.Path)
	}
	*p = qp.attr.Path
	p.Private, p.Refused = true, link.Refusal{}
	qp.path = p
}

// PeerAddr returns the address that RC and UC packets must come from.
func (qp *QP) PeerAddr() netip.Addr { return qp.attr.Path.Dst }

// The places of what each message uses of a QP.
const (
	coreAt  = unsafe.Offsetof(QP{}.Config) + unsafe.Offsetof(Config{}.SQ)
	coreEnd = unsafe.Offsetof(QP{}.attr) + unsafe.Offsetof(Attr{}.MaxRdAtomic)

	requesterAt  = unsafe.Offsetof(QP{}.req) + unsafe.Offsetof(requester{}.win) + unsafe.Offsetof(window{}.limit)
	requesterEnd = unsafe.Offsetof(QP{}.resp) + unsafe.Offsetof(responder{}.replies) + unsafe.Offsetof(replies{}.ring)
	responderAt  = unsafe.Offsetof(QP{}.resp)
	responderEnd = unsafe.Offsetof(QP{}.resp) + unsafe.Offsetof(responder{}.data)

	// See PrefetchDue.
	dueAt  = unsafe.Offsetof(QP{}.req) + unsafe.Offsetof(requester{}.qp)
	dueEnd = unsafe.Offsetof(QP{}.req) + unsafe.Offsetof(requester{}.rtt)
)

// PrefetchRequester asks the processor for what a request that is posted or acknowledged uses of the QP, without
// reading the QP.
func (qp *QP) PrefetchRequester() {
	prefetch.Part(qp, coreAt, coreEnd)
	prefetch.Part(qp, requesterAt, requesterEnd)
}

// PrefetchResponder is PrefetchRequester for a request of the peer.
func (qp *QP) PrefetchResponder() {
	prefetch.Part(qp, coreAt, coreEnd)
	prefetch.Part(qp, responderAt, responderEnd)
}

// PrefetchDue asks for what Due of a QP without replies uses, without reading the QP.
func (qp *QP) PrefetchDue() { prefetch.Part(qp, dueAt, dueEnd) }

// PrefetchPost asks for what a receive that is posted uses of the QP, without reading the QP.
func (qp *QP) PrefetchPost() {
	prefetch.Part(qp, coreAt, unsafe.Offsetof(qp.state)+unsafe.Sizeof(qp.state))
}

// PrefetchOldest asks for the oldest work request. The shard is held.
func (qp *QP) PrefetchOldest() {
	if r := &qp.req; r.head != r.begun {
		prefetch.Value(r.oldest())
	}
}

// PrefetchReceive asks for the oldest receive, after the memory of the queue was. The shard is held.
func (qp *QP) PrefetchReceive() {
	if qp.RQ != nil && !qp.RQ.shared {
		qp.RQ.prefetch()
	}
}
