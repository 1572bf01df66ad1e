package shm

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ring"
)

// A sender numbers the requests that it places in a ring as counted ones, and the receiver numbers those that it takes
// out. It tells which of them it acknowledges by their numbers: one record of the ring of the other way acknowledges
// requests of many QPs.
//
//	id     8 bytes  of the ring set of the requests; its sender has chosen it, and no other process knows it
//	first  8 bytes  the number of a request
//	mask   8 bytes  bit i: request first + i is acknowledged
//
// Requests that it passes over are acknowledged by ACK packets, or not at all.
const (
	countsLen = 24
	// maxCounted is the number of counted requests of a ring that the receiver has not told of. Further requests are
	// not counted.
	maxCounted = 256
)

// counted is what the sender knows of the counted requests of a ring. The sending port owns it.
type counted struct {
	acks   *[maxCounted]link.Ack // nil until the first request
	placed uint64                // the number of the next request
	done   uint64                // the first request that the receiver has not told of
	life   uint32                // the connection of the last request
	turns  uint32                // further requests of it that are counted
}

// PlaceCounted is Place for a request that its receiver may count; see link.Direct.
func (p *port) PlaceCounted(path *link.Path, qpn uint32, n int, a link.Ack) (b []byte, mine bool) {
	to := p.routeOf(path, qpn).ring(p.index, qpn)
	switch {
	case to == nil:
		return p.place(path, qpn, n, kindPacket, 0)
	case !to.counted.useful(a.Life) || n > smallPacket:
		if b = to.placeLine(path, n, kindPacket); b == nil {
			return p.place(path, qpn, n, kindPacket, 0)
		}
		p.placed(to, n)
		return b, true
	}
	if b = to.placeLine(path, n, kindCounted); b == nil {
		var lost bool
		switch b, lost = to.place(path, n, kindCounted); {
		case lost:
			return p.lose(n), true
		case b == nil:
			return nil, true
		}
	}
	c := &to.counted
	if c.acks == nil {
		c.acks = new([maxCounted]link.Ack)
		if !slices.ContainsFunc(p.counting, func(c counting) bool { return c.rings == to.rings }) {
			p.counting = append(p.counting, counting{rings: to.rings})
		}
	}
	c.acks[c.placed%maxCounted] = a
	c.placed++
	p.placed(to, n)
	return b, true
}

// useful reports whether a request of a QP is to be counted: if not too many are under way, and requests of several QPs
// are sent in turn. To one QP, the receiver sends one ACK packet for all requests of a batch anyway.
func (c *counted) useful(life uint32) bool {
	switch {
	case life != c.life:
		c.life, c.turns = life, mixedTurns
	case c.turns == 0:
		return false
	default:
		c.turns--
	}
	return c.placed-c.done < maxCounted
}

// mixedTurns is the number of requests of one QP after which no more are counted until another one sends.
const mixedTurns = 16

// A counting is a ring set with counted requests.
type counting struct {
	rings *txRings
	ended bool // known before the last Recv, which may have found records of the receiver
}

// dropCounting forgets the ring sets that have ended, once a Recv has found nothing since.
func (p *port) dropCounting() {
	left := p.counting[:0]
	for _, c := range p.counting {
		if !c.ended {
			c.ended = c.rings.end.Load() != ringsOpen
			left = append(left, c)
		}
	}
	clear(p.counting[len(left):])
	p.counting = left
}

// takeCounts takes a record that tells of counted requests, and appends their acknowledgements to the batch.
func (p *port) takeCounts(b *link.RxBatch, r *rxRing, shared []byte) error {
	if len(shared) != countsLen {
		return errInvalidRecord
	}
	c := p.countedOf(r, binary.LittleEndian.Uint64(shared))
	if c == nil {
		return nil // the ring set has ended
	}
	first, mask := binary.LittleEndian.Uint64(shared[8:]), binary.LittleEndian.Uint64(shared[16:])
	switch n := uint64(bits.Len64(mask)); {
	case first > c.placed, n > c.placed-first:
		return errInvalidRecord
	case first < c.done: // out of a ring set that has ended
		return nil
	}
	for c.done < first {
		c.forget()
	}
	for ; mask != 0; mask >>= 1 {
		if mask&1 != 0 {
			b.Acks = append(b.Acks, c.acks[c.done%maxCounted])
		}
		c.forget()
	}
	return nil
}

