package transport

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/observe"
)

// observe passes a retry to the handlers of package observe.
func (r *requester) observe(why string, tries int) {
	if !observe.On() {
		return
	}
	qp := r.qp
	e := observe.Event{Name: observe.Retry, QPN: qp.Num, DestQPN: qp.attr.DestQPN, Reason: why, Retries: tries}
	e.Local, e.Peer = qp.Ends()
	observe.Emit(e)
}

// Ends returns the addresses of the QP's path, invalid if it has none.
func (qp *QP) Ends() (local, peer netip.AddrPort) {
	if qp.path == nil {
		return local, peer
	}
	return netip.AddrPortFrom(qp.path.Src, 0), netip.AddrPortFrom(qp.path.Dst, 0)
}

// First is the failure that moved the QP to ERR or SQE; nil if there was none.
func (qp *QP) First() *Failure { return qp.first }
