package engine

import (
	"iter"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// SetTap has every packet of the engine shown to a tap, which make makes for each shard; nil ends that. Nothing happens
// before the first QP.
func (e *Engine) SetTap(make func(shard int) link.Tap) {
	for i, s := range e.running() {
		s.hold()
		s.tap = nil
		if make != nil {
			s.tap = make(i)
		}
		s.tx.Tap = s.tap
		s.release()
	}
}

// QPs goes over the QPs. They may be made and destroyed meanwhile.
func (e *Engine) QPs() iter.Seq[*QP] {
	return func(yield func(*QP) bool) {
		for qp := range e.qps.all() {
			if !yield(qp.Owner.(*QP)) {
				return
			}
		}
	}
}

// onTapped has the QP handle a packet and tells the tap what became of it, which the QP's counters say.
func (s *shard) onTapped(qp *transport.QP, p *link.RxPacket) {
	before, state := qp.Counters, qp.State()
	qp.OnPacket(s.now, p)
	s.tap.Received(p, qp.Num, qp.MTU(), fate(qp, &before, state))
}

// fates are the counters that tell why a packet was not taken as it came, with what they mean.
var fates = []struct {
	of   func(c *transport.Counters) uint64
	text string
}{
	{func(c *transport.Counters) uint64 { return c.BadPKey }, "dropped: wrong P_Key"},
	{func(c *transport.Counters) uint64 { return c.BadQKey }, "dropped: wrong Q_Key"},
	{func(c *transport.Counters) uint64 { return c.BadSource }, "dropped: not from the QP's peer"},
	{func(c *transport.Counters) uint64 { return c.BadState }, "dropped: the QP's state takes no such packet"},
	{func(c *transport.Counters) uint64 { return c.BadOpcode }, "dropped: opcode not for this QP"},
	{func(c *transport.Counters) uint64 { return c.BadDuplicate }, "dropped: a copy of a request that cannot be answered again"},
	{func(c *transport.Counters) uint64 { return c.RecvDropped }, "dropped: no receive posted, message too long or incomplete"},
	{func(c *transport.Counters) uint64 { return c.DuplicateRequest }, "duplicate"},
	{func(c *transport.Counters) uint64 { return c.OutOfSequence }, "dropped: out of sequence, one before it is missing"},
	{func(c *transport.Counters) uint64 { return c.RNRNakSent }, "dropped: no receive posted, RNR NAK follows"},
	{func(c *transport.Counters) uint64 { return c.RespLocalLengthError }, "refused: longer than the receive buffer"},
	{func(c *transport.Counters) uint64 { return c.RespRemoteAccessErrs }, "refused: remote access error"},
	{func(c *transport.Counters) uint64 { return c.PacketSeqErr }, "the peer misses a packet"},
	{func(c *transport.Counters) uint64 { return c.ImpliedNakSeqErr }, "a response before it is missing"},
	{func(c *transport.Counters) uint64 { return c.RNRNakRcvd }, "the peer had no receive posted"},
}

// fate is empty if a packet was taken as it came.
func fate(qp *transport.QP, before *transport.Counters, state transport.State) (text string) {
	for i := range fates {
		if f := &fates[i]; f.of(&qp.Counters) != f.of(before) {
			text += "; " + f.text
		}
	}
	if now := qp.State(); now != state && now == transport.Err {
		text += "; the QP is in ERR now"
	}
	return text
}
