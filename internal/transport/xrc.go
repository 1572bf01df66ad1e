package transport

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// XRC is RC split in two. An XRC_SEND QP has a send queue and no receives; the XRC_RECV QP that it is connected to answers
// its requests and has no queue at all. Each request packet names an SRQ in its XRCETH. A SEND takes its receive
// there and completes in that SRQ's CQ; keys are checked against that SRQ's protection domain, so that one
// connection serves programs with different domains (IBTA annex A14).

// An XRCD is an XRC domain: the SRQs that its XRC_RECV QPs deliver to, by their numbers.
type XRCD struct {
	mu   sync.RWMutex
	srqs map[uint32]*XRCSRQ
}

// NewXRCD makes an empty domain.
func NewXRCD() *XRCD { return &XRCD{srqs: make(map[uint32]*XRCSRQ)} }

// Add enters an SRQ.
func (d *XRCD) Add(s *XRCSRQ) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.srqs[s.Num] = s
}

// Remove takes an SRQ out. A message that is being received into it will fail. Its completion queue may be in use until every
// shard has ended the step that it is in.
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
	CQ    CompletionQueue // of what is received

	closed atomic.Bool
}

// Close ends the SRQ: nothing more completes, and peers that name it are refused.
func (s *XRCSRQ) Close() { s.closed.Store(true) }

// Push makes an SRQ the completion queue of what it receives, as long as it is open.
func (s *XRCSRQ) Push(e *CQE) {
	if !s.closed.Load() {
		s.CQ.Push(e)
	}
}

// XRCSRQ is the SRQ that the newest message of an XRC_RECV QP was for, nil without one.
func (qp *QP) XRCSRQ() *XRCSRQ { return qp.resp.srq }

// onXRC takes a packet of an XRC connection. Everything is as with RC once the SRQ is known, which the first packet of a message
// decides.
func (r *responder) onXRC(p wire.Packet, info *wire.Info) {
	if r.phase == between && info.Flags&wire.Start == 0 || p.BTH().PSN() != r.epsn {
		r.onRC(p, info) // out of order, out of sequence, or a duplicate
		return
	}
	if r.phase == between {
		r.aim(p.XRCETH().SRQN())
	}
	if r.srq == nil || r.srq.closed.Load() {
		r.refuse(faultSRQ, r.epsn)
		return
	}
	r.onRC(p, info)
}

// aim makes an SRQ of the QP's domain the one that messages are for.
func (r *responder) aim(num uint32) {
	if r.srq != nil && r.srq.Num == num && !r.srq.closed.Load() {
		return
	}
	r.srq = r.qp.XRCD.find(num)
	if r.srq != nil {
		r.rq, r.cq, r.pd = r.srq.Queue, r.srq, r.srq.Queue.PD()
	}
}

// forget lets go of the SRQ (RESET): it may be gone when the QP is used again.
func (r *responder) forget() {
	if r.qp.Type == XRCRecv {
		r.srq, r.rq, r.cq, r.pd = nil, nil, nil, 0
	}
}

// reliable tells whether a QP type acknowledges and repeats.
func (t Type) reliable() bool { return t == RC || t == XRCSend || t == XRCRecv }
