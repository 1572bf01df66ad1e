package transport

import "time"

// A Budget bounds the bytes in flight of several QPs together: those of one shard that send to one peer. It is touched
// only with that shard held. A QP with nothing in flight may always send one packet, so that none waits for the others'
// acknowledgements.
//
// A peer that takes packets slower than they come keeps them waiting, and not in turn: rxe works for one QP as long as that one
// has packets, while the others' acknowledgement timers run. So the budget begins small and grows with what is acknowledged, until
// an acknowledgement is late: it took an eighth of the QP's ACK timeout. A late one takes a quarter away, silence a half, at most
// once for what was sent before. What then waits at the peer is worked off long before a timer ends.
type Budget struct {
	Limit  int // bytes, the most there may be; each packet counts packetCost more than its payload
	size   int // bytes now; 0 before the first packet
	flight int
	full   bool  // has been late: grows slowly
	shrunk int64 // when it last became smaller
}

const (
	firstBudget = 256 << 10
	leastBudget = 32 << 10
	// leastLate is the shortest time after which an acknowledgement is late, whatever the ACK timeout: a computer may be as busy as that.
	leastLate = time.Millisecond
	lateShare = 8 // of the ACK timeout
)

func (b *Budget) room() int {
	if b.size == 0 {
		b.size = min(b.Limit, firstBudget)
	}
	return b.size
}

// grow makes room after bytes were acknowledged: twice as much per round trip at first, a quarter more later.
func (b *Budget) grow(cost int) {
	if b.full {
		cost /= 4
	}
	b.size = min(b.Limit, b.room()+cost)
}

// late hears that something sent at that time was not acknowledged in good time, or not at all.
func (b *Budget) late(now, sent int64, silent bool) {
	if sent < b.shrunk {
		return // it left before the budget was made smaller
	}
	size := b.room()
	if silent {
		size /= 2
	} else {
		size -= size / 4
	}
	b.size, b.full, b.shrunk = min(b.Limit, max(size, leastBudget)), true, now
}
