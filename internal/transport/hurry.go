package transport

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/psn"
)

// The ACK timeout is for peers that may be dead: 67 ms with the usual code 14, two thousand round trips of a quick network. A lost
// packet with nothing behind it, a lost ACK and a lost NAK would all stop a QP for that long. So the requester measures
// how long answers take, and goes back once they are overdue, without counting it as a retry. Each time that brings nothing it waits twice as
// long, until that would be the ACK timeout. That one runs on meanwhile, as if nothing had happened.

// hurry is the time that answers take.
type hurry struct {
	psn   uint32 // of the packet that is timed now
	sent  int64  // when it left; 0: none
	rtt   int64  // smoothed; 0: never measured
	off   int64  // mean deviation from that
	tries uint   // times that the requester went back early since the last progress
	from  int64  // since when it has waited for an answer
}

// startProbe times the packet at psn, which asks for an acknowledgement, if it is new and no other is timed. A packet that was sent twice
// says nothing.
func (r *requester) startProbe(now int64, psn uint32) {
	if r.hurry.sent == 0 && psn == r.max {
		r.hurry.psn, r.hurry.sent = psn, now
	}
}

// endProbe takes the time, if una has passed the packet on its way from before, and tells the budget if it is late.
func (r *requester) endProbe(now int64, before uint32) {
	h := &r.hurry
	if h.sent == 0 || (r.una-before)&psn.Mask <= (h.psn-before)&psn.Mask {
		return
	}
	took := max(now-h.sent, 1)
	if code := r.qp.attr.Timeout; code != 0 && r.win.shared != nil && took > int64(max(leastLate, AckTimeout(code)/lateShare)) {
		r.win.shared.late(now, h.sent, false)
	}
	h.sent = 0
	h.measured(took)
}

func (h *hurry) measured(took int64) {
	if h.rtt == 0 {
		h.rtt, h.off = took, took/2
		return
	}
	d := took - h.rtt
	h.rtt += d / 8
	h.off += (max(d, -d) - h.off) / 4
}

// progress hears that an answer has come. After packets that were sent twice it took as long as the whole wait at most; without
// that a peer that has become slow would be hurried for ever.
func (h *hurry) progress(now, since int64) {
	if h.tries > 0 {
		h.measured(max(now-since, 1))
	}
	h.from, h.tries = now, 0
}

// overdue is how long answers may take before the requester goes back early; it is not below the shortest ACK timeout.
func (h *hurry) overdue() time.Duration {
	return max(minAckTimeout, time.Duration(2*h.rtt+4*h.off)) << h.tries
}

// early is when the requester goes back early, Never if it will not.
func (r *requester) early() int64 {
	h := &r.hurry
	if h.rtt == 0 || h.tries > 16 || h.overdue() >= r.ackTimeout() {
		return Never
	}
	return h.from + int64(h.overdue())
}

// hurryBack goes back to una before the ACK timeout.
func (r *requester) hurryBack() {
	r.hurry.tries++
	r.why = "its acknowledgement is overdue"
	r.nakked = false
	r.goBack()
	r.win.halve(r.windowFloor())
}
