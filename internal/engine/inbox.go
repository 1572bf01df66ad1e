package engine

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// inboxSize bounds the packets that wait for another shard. Further packets are dropped, as by a full socket.
const inboxSize = 512

// inbox holds packets that arrived at another shard's port. Its buffers are allocated on first use, because most
// links deliver most packets to the right shard.
type inbox struct {
	count atomic.Int32

	mu sync.Mutex
	// +checklocks:mu
	slots []inboxSlot
	// +checklocks:mu
	dropped uint64

	spare []inboxSlot // the holder's; drain exchanges it for slots
}

type inboxSlot struct {
	qpn     uint32
	pkt     link.RxPacket
	steered transport.Steered // if isSteered
	buf     []byte

	isSteered bool
}

func (b *inbox) empty() bool { return b.count.Load() == 0 }

// put copies a packet for QP qpn.
func (b *inbox) put(qpn uint32, p *link.RxPacket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.slot(qpn); s != nil {
		s.take(p)
	}
}

// putSteered copies a datagram for QP qpn, or if p is nil a frame.
func (b *inbox) putSteered(qpn uint32, p *link.RxPacket, st *transport.Steered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slot(qpn)
	if s == nil {
		return
	}
	s.steered, s.isSteered = *st, true
	if p != nil {
		s.take(p)
		return
	}
	s.buf = append(s.buf[:0], st.Frame...)
	s.steered.Frame, s.pkt = s.buf, link.RxPacket{}
}

// slot returns a new slot, nil if there is none.
//
// +checklocks:b.mu
func (b *inbox) slot(qpn uint32) *inboxSlot {
	n := len(b.slots)
	if n == inboxSize {
		b.dropped++
		return nil
	}
	if n < cap(b.slots) {
		b.slots = b.slots[:n+1]
	} else {
		b.slots = append(b.slots, inboxSlot{})
	}
	s := &b.slots[n]
	s.qpn, s.isSteered = qpn, false
	b.count.Store(int32(n + 1))
	return s
}

// take copies a packet. If its payload was no longer valid when it was copied, the QP drops it by its P_Key. Nothing of
// the sender's memory is left, which the link may unmap before the packet is delivered.
func (s *inboxSlot) take(p *link.RxPacket) {
	s.pkt = *p
	if s.buf = p.Append(s.buf[:0]); p.Epoch.Over() {
		wire.BTH(s.buf).SetPKey(0)
	}
	s.pkt.Data, s.pkt.Body, s.pkt.Away, s.pkt.Counter, s.pkt.Epoch = s.buf, nil, nil, nil, link.Epoch{}
}

// drain delivers all packets. s is held.
func (b *inbox) drain(s *shard) {
	if !b.empty() {
		b.deliver(s)
	}
}

// deliver is apart so that drain is inlined.
func (b *inbox) deliver(s *shard) {
	b.mu.Lock()
	got := b.slots
	b.slots = b.spare[:0]
	b.count.Store(0)
	b.mu.Unlock()
	for i := range got {
		if m := &got[i]; m.isSteered {
			s.deliverSteered(m)
		} else {
			s.deliverTo(m.qpn, &m.pkt)
		}
	}
	b.spare = got
}

// drops returns the number of packets dropped because the inbox was full.
func (b *inbox) drops() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
