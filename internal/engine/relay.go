package engine

import "github.com/verbena-rdma/verbena/internal/transport"

// With calls f with the QP and the time while the shard is held, and sends what the QP has to send then. It does
// nothing after Destroy. f must not block or call the engine. It is for what other processes of a shared XRC domain
// say about the QP; see transport.Relay.
func (qp *QP) With(f func(now int64, qp *transport.QP)) {
	s := qp.shard
	s.hold()
	defer s.release()
	if qp.Sched.Dead {
		return
	}
	s.now = s.eng.now()
	f(s.now, &qp.QP)
	s.runq.push(&qp.QP)
	s.serve()
}
