package engine

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Some links need not copy what they send if its memory keeps its content while it is on its way (link.Lender). So batches of bulk data are filled
// into slots of such memory, in turn, and all others into memory of the batch's own, which stays in the caches. A slot is used again when the peer has
// acknowledged everything in it. A packet that is sent again is copied, since its acknowledgement may be that of the first one. What is on its way for
// longer than loanTerm, because nobody takes it, may be overwritten; that is like damage on the network, which the ICRC finds.
const (
	loanSlots = 30         // of txBytes: nearly a large page
	loanTerm  = int64(1e9) // ns
	// Bulk data are so many packets and bytes of one QP.
	bulkPackets = 8
	bulkBytes   = txBytes / 2
)

// loan is a slot.
type loan struct {
	lent bool
	end  transport.Mark // of what lies in it
	at   int64
}

// loans are the slots of a shard.
type loans struct {
	own   []byte // memory of the batch's own
	asked bool
	mem   []byte // of the slots; nil if the link has none
	slots [loanSlots]loan
	next  int
	slot  *loan // that the batch is filled into; nil: into its own memory
}

func (l *loans) init(b *link.TxBatch) { l.own = b.Buf }

// end gives the memory back.
func (l *loans) end(b *link.TxBatch) {
	*l = loans{own: l.own, asked: true}
	b.Buf = l.own
}

// send hands the batch to the link. It tells whether to go on: not if acknowledgements should be looked for first, since all slots are taken.
func (s *shard) send() (more bool) {
	l := &s.loans
	end, bulk := s.bulk()
	s.tx.Keep, s.tx.Kept = bulk && l.slot != nil, false
	s.port.Send(s.tx)
	if s.tx.Kept {
		*l.slot = loan{true, end, s.now}
		l.next = (l.next + 1) % loanSlots
	}
	switch {
	case !bulk:
		l.slot, s.tx.Buf = nil, l.own
	case l.slot == nil || s.tx.Kept:
		l.advance(s)
		return l.mem == nil || l.slot != nil
	}
	return true
}

// advance has the next batch filled into the next slot, if that is free.
func (l *loans) advance(s *shard) {
	if !l.asked {
		l.asked = true
		l.mem = link.Lend(s.port, loanSlots, txBytes)
	}
	l.slot, s.tx.Buf = nil, l.own
	if l.mem == nil || l.slots[l.next].taken(s.now) {
		return
	}
	at := l.next * txBytes
	l.slot, s.tx.Buf = &l.slots[l.next], l.mem[at:at+txBytes:at+txBytes]
}

// forget lets go of a QP that is destroyed. What it has sent may still be on its way.
func (l *loans) forget(qp *transport.QP) {
	for i := range l.slots {
		if l.slots[i].end.Of(qp) {
			l.slots[i].end = transport.Mark{}
		}
	}
}

// taken tells whether what lies in the slot may still be read.
func (o *loan) taken(now int64) bool {
	o.lent = o.lent && !o.end.Passed() && now-o.at <= loanTerm
	return o.lent
}

// bulk tells whether the batch is bulk data that is sent for the first time and will be acknowledged, and where it ends.
func (s *shard) bulk() (end transport.Mark, ok bool) {
	n := len(s.tx.Packets)
	if s.sole == nil || n < bulkPackets || s.sole.Counters.RetransmitPackets != s.resent {
		return end, false
	}
	last := &s.tx.Packets[n-1]
	if last.Off+last.Len < bulkBytes {
		return end, false
	}
	for i := range n {
		if !acknowledged(wire.BTH(s.tx.Bytes(i)).Opcode()) {
			return end, false
		}
	}
	return s.sole.MarkOf(wire.BTH(s.tx.Bytes(n - 1)).PSN()), true
}

// acknowledged tells whether packets of an opcode carry data and are acknowledged.
func acknowledged(op wire.Opcode) bool {
	return (op.Transport() == wire.RC || op.Transport() == wire.XRC) && (op.Is(wire.IsSend) || op.Is(wire.IsWrite))
}
