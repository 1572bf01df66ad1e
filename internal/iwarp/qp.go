package iwarp

import (
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// Host receives the reports of a QP about changes that the program did not ask for. Its methods must not call the QP.
type Host interface {
	// Raise reports an asynchronous event of the QP, or of its SRQ.
	Raise(ev transport.Event)
	// StateChanged reports that the QP has moved to another state.
	StateChanged(s transport.State)
}

// Config holds the parameters of a new QP.
type Config struct {
	Num      uint32
	ID       uint64 // unique in the process: memory windows of type 2 are bound to it
	PD       uint32
	SigAll   bool
	SQ       *transport.SendQueue
	RQ       *transport.RecvQueue // the QP's own, or an SRQ
	SendCQ   transport.CompletionQueue
	RecvCQ   transport.CompletionQueue
	Regions  *mr.Table
	Access   mr.Access // what the peer may do at all
	MaxULPDU int       // the longest ULPDU to send, in bytes; 0: iwarp.MaxULPDU
	Host     Host
	Counters *Counters // where the QP counts; nil: in counters of its own
}

// QP is one queue pair over one TCP connection. It begins in RTS and ends in ERR; a connection is not used twice.
type QP struct {
	Config
	par   Params
	state transport.State
	heard bool // a segment has arrived: a responder may send
	// released: a responder may send, although no segment has arrived.
	released bool
	closing  bool // Disconnect was called
	term     iwarp.Terminate
	told     bool // a Terminate was received
	signals
	receiver
	sender
	first *transport.Failure // what moved the QP to ERR
}

// Shortest is the least MaxULPDU: each message that cannot be segmented fits.
const Shortest = 128

// NewQP returns the QP of a connection whose start-up is complete.
func NewQP(c Config, p Params) *QP {
	if c.MaxULPDU == 0 {
		c.MaxULPDU = iwarp.MaxULPDU
	}
	if c.Counters == nil {
		c.Counters = new(Counters)
	}
	c.MaxULPDU = min(max(c.MaxULPDU, Shortest), iwarp.MaxULPDU)
	if p.RTR == iwarp.RTRRead { // the first message needs these, whatever the programs have asked for
		p.IRD, p.ORD = max(p.IRD, 1), max(p.ORD, 1)
	}
	q := &QP{Config: c, par: p, state: transport.RTS}
	q.initReceiver()
	q.initSender()
	return q
}

// State returns the QP's state: RTS or ERR.
func (q *QP) State() transport.State { return q.state }

// Terminate returns the Terminate that ended the stream, and whether the peer has sent it. Its Code is meaningful in
// ERR if sent or received is true.
func (q *QP) Terminate() (t iwarp.Terminate, sent, received bool) { return q.term, q.dying, q.told }

// Disconnect begins the orderly end: what is posted is still sent, and once Finished reports it the stream may be
// closed.
func (q *QP) Disconnect() { q.closing = true }

// Finished reports that the stream is to be closed: the QP has nothing to send, and will have nothing.
func (q *QP) Finished() bool {
	if q.state == transport.Err {
		return q.idle()
	}
	return q.closing && q.idle() && q.head == q.SQ.Posted() && len(q.answers) == 0
}

// OnEOF is called when the peer has closed its direction of the stream, or the stream was lost.
func (q *QP) OnEOF() {
	if !q.between() {
		q.end(transport.FatalErr, "the connection was lost within a message")
		return
	}
	q.end(transport.WRFlushErr, "the peer has closed the connection")
}

// OnSilence is called when the stream was lost because the peer does not answer.
func (q *QP) OnSilence() { q.end(transport.RetryExcErr, "the peer does not answer") }

// Move puts the QP into ERR on behalf of the program. Nothing more is sent.
func (q *QP) Move() { q.end(transport.WRFlushErr, "the QP was moved to ERR by ibv_modify_qp") }

// Abandon drops the message that is being received, without a completion, and frees the place of its receive. The QP is
// not used any more.
func (q *QP) Abandon() {
	if q.message.held {
		q.message.held = false
		q.RQ.Release(1)
	}
}

// OnPosted flushes what was posted to a QP in ERR. In RTS it does nothing.
func (q *QP) OnPosted() {
	if q.state == transport.Err {
		q.flush()
	}
}

// refusal is why a segment ends the stream.
type refusal struct {
	code iwarp.Code
	why  string
	// recv is the status of the receive that the message was to complete; Success: it is flushed.
	recv transport.Status
}

func refuse(c iwarp.Code) *refusal { return &refusal{code: c, why: c.String()} }

// die ends the stream because of what the peer has sent: seg is the header of the segment, nil if it is about none,
// and n its length.
func (q *QP) die(r *refusal, seg iwarp.Segment, n int) {
	if q.state == transport.Err {
		return
	}
	q.term = iwarp.Terminate{Code: r.code}
	if seg != nil && r.code.Layer() < 2 && r.code.Type() != 0 {
		q.term.DDP, q.term.SegLen = append([]byte(nil), seg.Header()...), uint16(n)
		if r.code.Layer() == 0 && seg.Opcode() == iwarp.ReadRequest && q.got == iwarp.ReadRequestLen {
			q.term.RDMAP = append([]byte(nil), q.small[:iwarp.ReadRequestLen]...)
		}
	}
	q.Counters.countRefusal(r, seg)
	ev := transport.EventQPReqErr
	if isProtection(r.code) {
		ev = transport.EventQPAccessErr
	}
	if r.code == iwarp.LocalCatastrophic {
		ev = transport.EventQPFatal
	}
	q.dying = true
	var failed *transport.Failure
	if r.recv != transport.Success && q.message.held {
		failed = &transport.Failure{Status: r.recv, QPN: q.Num, Reason: r.why}
		q.first = failed
	}
	q.endWith(transport.FatalErr, "the stream was terminated: "+r.why, failed)
	q.Host.Raise(ev)
}

// end moves the QP to ERR: what was sent completes, everything else is flushed. If dying is set a Terminate is sent.
// s is WRFlushErr for an orderly end; another status is that of the first failure, which the flushed requests name.
func (q *QP) end(s transport.Status, why string) { q.endWith(s, why, nil) }

// endWith is end. The receive of the current message completes with receive, unless that is nil: after the state has
// changed, as all that is not successful, so that a program that polls the completion finds the QP in ERR.
func (q *QP) endWith(s transport.Status, why string, receive *transport.Failure) {
	if q.state == transport.Err {
		return
	}
	q.complete()
	if q.first == nil {
		q.first = &transport.Failure{Status: s, QPN: q.Num, Reason: why, Stream: true}
	}
	q.state = transport.Err
	q.Host.StateChanged(transport.Err)
	q.truncate()
	if receive != nil && q.message.held {
		q.completeReceive(receive.Status, receive)
	}
	q.flush()
}

// flush completes what is left in the queues.
func (q *QP) flush() {
	cause := &transport.Failure{Status: transport.WRFlushErr, QPN: q.Num, Reason: q.first.Reason}
	if q.first.Status != transport.WRFlushErr { // else the connection has ended, and no request has failed
		cause.First = q.first
	}
	q.flushSends(cause)
	q.flushReceives(cause)
}
