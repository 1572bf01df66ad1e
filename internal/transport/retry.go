package transport

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A retry sends everything from the oldest unacknowledged packet on again (go-back-N). Reasons are a silence longer than
// the ACK timeout, a NAK for a sequence error, a response that proves that an earlier one was lost (an implied NAK), and
// the end of the pause that an RNR NAK asked for. The first three share the counter that
// retry_cnt limits; RNR has its own; both begin anew with every packet that is acknowledged.
//
// retry_cnt 7 means seven retries, as IBTA has it; rxe takes 7 as without limit.

// minAckTimeout is the shortest wait for an acknowledgement: codes 1 to 4 ask for less than software on both sides can keep.
const minAckTimeout = 500 * time.Microsecond

// maxBackoff is the logarithm of how many times its nominal length a timer may run: four, says IBTA. Each retry doubles the wait up to
// that, for a peer that was too slow the first time is as slow the next time, and a busy one must not be taken for a dead one.
const maxBackoff = 2

// deadline is when onTimer has something to do.
func (r *requester) deadline() int64 {
	switch {
	case r.rnrUntil != 0:
		return r.rnrUntil
	case r.nxt == r.una || r.qp.attr.Timeout == 0:
		return Never
	}
	return min(r.timer+int64(r.ackTimeout()), r.early())
}

func (r *requester) ackTimeout() time.Duration {
	return max(minAckTimeout, AckTimeout(r.qp.attr.Timeout)) << min(r.retries, maxBackoff)
}

// onTimer handles a deadline that has passed.
func (r *requester) onTimer(now int64) {
	if now < r.deadline() {
		return
	}
	if r.rnrUntil != 0 {
		r.rnrUntil = 0
		return
	}
	if now < r.timer+int64(r.ackTimeout()) {
		r.hurryBack()
		return
	}
	r.qp.Counters.LocalAckTimeoutErr++
	r.nakked = false
	if r.win.shared != nil {
		r.win.shared.late(now, r.timer, true)
	}
	if r.retry(now, 0, "no acknowledgement within the ACK timeout") {
		r.win.collapse(r.windowFloor())
	}
}

// retry goes back to una unless that was tried often enough. Then the QP takes its alternate path, or else the request that una
// belongs to fails.
func (r *requester) retry(now int64, syndrome uint8, why string) bool {
	limit := int(r.qp.attr.RetryCnt)
	r.why = why
	if r.retries >= limit {
		if r.qp.attr.Mig == Armed {
			r.qp.migrate()
			r.goBack()
			return true
		}
		r.qp.Counters.RetryExceeded++
		r.failHead(now, RetryExcErr, syndrome, fmt.Sprintf("%s, after %d retries (retry_cnt %d)", why, r.retries, limit))
		return false
	}
	r.retries++
	r.goBack()
	r.timer = now
	return true
}

// goBack makes una the next packet to send. That packet asks for an acknowledgement, since
// nobody knows whether those behind it will arrive.
func (r *requester) goBack() {
	r.nxt, r.cur = r.una, r.head
	r.again = true
	r.reads = 0
	r.hurry.sent = 0
	r.win.clear()
	r.quietPackets = maxQuiet
}

// onSequenceNak handles a NAK for a packet that the peer waits for, which is una.
func (r *requester) onSequenceNak(now int64) {
	r.qp.Counters.PacketSeqErr++
	r.goBackOnce(now, wire.SynSeqErr, "the peer goes on missing a packet (NAK PSN sequence error)")
}

// onLostResponse handles a response that proves that one before it, which una waits for, was lost. After a retry it proves nothing:
// a responder finishes the answer to the first request before it comes to the second one, and under rxe that may take longer than
// the ACK timeout. But it shows that the peer is at work, so the wait begins anew.
func (r *requester) onLostResponse(now int64) {
	if r.again {
		r.timer, r.hurry.from = now, now
		return
	}
	if r.goBackOnce(now, 0, "responses to a READ or atomic request are missing") {
		r.qp.Counters.ImpliedNakSeqErr++
	}
}

// goBackOnce goes back to una if the peer did not already make it do so, and if anything has left since. A responder
// sends one NAK for a gap and the network may copy it; and all packets behind
// a lost response prove the same loss. When the retry is lost too the ACK timeout sees to it.
func (r *requester) goBackOnce(now int64, syndrome uint8, why string) bool {
	if r.nakked || r.nxt == r.una {
		return false
	}
	r.nakked = true
	if r.retry(now, syndrome, why) {
		r.win.halve(r.windowFloor())
	}
	return true
}

// onRNR handles a receiver that was not ready for packet una: a pause, then the packet again.
func (r *requester) onRNR(now int64, code uint8) {
	r.qp.Counters.RNRNakRcvd++
	limit := int(r.qp.attr.RNRRetry)
	if r.rnrUntil != 0 {
		return // a copy
	}
	if limit != rnrForever && r.rnrTries >= limit {
		r.qp.Counters.RNRNakRetryErr++
		r.failHead(now, RNRRetryExcErr, code, fmt.Sprintf(
			"the peer had no receive posted (RNR NAK), after %d retries (rnr_retry %d)", r.rnrTries, limit))
		return
	}
	r.rnrTries++
	r.why = "the peer had no receive posted (RNR NAK)"
	r.goBack()
	r.rnrUntil = now + int64(RNRDelay(code))
}

// PeerLost says that the process which had the QP's peer has ended, so that no answer will come. What waits for one fails at
// once, as it would after all retries. If the process died the QP goes to ERR in any case: a program that
// waits for messages of the peer learns that there will be none.
func (qp *QP) PeerLost(now int64, died bool) {
	st := qp.State()
	if !qp.Type.reliable() || st != RTR && st != RTS && st != SQD {
		return
	}
	const why = "the peer's process has ended"
	r := &qp.req
	switch {
	case r.sq != nil && r.head != r.begun:
		f := r.failure(now, r.sq.At(r.head), RetryExcErr, why)
		f.PeerEnded = true
		r.fail(f)
	case died:
		f := &Failure{
			Status: RetryExcErr, QPN: qp.Num, DestQPN: qp.attr.DestQPN, Peer: qp.path.Dst.String(), Reason: why, Heard: r.heard, PeerEnded: true,
		}
		qp.Fail(f, 0)
	}
}

// rnrForever is the value of rnr_retry that means without limit (V-QPQ-06).
const rnrForever = 7

// progress begins all counting anew after a packet was acknowledged.
func (r *requester) progress(now int64) {
	r.hurry.progress(now, r.timer)
	r.timer = now
	r.retries, r.rnrTries, r.rnrUntil, r.nakked, r.again = 0, 0, 0, false, false
	r.qp.refused = link.Refusal{}
}

func (r *requester) windowFloor() int { return minWindow * (int(r.mtu) + packetCost) }
