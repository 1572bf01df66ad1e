package engine

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Some links do not copy a batch if its memory stays unchanged until the receiver has read the packets (link.Lender).
// So batches of bulk data are filled into slots of such memory, in turn. All other batches are filled into the batch's
// own memory, which stays in the caches. A slot is used again when the peer has acknowledged all packets in it.
// Retransmissions are copied, since an acknowledgement may be that of the first transmission. Packets that are not read
// within loanTerm may be overwritten. The receiver then finds a wrong ICRC, as after corruption on the network.
//
// A receiver that has not read a packet sees the bytes that overwrite it. An acknowledgement does not prove that the
// packet was read: a hostile receiver can send it before. So lent pages hold packets of one connection only, all of
// which are sent to that receiver anyway. Before the slots are assigned to another connection, the link replaces the
// pages.
const (
	loanSlots = 30         // of txBytes: nearly a large page
	loanTerm  = int64(1e9) // ns
	// maxLoanSets is how many connections of a shard have slots at a time.
	maxLoanSets = 4
	// Slots are assigned to another connection if theirs has sent no bulk data for loanIdle, and at most once per
	// loanPause in a shard: new pages cost as much as some batches. The new pages are large at most once per
	// largePause, since one unread packet keeps a large page allocated.
	loanIdle   = int64(10e6) // ns
	loanPause  = int64(5e6)
	largePause = int64(10e9)
	// A batch is bulk data if it has at least so many packets and bytes, all of one QP.
	bulkPackets = 8
	bulkBytes   = txBytes / 2
)

// loan is a slot.
type loan struct {
	lent bool
	end  transport.Mark // the end of the packets in it
	at   int64
}

// loanSet is the slots of one connection.
type loanSet struct {
	mem   []byte
	of    transport.Connection // all bytes in the present pages of mem are its; zero: it has ended
	slots [loanSlots]loan
	next  int
	bulk  bool  // the connection's last batch was bulk data: the next one goes into a slot
	used  int64 // when the connection last sent bulk data
}

// loans are the slots of a shard.
type loans struct {
	own     []byte // memory of the batch's own
	sets    [maxLoanSets]*loanSet
	none    bool     // the link lends no memory, or no more
	set     *loanSet // the batch is filled into its slots; nil: into the own memory
	renewed int64    // when pages were last replaced
	larger  int64    // when pages were last replaced by large ones
}

func (l *loans) init(b *link.TxBatch) {
	l.own = b.Buf
	l.renewed, l.larger = -largePause, -largePause
}

// end gives the memory back.
func (l *loans) end(b *link.TxBatch) {
	*l = loans{own: l.own, none: true}
	b.Buf = l.own
}

// begin chooses the memory of an empty batch that qp is about to fill.
func (l *loans) begin(s *shard, qp *transport.QP) {
	if l.sets[0] == nil { // none was ever assigned
		return
	}
	l.set, s.tx.Buf = nil, l.own
	set := l.find(qp)
	if set == nil || !set.bulk || set.slots[set.next].taken(s.now) {
		return
	}
	at := set.next * txBytes
	l.set, s.tx.Buf = set, set.mem[at:at+txBytes:at+txBytes]
}

// only reports whether the batch has packets in a slot, so that no other QP may add to it.
func (l *loans) only(b *link.TxBatch) bool { return l.set != nil && b.Count() > 0 }

// send passes the batch to the link. It returns false if all slots are in use: the shard should process
// acknowledgements before it sends more.
func (s *shard) send() (more bool) {
	l := &s.loans
	qp, set := s.sole, l.set
	if set == nil && len(s.tx.Packets) == 0 { // all are in places of Direct
		s.port.Send(s.tx)
		return true
	}
	end, bulk := s.bulk()
	s.tx.Keep, s.tx.Kept = bulk && set != nil, false
	s.port.Send(s.tx)
	if s.tx.Kept {
		set.slots[set.next] = loan{true, end, s.now}
		set.next = (set.next + 1) % loanSlots
	}
	l.set, s.tx.Buf = nil, l.own
	if !bulk {
		if set != nil {
			set.bulk = false
		}
		return true
	}
	if set == nil {
		if set = l.assign(s, qp); set == nil {
			return true
		}
	}
	set.bulk, set.used = true, s.now
	return !set.slots[set.next].taken(s.now)
}

// find returns the slots of qp's present connection, nil if it has none.
func (l *loans) find(qp *transport.QP) *loanSet {
	for _, set := range l.sets {
		if set != nil && set.of.Of(qp) && set.of == qp.Connection() {
			return set
		}
	}
	return nil
}

// assign returns the slots of qp's connection. A connection without slots gets slots that were never used, or that
// another connection no longer uses; nil if there are none.
func (l *loans) assign(s *shard, qp *transport.QP) *loanSet {
	if set := l.find(qp); set != nil {
		return set
	}
	var old *loanSet
	for i, set := range l.sets {
		switch {
		case set == nil:
			if set = l.open(s); set != nil {
				l.sets[i], set.of = set, qp.Connection()
				return set
			}
		case set.mem == nil:
		case old == nil || set.used < old.used:
			old = set
		}
	}
	if old == nil || s.now-l.renewed < loanPause || old.of != (transport.Connection{}) && s.now-old.used < loanIdle {
		return nil
	}
	l.renew(s, old)
	if old.mem == nil {
		return nil
	}
	old.of = qp.Connection()
	return old
}

// open gets memory for slots; nil if there is none.
func (l *loans) open(s *shard) *loanSet {
	if l.none {
		return nil
	}
	if lender := s.port.Capabilities().Lender; lender != nil {
		if mem := lender.Lend(loanSlots * txBytes); mem != nil {
			return &loanSet{mem: mem}
		}
	}
	l.none = true
	return nil
}

// renew replaces the pages of slots. If that fails the slots have no memory.
func (l *loans) renew(s *shard, set *loanSet) {
	large := s.now-l.larger >= largePause
	l.renewed = s.now
	if large {
		l.larger = s.now
	}
	mem := set.mem
	*set = loanSet{}
	if s.port.Capabilities().Lender.Renew(mem, large) {
		set.mem = mem
	}
}

// forget ends the ownership of slots by a QP that is destroyed. Packets in them may still be unread.
func (l *loans) forget(qp *transport.QP) {
	for _, set := range l.sets {
		if set != nil && set.of.Of(qp) {
			*set = loanSet{mem: set.mem}
		}
	}
}

// taken reports whether a receiver may still read the slot.
func (o *loan) taken(now int64) bool {
	o.lent = o.lent && !o.end.Passed() && now-o.at <= loanTerm
	return o.lent
}

// bulk reports whether the batch is bulk data that is sent for the first time and will be acknowledged. end is the mark
// of its last packet.
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

// acknowledged reports whether packets of an opcode carry data and are acknowledged.
func acknowledged(op wire.Opcode) bool {
	return (op.Transport() == wire.RC || op.Transport() == wire.XRC) && (op.Is(wire.IsSend) || op.Is(wire.IsWrite))
}
