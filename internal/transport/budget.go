package transport

import "time"

// A Budget bounds the bytes in flight of all QPs of one shard that send to one peer. It is accessed only while that
// shard is held. A QP with nothing in flight may always send one packet, so no QP waits for the acknowledgements of
// others.
//
// A peer that processes packets more slowly than they arrive queues them, and it need not serve QPs in turn: rxe
// serves one QP as long as that QP has packets, while the ACK timers of the others run. The budget therefore starts
// small and grows with acknowledged bytes until an acknowledgement is late, which means it took longer than an eighth
// of the QP's ACK timeout. A late acknowledgement reduces the budget by a quarter, an ACK timeout halves it, at most
// once for packets sent before the last reduction. The peer then drains its queue long before a timer expires.
type Budget struct {
	Limit  int // upper bound in bytes; each packet counts its payload plus packetCost
	size   int // current budget in bytes; 0 before the first packet
	flight int
	pipe   int   // bytes that the network holds: Limit is the bound of the others
	least  int64 // shortest round-trip time, ns; 0: no sample yet
	full   bool  // an acknowledgement was late: grow slowly
	shrunk int64 // time of the last reduction
}

const (
	firstBudget = 256 << 10
	leastBudget = 32 << 10
	// leastLate is the shortest round trip that counts as late, whatever the ACK timeout: a busy host can delay
	// an answer by this much.
	leastLate = time.Millisecond
	lateShare = 8 // of the ACK timeout
)

func (b *Budget) room() int {
	if b.size == 0 {
		b.size = min(b.Limit, firstBudget)
	}
	return min(b.size, b.Limit+b.pipe)
}

// grow enlarges the budget after cost bytes were acknowledged. It doubles per round trip until an acknowledgement is
// late, and then grows by a quarter per round trip.
func (b *Budget) grow(cost int) {
	if b.full {
		cost /= 4
	}
	b.size = min(b.Limit+b.pipe, b.room()+cost)
}

// late reduces the budget because a packet sent at time sent was acknowledged late or, if silent, not at all.
func (b *Budget) late(now, sent int64, silent bool) {
	if sent < b.shrunk {
		return // sent before the last reduction
	}
	size := b.room()
	if silent {
		size /= 2
	} else {
		size -= size / 4
	}
	b.size, b.full, b.shrunk = min(b.Limit+b.pipe, max(size, leastBudget)), true, now
}
