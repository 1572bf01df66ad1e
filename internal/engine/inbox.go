package engine

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
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
	s.pkt.Data, s.pkt.Body, s.pkt.Away = s.buf, nil, nil
	b.count.Store(int32(n + 1))
}

// drain delivers all packets. s is held.
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

// drops returns the number of packets dropped because the inbox was full.
func (b *inbox) drops() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
