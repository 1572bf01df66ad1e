package engine

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/prefetch"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// QPUpcalls is how a QP reports to the layer above. The upcalls must not block or call back.
type QPUpcalls interface {
	Event(ev transport.Event)
	StateChanged(s transport.State)
}

// QPInit holds the parameters of a QP.
type QPInit struct {
	Type      transport.Type
	Num       uint32 // 0: chosen by the engine; 1 to 15: fixed number; of a guest that of its home
	PD        uint32
	SigAll    bool
	PortMTU   func() int           // UD: the longest message now, bytes
	SrcNum    uint32               // UD: the source QPN of datagrams; 0: Num
	IPOffload *transport.IPOffload // UD; nil: none
	// Own reports whether an address is the device's. With it a UD QP does not receive its own multicast.
	Own            func(netip.Addr) bool
	SRQ            *transport.RecvQueue // nil: OwnRQ of the QP
	SendCQ, RecvCQ *CQ                  // nil if an XRC QP has none
	XRCD           *XRCD                // of an XRC_RECV QP
	Relay          transport.Relay      // of an XRC_RECV QP in a shared domain
	Guest          bool                 // the QP is at home in another process; see transport.Relay
	Regions        *mr.Table
	Up             QPUpcalls
	User           prefetch.Target // the program's object
}

// A QP is a queue pair and its place in the engine.
type QP struct {
	// Each message uses the fields up to transport.QP, and the parts of that which it names.
	shard        *shard
	user         prefetch.Target // QPInit.User
	follower     atomic.Pointer[QP]
	followerUser atomic.Pointer[byte]

	// OwnSQ and OwnRQ are the queues that the QP shares with no other one. They are here, and not behind pointers, so
	// that they are near the rest. The caller of CreateQP sets those that the QP has.
	OwnSQ transport.SendQueue
	OwnRQ transport.RecvQueue

	transport.QP

	up   QPUpcalls
	cqs  []*CQ                 // distinct CQs of its work requests; the receive CQ first
	two  [2]*CQ                // memory of cqs
	xrcd *XRCD                 // of an XRC_RECV QP
	own  func(netip.Addr) bool // QPInit.Own
	peer netip.Addr            // the peer whose budget it shares; the shard's
}

// CreateQP makes a zero QP one in RESET. The QP is part of an object of the caller, so that the memory of both is in
// one place. The first call opens the link and returns its error.
func (e *Engine) CreateQP(qp *QP, in QPInit) error {
	if err := e.start(); err != nil {
		return err
	}
	if in.Guest && e.spans == nil {
		return ErrNotShared
	}
	num, err := e.reserveQPN(&in)
	if err != nil {
		return err
	}
	s := e.shardOf(num)
	qp.shard, qp.up, qp.xrcd, qp.own = s, in.Up, in.XRCD, in.Own
	qp.cqs = in.cqs(qp.two[:0])
	qp.user = in.User
	c := transport.Config{
		Num: num, Type: in.Type, PD: in.PD, SigAll: in.SigAll, PortMTU: in.PortMTU, SrcNum: in.SrcNum, RQ: in.SRQ,
		IPOffload: in.IPOffload, SendCQ: in.SendCQ, RecvCQ: in.RecvCQ, Regions: in.Regions,
		Ports: e.ports, Host: s, Owner: qp,
		Scratch: &s.scratch,
	}
	switch {
	case in.Type == transport.XRCRecv: // has neither
	case in.Type == transport.XRCSend, in.SRQ != nil:
		c.SQ = &qp.OwnSQ
	default:
		c.SQ, c.RQ = &qp.OwnSQ, &qp.OwnRQ
	}
	if qp.xrcd != nil {
		c.XRCD, c.Relay, c.Guest = qp.xrcd.XRCD, in.Relay, in.Guest
		qp.xrcd.enter(s)
	}
	qp.Init(c)
	for _, cq := range qp.cqs {
		cq.attach(s)
	}
	e.qps.put(&qp.QP)
	return nil
}

