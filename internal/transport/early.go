package transport

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/psn"
)

// The ACK timeout is chosen for peers that may be dead: 67 ms with the usual code 14, two thousand round trips of a
// fast network. A lost packet with nothing sent after it, a lost ACK or a lost NAK would stop a QP for that long. The
// requester therefore measures the round-trip time and retransmits early once an answer is overdue. An early
// retransmit does not count as a retry. The wait doubles after each one until it reaches the ACK timeout, which runs
// independently.

// rttEstimator measures round-trip times and counts early retransmits. Times are in nanoseconds.
type rttEstimator struct {
	psn       uint32 // PSN of the packet being timed
	early     uint8  // early retransmits since the last progress
	doubled   uint8  // how often the wait has doubled since the last sample; bounds early too
	lossy     bool   // the peer has reported a loss, and the window has not grown back to its limit
	sent      int64  // when the packet was sent; 0: no packet is being timed
	acked     int    // window.acked at that time
	smoothed  int64  // smoothed round-trip time; 0: no sample yet
	deviation int64  // mean deviation
	from      int64  // start of the current wait for an answer
}

// startProbe starts timing the packet at psn, which requests an acknowledgement, if it is new and no packet is being
// timed. A packet that was sent twice cannot be timed.
func (r *requester) startProbe(now int64, psn uint32) {
	if r.rtt.sent == 0 && psn == r.max {
		r.rtt.psn, r.rtt.sent, r.rtt.acked = psn, now, r.win.acked
	}
}

// endProbe takes a sample if una has passed the timed packet, coming from before. It reports a late one to the
// budget.
func (r *requester) endProbe(now int64, before uint32) {
	h := &r.rtt
	if h.sent == 0 || (r.una-before)&psn.Mask <= (h.psn-before)&psn.Mask {
		return
	}
	took := max(now-h.sent, 1)
	if r.una != r.max {
		r.win.measured(took, r.win.acked-h.acked)
	}
	if code := r.qp.attr.Timeout; code != 0 && r.win.shared != nil &&
		took > int64(max(leastLate, AckTimeout(code)/lateShare)) {
		r.win.shared.late(now, h.sent, false)
	}
	h.sent = 0
	h.measured(took)
}

// measured takes a sample. It ends the doubling of the wait.
func (h *rttEstimator) measured(took int64) {
	h.doubled = 0
	if h.smoothed == 0 {
		h.smoothed, h.deviation = took, took/2
		return
	}
	d := took - h.smoothed
	h.smoothed += d / 8
	h.deviation += (max(d, -d) - h.deviation) / 4
}

// reported takes a NAK of the missing packet una as the first sample if there is none yet: the packet that it answers
// was sent after the first packet of una's message, and after the last wait in vain. With many losses there may be no
// other sample for long, because all packets before the timed one must arrive, and its acknowledgement too.
func (r *requester) reported(now int64) {
	if h := &r.rtt; h.smoothed == 0 {
		h.measured(max(now-max(r.oldest().sent, r.stalled), 1))
	}
}

// progress records that an answer arrived. After an early retransmit the answer may be one to either transmission, so
// it is no sample: with many losses the waits would be samples, and each wait would be longer than the last. The wait
// stays doubled until a packet that was sent once has been timed. A peer that has become slow answers such a packet
// within the longer wait, and the sample shows its new time.
func (h *rttEstimator) progress(now int64) { h.from, h.early = now, 0 }

// overdue returns how long an answer may take before an early retransmit. It is at least minAckTimeout, or lossyTimeout
// if the peer has reported losses lately: then the loss of a NAK or of the retransmission is more likely than a peer
// that waits for a core.
func (r *requester) overdue() time.Duration {
	h, shortest := &r.rtt, minAckTimeout
	if h.lossy {
		shortest = lossyTimeout
	}
	return max(shortest, time.Duration(2*h.smoothed+4*h.deviation)) << h.doubled
}

const lossyTimeout = 100 * time.Microsecond

// earlyDeadline returns the time of the next early retransmit, or Never. ackTimeout is that of the requester.
func (r *requester) earlyDeadline(ackTimeout time.Duration) int64 {
	h := &r.rtt
	if h.smoothed == 0 || h.doubled > 16 {
		return Never
	}
	wait := r.overdue()
	if wait >= ackTimeout {
		return Never
	}
	return h.from + int64(wait)
}

// retransmitEarly rewinds to una before the ACK timeout expires.
func (r *requester) retransmitEarly(now int64) {
	r.stalled = now
	r.rtt.early++
	r.rtt.doubled++
	r.why = "its acknowledgement is overdue"
	r.rewoundByNAK = false
	r.goBack()
	r.win.halve(r.windowFloor())
}
