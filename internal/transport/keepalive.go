package transport

import (
	"math"
	"time"
)

// A connection that only receives never learns that its peer has gone: nothing is sent that the peer would have to
// acknowledge. With keep-alive the requester then sends a WRITE of 0 bytes. It takes a PSN and is retransmitted like
// any request, but it is no work request of the program: it has no slot in the send queue and no completion. It needs
// no memory and no receive of the peer, but a QP that permits remote writes. On XRC it names the SRQ of the latest
// request, since a request must name one; before the first request there are no checks.

// keepAlive is the state of a QP with keep-alive.
type keepAlive struct {
	idle  int64 // nanoseconds without a packet from the peer after which the WRITE is sent
	heard int64 // when the last packet came from the peer
	out   bool  // the WRITE has been started and is not acknowledged
	wqe   SendWQE
	more  SendMore // of wqe
}

// minPatience is the shortest time for the acknowledgement of a check. A busy host stops for seconds.
const minPatience = 5 * time.Second

// patience is the longest time for the acknowledgement of a check, its retries included. The ACK timeout may be
// longer: the active side of a connection chooses it for both, and keep-alive is the choice of this side.
func (k *keepAlive) patience() time.Duration { return max(time.Duration(k.idle), minPatience) }

// SetKeepAlive makes a reliable QP in RTS check its peer after each time idle in which no packet came from the peer
// and nothing was to be sent; 0 or less ends it. A check that nobody acknowledges moves the QP to ERR, after the
// retries of any request or after idle, and at least minPatience, whichever is earlier. The shard is held.
func (qp *QP) SetKeepAlive(now int64, idle time.Duration) {
	r := &qp.req
	switch {
	case r.sq == nil || !r.reliable:
	case idle <= 0 && r.keep != nil:
		r.keep.idle = math.MaxInt64 / 2 // a check under way ends as usual
	case idle > 0 && r.keep == nil:
		r.keep, r.qp.resp.keeps = &keepAlive{idle: int64(idle), heard: now}, true
	case idle > 0:
		r.keep.idle, r.keep.heard = int64(idle), now
	}
}

// heardFrom notes that a packet has come from the peer.
func (r *requester) heardFrom(now int64) {
	if r.keep != nil {
		r.keep.heard = now
	}
}

// keepDeadline returns the time of the next check of the peer, or Never: nothing is outstanding.
func (r *requester) keepDeadline() int64 {
	k := r.keep
	if k == nil || r.qp.Type == XRCSend && r.srqn == 0 {
		return Never
	}
	if k.out || r.phase != running || r.head != r.sq.Posted() || k.heard > math.MaxInt64-k.idle {
		return Never
	}
	return k.heard + k.idle
}

// check starts the WRITE. keepDeadline has expired, so it is the only request.
func (r *requester) check(now int64) {
	k := r.keep
	k.out, k.more.RemoteSRQN = true, r.srqn
	k.wqe = SendWQE{
		Op: OpWrite, SendMore: &k.more, requesterWQE: requesterWQE{first: r.nxt, count: 1, cell: 1, begun: true, sent: now},
	}
}

// checking reports whether the WRITE is the packet nxt.
func (r *requester) checking() bool { return r.keep != nil && r.keep.out && r.nxt == r.keep.wqe.first }

// isCheck reports whether w is the WRITE.
func (r *requester) isCheck(w *SendWQE) bool { return r.keep != nil && w == &r.keep.wqe }

// failCheck moves the QP to ERR because of f, the failure of the WRITE, which no completion reports.
func (r *requester) failCheck(f *Failure) {
	f.Reason = "keep-alive: " + f.Reason
	r.qp.Fail(f, EventQPFatal)
	if h, ok := r.qp.Host.(SilenceHost); ok && !f.PeerEnded {
		h.PeerSilent(r.qp)
	}
}

// oldest returns the oldest request that is not complete. The WRITE is older than all work requests: when it starts,
// there are none.
func (r *requester) oldest() *SendWQE {
	if r.keep != nil && r.keep.out {
		return &r.keep.wqe
	}
	return r.sq.At(r.head)
}

// current returns the request of the packet nxt.
func (r *requester) current() *SendWQE {
	if r.checking() {
		return &r.keep.wqe
	}
	return r.sq.At(r.cur)
}
