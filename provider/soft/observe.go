package soft

import (
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/observe"
)

// observeState passes the failure of a QP to the handlers of package observe. It is called when the QP has moved to
// another state by itself, with its shard held.
func observeState(q *engine.QP, s transport.State) {
	if !observe.On() || s != transport.Err && s != transport.SQE {
		return
	}
	e := observe.Event{Name: observe.Failure, QPN: q.Num()}
	if f := q.First(); f != nil {
		e.Err, e.Reason, e.Retries, e.Duration, e.DestQPN = toWCError(f), f.Reason, f.Retries, f.Elapsed, f.DestQPN
	}
	e.Local, e.Peer = q.Ends()
	observe.Emit(e)
}
