package engine

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
)

// inboxSize bounds the packets that wait for another shard; what is beyond is dropped, as by a full socket.
const inboxSize = 512

// inbox takes the packets that arrived at another shard's port. Its buffers are made when they are first used, since
// most links deliver most packets to the right shard.
type inbox struct {
	count atomic.Int32

	mu      sync.Mutex
	slots   []inboxSlot
	dropped uint64

	spare []inboxSlot // the holder's: what drain exchanges slots for
}

type inboxSlot struct {
	qpn uint32
	pkt link.RxPacket
	buf []byte
}

func (b *inbox) empty() bool { return b.count.Load() == 0 }

// put copies a packet for QP qpn.
func (b *inbox) put(qpn uint32, p *link.RxPacket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.slots)
	if n == inboxSize {
		b.dropped++
		return
	}
	if n < cap(b.slots) {
		b.slots = b.slots[:n+1]
	} else {
		b.slots = append(b.slots, inboxSlot{})
	}
	s := &b.slots[n]
	s.qpn, s.pkt = qpn, *p
	s.buf = p.Append(s.buf[:0])
	s.pkt.Data, s.pkt.Body = s.buf, nil
	b.count.Store(int32(n + 1))
}

// drain hands every packet to its QP. s is held.
func (b *inbox) drain(s *shard) {
	if b.empty() {
		return
	}
	b.mu.Lock()
	got := b.slots
	b.slots = b.spare[:0]
	b.count.Store(0)
	b.mu.Unlock()
	for i := range got {
		s.deliverTo(got[i].qpn, &got[i].pkt)
	}
	b.spare = got
}

// drops counts the packets that found the inbox full.
func (b *inbox) drops() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
