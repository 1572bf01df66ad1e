package transport

import "github.com/verbena-rdma/verbena/internal/link"

// A QP may have a rate limit, and so may each path (the static rate of its address vector). The QP then waits after
// each packet until the packet would have left at that rate, or what was sent as one: a train. Acknowledgements do not
// wait, and their bytes do not count. The wait ends by the QP's timer.

// pace is what each message uses of the rate limits of a QP.
type pace struct {
	limit uint64 // of the QP, bits per second; 0: none
	until int64  // nothing is sent before; 0: no wait
}

// pacing is the rest of their state.
type pacing struct {
	burst int64 // bytes that the QP may send at once after a pause
	free  int64 // when what was sent has left at its rate
	late  bool  // the wait has ended while there was something to send: what the timer is late is made up for
}

// maxLate is the longest lateness of a timer, ns, that is made up for.
const maxLate = int64(2e6)

// wait begins the wait after n bytes that were sent along a path. The QP or the path has a limit.
func (qp *QP) wait(now int64, path *link.Path, n int64) {
	p, rate := &qp.pacing, path.Rate
	if limit := qp.pace.limit; limit != 0 && (rate == 0 || limit < rate) {
		rate = limit
	}
	back := int64(float64(p.burst) * 8e9 / float64(rate)) // exceeds 64 bits before the division
	if p.late {
		back = max(back, maxLate)
	}
	p.free = max(p.free, now-back) + n*8*1e9/int64(rate)
	if p.free > now {
		qp.pace.until, p.late = p.free, false
	}
}

// open ends the wait if its time has come. If no packet has asked for an answer, the ACK timer starts again: it did not
// run meanwhile.
func (qp *QP) open(now int64) {
	p, r := &qp.pace, &qp.req
	if p.until == 0 || now < p.until {
		return
	}
	p.until, qp.pacing.late = 0, r.sq != nil && r.cur != r.stop() || qp.resp.todo != qp.resp.head
	if r.quietPackets > 0 {
		r.timer, r.rtt.from = now, now
	}
}

// charge counts segs packets with headers of head bytes, BTH included, and n bytes of payload in all.
func (qp *QP) charge(now int64, path *link.Path, head, segs int, n uint32) {
	if path.Rate != 0 || qp.pace.limit != 0 {
		const icrc = 4
		qp.wait(now, path, int64(link.HeadersLen(path.Dst)+head+icrc)*int64(segs)+int64(n))
	}
}

// SetRate limits the bits per second that the QP sends, of whole IP packets, and the bytes that it may send at once
// after a pause. 0 means no limit, and one packet. The shard is held.
func (qp *QP) SetRate(rate uint64, burst int64) {
	qp.pace = pace{limit: rate}
	qp.pacing.burst, qp.pacing.free = burst, 0
}