// cqs appends the distinct CQs of a QP to list.
func (in *QPInit) cqs(list []*CQ) []*CQ {
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
	var some [3]*CQ
	cqs := in.cqs(some[:0])
	if in.XRCD != nil {
		if cq := in.XRCD.home(); cq != nil {
			cqs = append(cqs, cq)
		}
	}
	home := e.homeOf(cqs, in.Type)
	if e.spans != nil {
		return e.qps.reserveIn(&e.spans[home])
	}
	return e.qps.reserve(home, uint32(len(e.shards)))
}

// Num returns the QPN.
func (qp *QP) Num() uint32 { return qp.QP.Num }

// Modify applies attributes and makes the transition to a.State with the shard held. It returns transport.ErrMoved if
// the QP has changed its state itself and the transition no longer exists, and ErrCQOverrun if the QP would leave
// RESET although a CQ of it has overflowed.
func (qp *QP) Modify(a *transport.Attr, m transport.Mask) error {
	s := qp.shard
	s.hold()
	defer s.release()
	if !qp.State().CanMove(a.State) {
		return transport.ErrMoved
	}
	if a.State == transport.Init && qp.State() == transport.Reset && qp.overrun() {
		return ErrCQOverrun // failQPs skips QPs in RESET
	}
	s.now = s.eng.now()
	if m&transport.MaskState != 0 && (a.State == transport.Reset || a.State == transport.Err) {
		s.finish(qp)
	}
	if m&transport.MaskState != 0 && a.State == transport.Reset {
		qp.purge()
	}
	full := &s.attr // no pointer into it is kept, which the compiler cannot know
	*full = *a
	near := qp.prepare(full, m)
	err := qp.QP.Modify(s.now, full, m)
	switch {
	case a.State == transport.Reset:
		s.dropPeer(qp)
	case err == nil && m&transport.MaskAV != 0:
		qp.Sched.DeathReported = false
		s.setPeer(qp, full.Path.Dst, near)
	}
	s.runq.push(&qp.QP)
	s.serve()
	return err
}

// Steer delivers a datagram that a flow rule steers to a UD QP, or the frame of st if p is nil. It copies both, and
// does not block. It is safe for concurrent use.
func (qp *QP) Steer(p *link.RxPacket, st *transport.Steered) {
	s := qp.shard
	s.inbox.putSteered(qp.Num(), p, st)
	if s.tryHold() {
		s.now = s.eng.now()
		s.serve()
		s.release()
	}
}

// Resize changes the room of the send queue and of the QP's own receive queue. 0 keeps a queue as it is. It fails, and
// changes nothing, if a queue holds more requests (transport.ErrQueueFull) or has a fixed size
// (transport.ErrFixedSize).
func (qp *QP) Resize(send, recv int) error {
	s := qp.shard
	s.hold()
	defer s.release()
	sq, rq := qp.SQ, qp.RQ
	was := sq.Cap()
	if send > 0 {
		if err := sq.Resize(send); err != nil {
			return fmt.Errorf("send queue: %w", err)
		}
	}
	if recv == 0 || rq == nil || rq.Shared() {
		return nil
	}
	if err := rq.Resize(recv, 0); err != nil {
		if send > 0 {
			err = errors.Join(err, sq.Resize(was))
		}
		return fmt.Errorf("receive queue: %w", err)
	}
	return nil
}

// prepare completes new paths: the source port, and what the link knows about the peer. It reports whether the
// primary path leads to a process of this host.
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

// Query returns the attributes, and whether the QP is in SQD and not drained yet. What was posted before is processed
// before Query returns, as far as the windows and the link permit: EndPost leaves that to another goroutine if one
// holds the shard, which comes too late if the process ends at once.
func (qp *QP) Query() (a transport.Attr, draining bool) {
	s := qp.shard
	s.hold()
	defer s.release()
	s.now = s.eng.now()
	s.serve()
	return qp.QP.Attr(), qp.QP.Draining()
}

