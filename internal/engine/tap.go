package engine

import (
	"iter"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// SetTap shows every packet of the engine to a tap, which newTap creates for each shard. nil removes the taps. Before
// the first QP it has no effect.
func (e *Engine) SetTap(newTap func(shard int) link.Tap) {
	for i, s := range e.running() {
		s.hold()
		s.tap = nil
		if newTap != nil {
			s.tap = newTap(i)
		}
		s.tx.Tap = s.tap
		s.release()
	}
}

// QPs yields the QPs. QPs may be created and destroyed meanwhile.
func (e *Engine) QPs() iter.Seq[*QP] {
	return func(yield func(*QP) bool) {
		for qp := range e.qps.all() {
			if !yield(qp.Owner.(*QP)) {
				return
			}
		}
	}
}

// onTapped passes a packet to the QP and tells the tap the outcome, which is derived from the QP's counters.
func (s *shard) onTapped(qp *transport.QP, p *link.RxPacket) {
	before, state := qp.Counters, qp.State()
	qp.OnPacket(s.now, p)
	s.tap.Received(p, qp.Num, qp.MTU(), outcome(qp, &before, state))
}

// outcomes maps counters to the reason why a packet was not simply accepted.
var outcomes = []struct {
	of   func(c *transport.Events) uint64
	text string
}{
	{func(c *transport.Events) uint64 { return c.BadPKey }, "dropped: wrong P_Key"},
	{func(c *transport.Events) uint64 { return c.BadQKey }, "dropped: wrong Q_Key"},
	{func(c *transport.Events) uint64 { return c.BadSource }, "dropped: not from the QP's peer"},
	{func(c *transport.Events) uint64 { return c.BadState }, "dropped: not accepted in the QP's state"},
	{func(c *transport.Events) uint64 { return c.BadOpcode }, "dropped: opcode not for this QP"},
	{func(c *transport.Events) uint64 { return c.BadDuplicate },
		"dropped: duplicate of a request whose response is no longer kept"},
	{func(c *transport.Events) uint64 { return c.RecvDropped },
		"dropped: no receive posted, message too long or incomplete"},
	{func(c *transport.Events) uint64 { return c.DuplicateRequest }, "duplicate"},
	{func(c *transport.Events) uint64 { return c.OutOfSequence },
		"dropped: out of sequence, an earlier packet is missing"},
	{func(c *transport.Events) uint64 { return c.RNRNakSent }, "dropped: no receive posted, RNR NAK follows"},
	{func(c *transport.Events) uint64 { return c.RespLocalLengthError }, "refused: longer than the receive buffer"},
	{func(c *transport.Events) uint64 { return c.RespRemoteAccessErrs }, "refused: remote access error"},
	{func(c *transport.Events) uint64 { return c.PacketSeqErr }, "the peer reports a missing packet"},
	{func(c *transport.Events) uint64 { return c.ImpliedNakSeqErr }, "an earlier response is missing"},
	{func(c *transport.Events) uint64 { return c.RNRNakRcvd }, "the peer had no receive posted"},
}

// outcome returns "" if a packet was simply accepted.
func outcome(qp *transport.QP, before *transport.Events, state transport.State) (text string) {
	for i := range outcomes {
		if f := &outcomes[i]; f.of(&qp.Counters) != f.of(before) {
			text += "; " + f.text
		}
	}
	if now := qp.State(); now != state && now == transport.Err {
		text += "; the QP is in ERR now"
	}
	return text
}
