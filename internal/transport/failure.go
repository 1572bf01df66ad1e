package transport

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/psn"
)

// failure describes why w fails now.
func (r *requester) failure(now int64, w *SendWQE, st Status, reason string) *Failure {
	qp := r.qp
	f := &Failure{
		Status: st, QPN: qp.Num, DestQPN: qp.attr.DestQPN, Reason: reason,
		LastSent: psn.Add(r.max, -1), LastAck: psn.Add(r.una, -1),
		Retries: int(r.retries) + int(r.rnrTries), Heard: r.heard,
	}
	if st == RetryExcErr {
		f.Refused = qp.path.Refused
		f.Payload = int(min(w.Length, r.mtu))
	}
	path := qp.path
	if qp.Type == UD {
		path, f.DestQPN = w.Path, w.RemoteQPN
	}
	if path != nil {
		f.Peer = path.Dst.String()
	}
	if w.begun {
		f.Elapsed = time.Duration(now - w.sent)
	}
	return f
}

// flushed returns the cause of the work requests that are flushed now. One value serves a whole queue.
func (qp *QP) flushed() *Failure {
	f := &Failure{Status: WRFlushErr, QPN: qp.Num, DestQPN: qp.attr.DestQPN, First: qp.first}
	switch why := qp.ended.Load(); {
	case qp.first != nil:
		f.Reason = "an earlier work request of the QP failed"
	case why != nil:
		f.Reason = *why
	default:
		f.Reason = "the QP was moved to ERR by ibv_modify_qp"
	}
	if qp.path != nil {
		f.Peer = qp.path.Dst.String()
	}
	return f
}
