package transport

import (
	"fmt"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A retry rewinds to the oldest unacknowledged packet and sends everything from there (go-back-N). Causes are an
// expired ACK timeout, a sequence error NAK, a response that proves the loss of an earlier one (an implied NAK), and
// the end of an RNR pause. The first three share the counter that retry_cnt limits; RNR has its own. Every
// acknowledged packet resets both. An RNR NAK resets the first, since the peer answers.
//
// retry_cnt 7 means seven retries, as IBTA specifies; rxe treats 7 as unlimited.

// minAckTimeout is the shortest ACK timeout: software on both sides cannot meet codes 1 to 4.
const minAckTimeout = 500 * time.Microsecond

// maxBackoff is log2 of the largest factor by which a timer exceeds its nominal length; IBTA permits 4. Each retry
// doubles the wait up to that factor: a slow peer stays slow, and a busy peer must not be taken for dead.
const maxBackoff = 2

// deadline returns the time at which onTimer has work to do.
func (r *requester) deadline() int64 {
	switch {
	case r.rnrUntil != 0:
		return r.rnrUntil
	case r.nxt == r.una:
		return r.keepDeadline()
	case r.qp.attr.Timeout == 0, r.qp.pace.until != 0 && r.quietPackets > 0: // no packet has asked for an answer yet
		return Never
	}
	wait := r.ackTimeout()
	return min(r.timer+int64(wait), r.earlyDeadline(wait))
}

func (r *requester) ackTimeout() time.Duration {
	d := max(minAckTimeout, AckTimeout(r.qp.attr.Timeout))
	if hopeless(r.qp.path.Refused.Errno()) {
		d = min(d, refusedTimeout)
	}
	d <<= min(r.retries, maxBackoff)
	if r.keep != nil && r.keep.out {
		d = min(d, r.keep.patience()/time.Duration(r.qp.attr.RetryCnt+1))
	}
	return d
}

// refusedTimeout is the longest ACK timeout while packets are refused: all retries take a few seconds.
const refusedTimeout = 100 * time.Millisecond

// hopeless reports whether a retry after a send error is likely to fail again: a firewall of this host, the MTU, or an
// ICMP message. The latter may be forged, so the connection fails only if no retry is acknowledged either.
func hopeless(e syscall.Errno) bool {
	switch e {
	case syscall.EPERM, syscall.EACCES, syscall.EMSGSIZE, syscall.ECONNREFUSED, syscall.EHOSTUNREACH:
		return true
	}
	return false
}

// onTimer handles an expired deadline.
func (r *requester) onTimer(now int64) {
	if now < r.deadline() {
		return
	}
	if r.rnrUntil != 0 {
		r.rnrUntil, r.timer = 0, now // an early retransmit before the pause keeps sent from starting the timer
		return
	}
	if r.nxt == r.una {
		r.check(now)
		return
	}
	if now < r.timer+int64(r.ackTimeout()) {
		r.retransmitEarly(now)
		return
	}
	r.qp.Counters.LocalAckTimeoutErr++
	r.rewoundByNAK = false
	r.stalled = now
	if r.win.shared != nil {
		r.win.shared.late(now, r.timer, true)
	}
	if r.retry(now, 0, "no acknowledgement within the ACK timeout") {
		r.win.collapse(r.windowFloor())
	}
}

// retry rewinds to una and reports true, unless the retries are exhausted. Then the QP migrates to its alternate path
// if it is ARMED; otherwise the request of una fails.
func (r *requester) retry(now int64, syndrome uint8, why string) bool {
	limit := int(r.qp.attr.RetryCnt)
	r.why = why
	if int(r.retries) >= limit {
		if r.qp.attr.Mig == Armed {
			r.qp.migrate()
			r.goBack()
			r.timer = now
			return true
		}
		r.qp.Counters.RetryExceeded++
		r.failHead(now, RetryExcErr, syndrome, fmt.Sprintf("%s, after %d retries (retry_cnt %d)", why, r.retries, limit))
		return false
	}
	r.retries++
	r.observe(why, int(r.retries))
	r.goBack()
	r.timer = now
	return true
}

// goBack makes una the next packet to send. That packet requests an acknowledgement, because the fate of the
// following ones is unknown.
func (r *requester) goBack() {
	r.nxt, r.cur = r.una, r.head
	r.rewound = true
	r.reads = 0
	r.rtt.sent = 0
	r.win.clear()
	r.quietPackets = maxQuiet
}

// onSequenceNak handles a NAK of a missing packet, which is una.
func (r *requester) onSequenceNak(now int64) {
	r.qp.Counters.PacketSeqErr++
	r.goBackOnce(now, wire.SynSeqErr, "the peer keeps reporting a missing packet (NAK PSN sequence error)")
}

// onLostResponse handles a response that proves the loss of the response that una waits for. After a retry it proves
// nothing: a responder finishes the response to the first request before it starts the second, and rxe may take
// longer for that than the ACK timeout. The peer is alive, however, so the wait starts anew.
func (r *requester) onLostResponse(now int64) {
	if r.rewound {
		r.timer, r.rtt.from = now, now
		return
	}
	if r.goBackOnce(now, 0, "responses to a READ or atomic request are missing") {
		r.qp.Counters.ImpliedNakSeqErr++
	}
}

// goBackOnce rewinds to una unless a NAK did so already or nothing was sent since. A responder sends one NAK for a
// gap, which the network may duplicate, and all packets after a lost response prove the same loss. If the
// retransmission is lost too, the ACK timeout handles it.
func (r *requester) goBackOnce(now int64, syndrome uint8, why string) bool {
	if r.rewoundByNAK || r.nxt == r.una {
		return false
	}
	r.rewoundByNAK = true
	if r.retry(now, syndrome, why) {
		r.win.halve(r.windowFloor())
		r.rtt.lossy = true
		if syndrome == wire.SynSeqErr {
			r.reported(now)
		}
	}
	return true
}

// onRNR handles an RNR NAK of packet una: a pause, then a retransmission.
func (r *requester) onRNR(now int64, h wire.AETH) {
	r.qp.Counters.RNRNakRcvd++
	limit := int(r.qp.attr.RNRRetry)
	if r.rnrUntil != 0 {
		return // a duplicate
	}
	if limit != rnrForever && int(r.rnrTries) >= limit {
		r.qp.Counters.RNRNakRetryErr++
		r.failHead(now, RNRRetryExcErr, h.Syndrome(), fmt.Sprintf(
			"the peer had no receive posted (RNR NAK), after %d retries (rnr_retry %d)", r.rnrTries, limit))
		return
	}
	r.rnrTries++
	r.retries = 0
	r.why = "the peer had no receive posted (RNR NAK)"
	r.observe(r.why, int(r.rnrTries))
	r.goBack()
	r.rnrUntil = now + int64(RNRDelay(h.Timer()))
}

// PeerLost reports that the process of the QP's peer has ended, so no response will arrive. Started requests fail at
// once, as after all retries. If the process died, the QP enters ERR in any case, so that waiting receives complete.
func (qp *QP) PeerLost(now int64, died bool) {
	st := qp.State()
	if !qp.Type.reliable() || st != RTR && st != RTS && st != SQD {
		return
	}
	const why = "the peer's process has ended"
	r := &qp.req
	switch {
	case r.sq != nil && (r.head != r.begun || r.una != r.max):
		f := r.failure(now, r.oldest(), RetryExcErr, why)
		f.PeerEnded = true
		r.fail(f)
	case died:
		f := &Failure{
			Status: RetryExcErr, QPN: qp.Num, DestQPN: qp.attr.DestQPN, Peer: qp.path.Dst.String(), Reason: why,
			Heard: r.heard, PeerEnded: true,
		}
		qp.Fail(f, 0)
	}
}

// rnrForever is the value of rnr_retry that means unlimited (V-QPQ-06).
const rnrForever = 7

// progress resets timers and retry counters after a packet was acknowledged.
func (r *requester) progress(now int64) {
	r.rtt.progress(now)
	r.rtt.lossy = r.rtt.lossy && r.win.size < r.win.most()
	r.timer = now
	r.retries, r.rnrTries, r.rnrUntil, r.rewoundByNAK, r.rewound = 0, 0, 0, false, false
	r.qp.path.Refused = link.Refusal{}
}

func (r *requester) windowFloor() int { return minWindow * (int(r.mtu) + packetCost) }
