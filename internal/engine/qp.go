package engine

import (
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// QPUpcalls is how a QP reports to the layer above. The upcalls do not block or call back.
type QPUpcalls interface {
	Event(ev transport.Event)
	StateChanged(s transport.State)
}

// QPInit is what a QP is made of.
type QPInit struct {
	Type           transport.Type
	Num            uint32 // 0 for one that the engine chooses; or a number below 16, for the QPs with a fixed one
	PD             uint32
	SigAll         bool
	PortMTU        int // UD: the longest message, bytes
	SQ             *transport.SendQueue
	RQ             *transport.RecvQueue // its own, or an SRQ
	SendCQ, RecvCQ *CQ                  // nil for those that an XRC QP lacks
	XRCD           *XRCD                // of an XRC_RECV QP
	Regions        *mr.Table
	Up             QPUpcalls
}

// A QP is a queue pair and its place in the engine.
type QP struct {
	*transport.QP
	shard *shard
	up    QPUpcalls
	cqs   []*CQ      // that its work requests complete into, each once; receives' first
	xrcd  *XRCD      // of an XRC_RECV QP
	peer  netip.Addr // whose budget it shares; the shard's

	bereft bool // it was told that the peer's process has died; the shard's
}

// CreateQP makes a QP in RESET. The first one opens the link, whose error it returns.
func (e *Engine) CreateQP(in QPInit) (*QP, error) {
	if err := e.start(); err != nil {
		return nil, err
	}
	num, err := e.reserveQPN(&in)
	if err != nil {
		return nil, err
	}
	s := e.shardOf(num)
	qp := &QP{shard: s, up: in.Up, cqs: in.cqs(), xrcd: in.XRCD}
	c := transport.Config{
		Num: num, Type: in.Type, PD: in.PD, SigAll: in.SigAll, PortMTU: in.PortMTU, SQ: in.SQ, RQ: in.RQ,
		SendCQ: in.SendCQ, RecvCQ: in.RecvCQ, Regions: in.Regions, Host: s, Owner: qp,
	}
	if qp.xrcd != nil {
		c.XRCD = qp.xrcd.XRCD
		qp.xrcd.enter(s)
	}
	qp.QP = transport.NewQP(c)
	for _, cq := range qp.cqs {
		cq.attach(s)
	}
	e.qps.put(qp.QP)
	return qp, nil
}

// cqs lists the CQs of a QP, each once.
func (in *QPInit) cqs() (list []*CQ) {
	if in.RecvCQ != nil {
		list = append(list, in.RecvCQ)
	}
	if in.SendCQ != nil && in.SendCQ != in.RecvCQ {
		list = append(list, in.SendCQ)
	}
	return list
}

func (e *Engine) reserveQPN(in *QPInit) (uint32, error) {
	if in.Num != 0 {
		return in.Num, e.qps.reserveFixed(in.Num)
	}
	cqs := in.cqs()
	if in.XRCD != nil {
		if cq := in.XRCD.home(); cq != nil {
			cqs = append(cqs, cq)
		}
	}
	home := e.homeOf(cqs)
	if e.spans != nil {
		return e.qps.reserveIn(&e.spans[home])
	}
	return e.qps.reserve(home, uint32(len(e.shards)))
}

// Num is the QP number.
func (qp *QP) Num() uint32 { return qp.QP.Num }

// Modify puts attributes in force and makes the transition to a.State, with the shard held. transport.ErrMoved says that the QP has moved
// by itself, so that there is no such transition any more; ErrCQOverrun that the QP would leave RESET, but nobody could learn what
// becomes of its work requests.
func (qp *QP) Modify(a *transport.Attr, m transport.Mask) error {
	s := qp.shard
	s.hold()
	defer s.release()
	if !possible(qp.State(), a.State) {
		return transport.ErrMoved
	}
	if a.State == transport.Init && qp.State() == transport.Reset && qp.overrun() {
		return ErrCQOverrun // failQPs passes over QPs in RESET
	}
	s.now = s.eng.now()
	if m&transport.MaskState != 0 && (a.State == transport.Reset || a.State == transport.Err) {
		s.lastWords(qp.QP)
	}
	if m&transport.MaskState != 0 && a.State == transport.Reset {
		qp.purge()
	}
	near := qp.prepare(a, m)
	err := qp.QP.Modify(s.now, a, m)
	switch {
	case a.State == transport.Reset:
		s.dropPeer(qp)
	case err == nil && m&transport.MaskAV != 0:
		qp.bereft = false
		s.setPeer(qp, a.Path.Dst, near)
	}
	s.runq.push(qp.QP)
	s.serve()
	return err
}

// prepare completes new paths: with a source port, and with what the link knows of the peer. It tells whether the primary one leads
// to a process of this host.
func (qp *QP) prepare(a *transport.Attr, m transport.Mask) (here bool) {
	dest := a.DestQPN
	if m&transport.MaskDestQPN == 0 {
		dest = qp.QP.Attr().DestQPN
	}
	near := qp.shard.eng.near
	for _, p := range []struct {
		in   transport.Mask
		path *link.Path
	}{{transport.MaskAltPath, &a.Alt}, {transport.MaskAV, &a.Path}} {
		if m&p.in == 0 {
			continue
		}
		p.path.InOrder = qp.Type == transport.UC
		p.path.Source = link.SourcePort(p.path.FlowLabel, qp.Num(), dest)
		if near != nil {
			here = near.Prepare(p.path, dest) && p.in == transport.MaskAV
		}
	}
	return here
}

// possible tells whether there is a transition between two states, for any attributes.
func possible(from, to transport.State) bool {
	switch to {
	case transport.Reset, transport.Err:
		return true
	case transport.Init:
		return from == transport.Reset || from == transport.Init
	case transport.RTR:
		return from == transport.Init
	case transport.RTS:
		return from == transport.RTR || from == transport.RTS || from == transport.SQD || from == transport.SQE
	case transport.SQD:
		return from == transport.RTS || from == transport.SQD
	}
	return false
}

// Query reads the attributes, and whether the QP is in SQD but not drained yet.
func (qp *QP) Query() (a transport.Attr, draining bool) {
	qp.shard.hold()
	defer qp.shard.release()
	return qp.QP.Attr(), qp.QP.Draining()
}

// purge removes the QP's completions from its CQs. The shard is held. What an XRC_RECV QP has received stays: it belongs to the
// owners of the SRQs.
func (qp *QP) purge() {
	for _, cq := range qp.cqs {
		cq.purge(qp.QP)
	}
}

// PostSend lets fill put work requests in the send queue, which is locked meanwhile, and sends them. fill is not called,
// and transport.ErrState returned, in a state that takes no send requests (V-QPS-04).
func (qp *QP) PostSend(fill func(q *transport.SendQueue) error) error {
	q := qp.SQ
	q.Lock()
	if st := qp.State(); st == transport.Reset || st == transport.Init || st == transport.RTR {
		q.Unlock()
		return transport.ErrState
	}
	err := fill(q)
	q.Publish()
	q.Unlock()
	qp.shard.ring(qp.QP)
	return err
}

// PostedRecv must be called after receives were posted to the QP's own queue: in ERR they are flushed.
func (qp *QP) PostedRecv() {
	// The QP stores its new state before it empties the queue; the poster fills the queue before it reads the state.
	if qp.State() == transport.Err {
		qp.shard.ring(qp.QP)
	}
}

// Attach and Detach add the QP to a multicast group and remove it (V-MC-03, V-MC-05).
func (qp *QP) Attach(group netip.Addr) error {
	e := qp.shard.eng
	return e.mcast.attach(e.link, group, qp.Num())
}

// Detach removes the QP from a group.
func (qp *QP) Detach(group netip.Addr) error {
	e := qp.shard.eng
	return e.mcast.detach(e.link, group, qp.Num())
}

// Destroy removes the QP. Its work requests get no completion, and those in its CQs are removed (V-QPD-02, V-QPD-03).
func (qp *QP) Destroy() {
	s := qp.shard
	e := s.eng
	for _, g := range e.mcast.groupsOf(qp.Num()) {
		_ = e.mcast.detach(e.link, g, qp.Num())
	}
	s.hold()
	s.now = e.now()
	s.lastWords(qp.QP)
	qp.purge()
	_ = qp.QP.Modify(s.now, &transport.Attr{State: transport.Reset}, transport.MaskState)
	s.dropPeer(qp)
	s.loans.forget(qp.QP)
	s.wheel.cancel(qp.QP)
	s.answerDoors()
	qp.Sched.Dead = true
	addFields(&s.counters.gone, &qp.QP.Counters)
	e.qps.remove(qp.Num())
	s.release()
	for _, cq := range qp.cqs {
		cq.detach(s)
	}
	if qp.xrcd != nil {
		qp.xrcd.leave(s)
	}
}

// Raise passes an event of a QP up.
func (s *shard) Raise(qp *transport.QP, ev transport.Event) {
	q := qp.Owner.(*QP)
	if ev == transport.EventPathMig {
		s.setPeer(q, qp.PeerAddr(), false)
	}
	q.up.Event(ev)
}

// StateChanged passes a QP's own change of state up.
func (s *shard) StateChanged(qp *transport.QP, st transport.State) {
	qp.Owner.(*QP).up.StateChanged(st)
}

// failQPs moves the QPs of this shard that use an overflowed CQ to ERR (V-AE-12, V-AE-19).
func (s *shard) failQPs() {
	s.cqBroke.Store(false)
	for qp := range s.eng.qps.all() {
		if s.eng.shardOf(qp.Num) != s {
			continue
		}
		if !qp.Owner.(*QP).overrun() || qp.State() == transport.Reset {
			continue
		}
		qp.Fail(&transport.Failure{
			Status: transport.FatalErr, QPN: qp.Num, Reason: "a completion queue of the QP has overflowed",
		}, transport.EventQPFatal)
		s.runq.push(qp)
	}
}

// overrun tells whether a CQ of the QP has overflowed; that of an XRC_RECV QP is the CQ that its newest message completes into.
func (qp *QP) overrun() bool {
	if qp.xrcd != nil {
		qp.xrcd.failSRQs()
		srq := qp.XRCSRQ()
		return srq != nil && srq.CQ.(*CQ).broken.Load()
	}
	return slices.ContainsFunc(qp.cqs, func(cq *CQ) bool { return cq.broken.Load() })
}