// forget forgets the oldest request: a QP that is destroyed can be collected then.
func (c *counted) forget() {
	c.acks[c.done%maxCounted].From = nil
	c.done++
}

// countedOf returns the requests that a record out of r tells of: those of the ring the other way of the ring set id.
func (p *port) countedOf(r *rxRing, id uint64) *counted {
	if o := r.count.other; o != nil && o.rings.id == id {
		return &o.counted
	}
	for _, l := range p.counting {
		if l.rings.id == id && r.from < l.rings.m {
			o := l.rings.tx[p.index][r.from]
			r.count.other = o
			return &o.counted
		}
	}
	return nil
}

// counts is what the receiver knows of the counted requests of a ring. The receiving port owns it.
type counts struct {
	taken uint64     // the number of the next request
	told  uint64     // the first request that the sender was not told of
	peer  netip.Addr // of the last request that was to be acknowledged: where its QP is; not valid: none
	qpn   uint32     // that QP

	to    *txRing // where the last record is
	at    uint64  // its position
	data  []byte  // its content
	first uint64  // the first request of its mask
	mask  uint64

	other *txRing // of countedOf
}

// A mark is a counted request of a batch.
type mark struct {
	port   *port
	ring   *rxRing
	number uint64
}

// takeCounted is take for a counted request.
func (p *port) takeCounted(b *link.RxBatch, m *buffers, r *rxRing, f *flow, shared []byte) {
	mk, n := &m.marks[m.count], len(b.Packets)
	mk.port, mk.ring, mk.number = p, r, r.count.taken
	m.count++
	r.count.taken++
	if p.take(b, m, f, shared, smallPacket); len(b.Packets) > n {
		b.Packets[n].Counter = mk
	}
}

// skip counts the requests of a record that is dropped.
func (c *counts) skip(kind ring.Kind) {
	switch kind {
	case kindCounted:
		c.taken++
	case kindCountedPair:
		c.taken += 2
	}
}

// Count acknowledges the request; see link.Counter.
func (mk *mark) Count(path *link.Path, qpn uint32) bool {
	p, c := mk.port, &mk.ring.count
	to := p.routeOf(path, qpn).ring(p.index, qpn)
	if to == nil || to != c.to || !to.prod.Waits(c.at) || mk.number-c.first >= 64 {
		if c.peer, c.qpn = path.Dst, qpn; to == nil || !p.tell(mk.ring, to, mk.number) {
			return false
		}
	}
	c.mask |= 1 << (mk.number - c.first)
	c.told = mk.number + 1
	binary.LittleEndian.PutUint64(c.data[16:], c.mask)
	return true
}

// tell begins a record about the requests out of r from number first on. It returns false if there is no room.
func (p *port) tell(r *rxRing, to *txRing, first uint64) bool {
	data := to.prod.Put(kindCounts, 0, countsLen)
	if data == nil {
		return false
	}
	to.single = 0
	p.publishes(to)
	c := &r.count
	c.to, c.at, c.data, c.first, c.mask, c.told = to, to.prod.Position(), data, first, 0, first
	binary.LittleEndian.PutUint64(data, r.rings.id)
	binary.LittleEndian.PutUint64(data[8:], first)
	binary.LittleEndian.PutUint64(data[16:], 0)
	return true
}

// tellSkipped tells the sender of requests that are not acknowledged by counting, if there are many: further ones are
// not counted until it knows.
func (p *port) tellSkipped(r *rxRing) {
	c := &r.count
	if c.taken-c.told < maxCounted/2 || !c.peer.IsValid() {
		return
	}
	to := p.routeTo(routeKey{c.peer, c.qpn}).ring(p.index, c.qpn)
	if to == nil || !p.tell(r, to, c.taken) {
		return
	}
	to.publish()
}
