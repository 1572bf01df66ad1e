package transport

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// XRC splits RC in two. An XRC_SEND QP has a send queue and no receives; the XRC_RECV QP that it is connected to
// answers its requests and has no queue. Each request packet names an SRQ in its XRCETH. A SEND takes its receive
// from that SRQ and completes in the SRQ's CQ. Keys are checked against the SRQ's protection domain, so one
// connection serves programs with different domains (IBTA annex A14).

// An XRCD is an XRC domain: the SRQs that its XRC_RECV QPs deliver to, by number. It is safe for concurrent use.
type XRCD struct {
	mu sync.RWMutex
	// +checklocks:mu
	srqs map[uint32]*XRCSRQ
}

// NewXRCD returns an empty domain.
func NewXRCD() *XRCD { return &XRCD{srqs: make(map[uint32]*XRCSRQ)} }

// Add adds an SRQ.
func (d *XRCD) Add(s *XRCSRQ) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.srqs[s.Num] = s
}

// Remove removes an SRQ. A message that is being received into it fails. Its completion queue may be in use until
// every shard has finished its current step.
func (d *XRCD) Remove(s *XRCSRQ) {
	s.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.srqs, s.Num)
}

func (d *XRCD) find(num uint32) *XRCSRQ {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.srqs[num]
}

// XRCSRQ is an SRQ of an XRC domain.
type XRCSRQ struct {
	Num   uint32 // 24 bits
	Queue *RecvQueue
	CQ    CompletionQueue // of received messages

	closed atomic.Bool
}

// Close closes the SRQ: no further receive completes, and requests that name it are refused.
func (s *XRCSRQ) Close() { s.closed.Store(true) }

// Push implements CompletionQueue while the SRQ is open.
func (s *XRCSRQ) Push(e *CQE) {
	if !s.closed.Load() {
		s.CQ.Push(e)
	}
}

// XRCSRQ returns the SRQ of the latest message of an XRC_RECV QP, nil if there is none.
func (qp *QP) XRCSRQ() *XRCSRQ { return qp.resp.srq }

// onXRC handles a packet of an XRC connection. The first packet of a message determines the SRQ; the rest is as with
// RC.
func (r *responder) onXRC(rx *link.RxPacket, info *wire.Info) {
	p, relay := wire.Packet(rx.Data), r.qp.Relay
	switch seq := p.BTH().PSN(); {
	case r.away:
		r.onRelayed(rx, info)
		return
	case relay != nil && !r.qp.Guest && r.executedElsewhere(seq, info):
		relay.Repeat(rx)
		return
	case r.phase == between && info.Flags&wire.Start == 0 || seq != r.epsn:
		r.onRC(p, info) // out of order, out of sequence, or a duplicate
		return
	}
	if r.phase == between {
		num := p.XRCETH().SRQN()
		if r.aim(num); r.srq == nil && relay != nil && relay.Elsewhere(num) {
			r.pass(num, rx)
			return
		}
	}
	if r.srq == nil || r.srq.closed.Load() {
		r.refuse(faultSRQ, r.epsn)
		return
	}
	r.onRC(p, info)
}

// aim selects the SRQ of the QP's domain for the next message.
func (r *responder) aim(num uint32) {
	if r.srq != nil && r.srq.Num == num && !r.srq.closed.Load() {
		return
	}
	r.srq = r.qp.XRCD.find(num)
	if r.srq != nil {
		r.rq, r.cq, r.pd = r.srq.Queue, r.srq, r.srq.Queue.PD()
	}
}

// forget releases the SRQ (RESET), which may be closed before the QP is used again.
func (r *responder) forget() {
	if r.qp.Type == XRCRecv {
		r.srq, r.rq, r.cq, r.pd = nil, nil, nil, 0
	}
}

// reliable reports whether a QP type uses acknowledgements and retries.
func (t Type) reliable() bool { return t == RC || t == XRCSend || t == XRCRecv }
