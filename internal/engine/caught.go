package engine

import "github.com/verbena-rdma/verbena/internal/transport"

// caught holds the completions that come into a CQ while one of its pollers runs a shard. The poller takes them before
// it releases the shard, so they need no lock of the CQ and do not enter its ring. They belong to the shard's holder.
//
// The order of a QP's completions stays. The completions of a QP come from one shard, and the ring was empty when the
// poller took it. After the first completion that has no room here all enter the ring, which the poller reads next.
type caught struct {
	of      *CQ // nil: all completions enter their rings
	n, room int
	entries [maxCaught]transport.CQE
}

// maxCaught is more than most programs poll at once.
const maxCaught = 64

// begin makes the next completions of cq be caught, at most n. The shard is held.
func (c *caught) begin(cq *CQ, n int) {
	if n > 0 && !cq.some.Load() && cq.batch.Load() == nil && !cq.broken.Load() {
		c.of, c.room = cq, min(n, maxCaught)
	}
}

// put takes a completion of the CQ. It returns false if that must enter the ring: if there is no room, if the CQ is
// armed, since it must then raise an event, or be among those that the next one tells of, or if the ring has got a
// completion since begin that no shard has pushed. That is one of a tag list operation, which must precede that of the
// message which its buffer takes.
func (c *caught) put(e *transport.CQE) bool {
	if c.n == c.room || arming(c.of.armed.Load()) != disarmed || c.of.some.Load() {
		c.of = nil
		return false
	}
	c.entries[c.n] = *e
	c.n++
	return true
}

// end passes what was caught to take, numbered from first, frees the queue slots, and returns the number.
func (c *caught) end(first int, take func(i int, e *transport.CQE)) int {
	n := c.n
	c.of, c.n = nil, 0
	if n == 0 {
		return 0
	}
	var f freed
	entries := c.entries[:n]
	for i := range entries {
		e := &entries[i]
		take(first+i, e)
		f.add(e)
		forget(e)
	}
	f.flush()
	return n
}
