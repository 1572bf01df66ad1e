package transport

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mr"
)

// cursor is a position in the bytes that a work request's SGEs name. It is kept from packet to packet.
type cursor struct {
	wqe uint32 // index of the work request
	pos uint32 // bytes before the position
	sge uint32 // current SGE
	off uint32 // offset in that SGE
}

// seek moves the cursor to byte pos of work request wqe, unless it is there already.
func (c *cursor) seek(sges []SGE, wqe, pos uint32) {
	if c.wqe == wqe && c.pos == pos {
		return
	}
	c.wqe, c.pos, c.sge, c.off = wqe, pos, 0, pos
	for int(c.sge) < len(sges) && c.off >= sges[c.sge].Length {
		c.off -= sges[c.sge].Length
		c.sge++
	}
}

// next returns at most n bytes of the current SGE and advances past them. At least one byte must be left.
func (c *cursor) next(sges []SGE, n uint32) (s *SGE, addr uint64, take uint32) {
	for c.off == sges[c.sge].Length {
		c.sge++
		c.off = 0
	}
	s = &sges[c.sge]
	addr, take = s.Addr+uint64(c.off), min(n, s.Length-c.off)
	c.off += take
	return s, addr, take
}

// nowhere is the pos of a cursor that must seek before its next use.
const nowhere = ^uint32(0)

// gather stores the n bytes of w at pos in r.pieces. If they are not readable, it rejects w and returns false. The
// caller sets from.pos once the packet is allocated; until then from.pos is nowhere.
func (r *requester) gather(now int64, w *SendWQE, pos, n uint32) bool {
	r.pieces = r.pieces[:0]
	if w.Flags&Inline != 0 {
		r.pieces = append(r.pieces, w.Inline[pos:pos+n])
		r.from.wqe = r.cur // sendData advances pos; the cursor must not stay at another request
		return true
	}
	c := &r.from
	c.seek(w.SGEs, r.cur, pos)
	c.pos = nowhere
	for n > 0 {
		s, addr, take := c.next(w.SGEs, n)
		b, err := r.qp.Regions.Check(s.LKey, addr, uint64(take), r.qp.PD, 0)
		if err != nil {
			r.reject(now, w, LocProtErr, describe(w, s, err))
			return false
		}
		r.pieces = append(r.pieces, b)
		n -= take
	}
	return true
}

// scatter writes data to the SGEs of w, the work request at head, from byte pos on. It returns the reason if it
// cannot, or "".
func (r *requester) scatter(w *SendWQE, pos uint32, data payload) string {
	c := &r.to
	c.seek(w.SGEs, r.head, pos)
	for at, n := 0, data.len(); at < n; {
		s, addr, take := c.next(w.SGEs, uint32(n-at))
		b, err := r.qp.Regions.Check(s.LKey, addr, uint64(take), r.qp.PD, mr.LocalWrite)
		if err != nil {
			return describe(w, s, err)
		}
		if !data.copy(b, at) {
			c.pos = nowhere
			return describe(w, s, mr.ErrUnmapped)
		}
		at += int(take)
		c.pos += take
	}
	return ""
}

// checkAll checks that every SGE of w permits the access need.
func (r *requester) checkAll(w *SendWQE, need mr.Access) (Status, string) {
	for i := range w.SGEs {
		s := &w.SGEs[i]
		if s.Length == 0 {
			continue
		}
		if _, err := r.qp.Regions.Check(s.LKey, s.Addr, uint64(s.Length), r.qp.PD, need); err != nil {
			return LocProtErr, describe(w, s, err)
		}
	}
	return Success, ""
}

// describeUnmapped describes a failed copy from byte pos of w on.
func (r *requester) describeUnmapped(w *SendWQE, pos uint32) string {
	var c cursor
	c.seek(w.SGEs, r.cur+1, pos) // not the request of the zero cursor
	return fmt.Sprintf("from byte %d on, SGE %d: %v", pos, c.sge, mr.ErrUnmapped)
}

func describe(w *SendWQE, s *SGE, err error) string {
	i := 0
	for i < len(w.SGEs)-1 && &w.SGEs[i] != s {
		i++
	}
	return fmt.Sprintf("SGE %d (address 0x%x, length %d, lkey 0x%x): %v", i, s.Addr, s.Length, s.LKey, err)
}