// purge removes the QP's completions from its CQs. The shard is held. Completions of receives of an XRC_RECV QP stay:
// they belong to the SRQs.
func (qp *QP) purge() {
	for _, cq := range qp.cqs {
		cq.purge(&qp.QP)
	}
}

// SetKeepAlive makes the QP check its peer after each time idle without a packet; see transport.QP.SetKeepAlive.
func (qp *QP) SetKeepAlive(idle time.Duration) {
	s := qp.shard
	s.hold()
	defer s.release()
	s.now = s.eng.now()
	qp.QP.SetKeepAlive(s.now, idle)
	s.runq.push(&qp.QP) // sets the timer
	s.serve()
}

// SetRate limits the rate of the QP's packets; see transport.QP.SetRate.
func (qp *QP) SetRate(rate uint64, burst int64) {
	s := qp.shard
	s.hold()
	defer s.release()
	s.now = s.eng.now()
	qp.QP.SetRate(rate, burst)
	s.runq.push(&qp.QP)
	s.serve()
}

// PostedRecv must be called after receives were posted to the QP's own queue: in ERR they are flushed.
func (qp *QP) PostedRecv() {
	// The QP stores its new state before it empties the queue; the poster adds to the queue before it reads the
	// state.
	if qp.State() == transport.Err {
		qp.shard.ring(&qp.QP)
	}
}

// Attach adds the QP to a multicast group (V-MC-03, V-MC-05).
func (qp *QP) Attach(group netip.Addr) error {
	e := qp.shard.eng
	return e.mcast.attach(e.link, group, member{qp.Num(), cmp.Or(qp.SrcNum, qp.Num()), qp.own})
}

// Detach removes the QP from a group.
func (qp *QP) Detach(group netip.Addr) error {
	e := qp.shard.eng
	return e.mcast.detach(e.link, group, qp.Num())
}

// Destroy removes the QP. Its work requests do not complete, and its completions are removed from the CQs (V-QPD-02,
// V-QPD-03).
func (qp *QP) Destroy() {
	s := qp.shard
	e := s.eng
	for _, g := range e.mcast.groupsOf(qp.Num()) {
		_ = e.mcast.detach(e.link, g, qp.Num())
	}
	s.hold()
	s.now = e.now()
	s.finish(qp)
	qp.purge()
	_ = qp.QP.Modify(s.now, &transport.Attr{State: transport.Reset}, transport.MaskState)
	s.dropPeer(qp)
	s.loans.forget(&qp.QP)
	s.wheel.cancel(&qp.QP)
	s.answerDoors()
	qp.Sched.Dead = true
	s.unfollow(qp)
	sum := qp.QP.Totals()
	AddCounters(&s.counters.gone, &sum)
	e.qps.remove(qp.Num())
	if s.last == &qp.QP {
		s.last = nil
	}
	s.release()
	for _, cq := range qp.cqs {
		cq.detach(s)
	}
	if qp.xrcd != nil {
		qp.xrcd.leave(s)
	}
}

// Raise implements transport.Host.
func (s *shard) Raise(qp *transport.QP, ev transport.Event) {
	q := qp.Owner.(*QP)
	if ev == transport.EventPathMig {
		s.setPeer(q, qp.PeerAddr(), false)
	}
	q.up.Event(ev)
}

// PeerSilent implements transport.SilenceHost.
func (s *shard) PeerSilent(qp *transport.QP) {
	if f := s.eng.peerDied; f != nil {
		f(qp.Num, qp.Attr().DestQPN, qp.Path().Dst, true)
	}
}

// StateChanged implements transport.Host.
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

// overrun reports whether a CQ of the QP has overflowed. For an XRC_RECV QP that is the CQ of its latest message.
func (qp *QP) overrun() bool {
	if qp.xrcd != nil {
		qp.xrcd.failSRQs()
		srq := qp.XRCSRQ()
		return srq != nil && srq.CQ.(*CQ).broken.Load()
	}
	return slices.ContainsFunc(qp.cqs, func(cq *CQ) bool { return cq.broken.Load() })
}
