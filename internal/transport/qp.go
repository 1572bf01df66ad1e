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
	// Each message uses these fields.
	SQ      *SendQueue
	RQ      *RecvQueue // the QP's own, or an SRQ; nil for XRC
	SendCQ  CompletionQueue
	RecvCQ  CompletionQueue
	Regions *mr.Table
	// Scratch may be shared by the QPs of a shard; nil: the QP gets its own.
	Scratch *Scratch
	Owner   any // the QP object of the layer above
	Host    Host
	Num     uint32
	PD      uint32
	Type    Type
	SigAll  bool

	Guest     bool       // the QP is at home in another process; see turn.go
	SrcNum    uint32     // UD: the source QPN of datagrams; 0: Num
	PortMTU   func() int // UD: the longest message now, bytes; nil: wire.MaxPayload
	IPOffload *IPOffload // UD; nil: none
	XRCD      *XRCD      // XRC_RECV only: such a QP has no queues, CQs or PD
	Relay     Relay      // XRC_RECV: of a domain that other processes have too; otherwise nil
	Ports     Ports      // nil: the P_Keys are those that Modify gets
}

// Scratch is memory for the completion that is being made; on the stack it would escape. QPs share it because a QP
// among many is not in the processor's caches.
type Scratch struct {
	sent, received CQE
	short          CQE // of onShortSend, which sets only a few fields; the others are zero
}

// QP is one queue pair. All fields but state belong to the shard that owns it.
//
// A program with very many QPs has none of them in the processor's caches. So what each message uses is in four places:
// at the beginning of Config, from the end of attr to the middle of req, at the end of resp, and in the middle of
// Counters. The structures have their fields in an order for that; see PrefetchRequester.
type QP struct {
	Config

	id         uint64                 // unique in the process, unlike Num
	first      *Failure               // the failure that moved the QP to SQE or ERR
	ended      atomic.Pointer[string] // see Ended
	complained bool                   // PATH_MIG_ERR was raised since the QP was armed

	attr  Attr
	state atomic.Uint32
	// baseFlags are set in the BTH of every packet: the M bit of the MIGRATED state. Adapters expect it from a
	// peer without automatic path migration; rxe sends 0 and ignores it.
	baseFlags  uint32
	path       *link.Path   // a copy of attr.Path, shared with batched packets
	firstPath  link.Path    // the first of these copies: most QPs have one only
	refused    link.Refusal // send errors since the last acknowledgement
	pace       pace
	congestion congestion
	// Sched is the shard's bookkeeping: the list of QPs with packets to send and the timer wheel.
	Sched Sched
	req   requester

	resp     responder
	Counters Counters
}

// Sched is the shard's bookkeeping for one QP. Only internal/engine uses it.
type Sched struct {
	Next     *QP         // next in the shard's list of QPs to process
	Queued   bool        // the QP is in that list
	Dead     bool        // the QP was destroyed
	Answers  int8        // how reliably the program answers messages at once; see the engine's held acknowledgements
	AckAt    int64       // when the last acknowledgement was sent or held, until the program's answer; 0: none
	Doorbell atomic.Bool // the QP is in the doorbell list
	DoorNext *QP

	TimerNext, TimerPrev *QP    // neighbours in the timer wheel
	TimerSlot            uint16 // 1 + slot in the wheel; 0: not armed
	TimerStays           bool   // the timer stays armed while nothing is outstanding
	TimerOff             int64  // when it was cancelled because nothing was outstanding
	Deadline             int64  // time for which the timer is armed
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
	p.Refused, qp.refused = &qp.refused, link.Refusal{}
	qp.path = p
}

// PeerAddr returns the address that RC and UC packets must come from.
func (qp *QP) PeerAddr() netip.Addr { return qp.attr.Path.Dst }

// PrefetchedConfig is the length of the fields of Config that each message uses.
const PrefetchedConfig = unsafe.Offsetof(Config{}.Guest)

// The other places of what each message uses of a QP.
const (
	coreAt      = unsafe.Offsetof(QP{}.attr) + unsafe.Offsetof(Attr{}.Port)
	responseEnd = unsafe.Offsetof(QP{}.req) + unsafe.Offsetof(requester{}.from) // for requests of the peer
	requestEnd  = unsafe.Offsetof(QP{}.req) + unsafe.Offsetof(requester{}.srqn)

	responderAt  = unsafe.Offsetof(QP{}.resp) + unsafe.Offsetof(responder{}.qp)
	repliesAt    = unsafe.Offsetof(QP{}.resp) + unsafe.Offsetof(responder{}.head) // for requests of this QP
	responderEnd = unsafe.Offsetof(QP{}.Counters)

	countersAt  = unsafe.Offsetof(QP{}.Counters) + unsafe.Offsetof(Counters{}.RetransmitPackets)
	countersEnd = unsafe.Offsetof(QP{}.Counters) + unsafe.Offsetof(Counters{}.MarkedPackets)
)

// PrefetchRequester asks the processor for what a request that is posted or acknowledged uses of the QP besides Config,
// without reading the QP.
func (qp *QP) PrefetchRequester() {
	prefetch.Part(qp, coreAt, requestEnd)
	prefetch.Part(qp, repliesAt, responderEnd)
	prefetch.Part(qp, countersAt, countersEnd)
}

// PrefetchResponder is PrefetchRequester for a request of the peer.
func (qp *QP) PrefetchResponder() {
	prefetch.Part(qp, coreAt, responseEnd)
	prefetch.Part(qp, responderAt, responderEnd)
	prefetch.Part(qp, countersAt, countersEnd)
}

// PrefetchState asks for the state, without reading the QP.
func (qp *QP) PrefetchState() {
	prefetch.Part(qp, unsafe.Offsetof(qp.state), unsafe.Offsetof(qp.state)+unsafe.Sizeof(qp.state))
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
