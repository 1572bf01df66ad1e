package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// requesterWQE is what the requester keeps of a work request under way.
type requesterWQE struct{}

type requester struct{ qp *QP }

func (r *requester) init(qp *QP)     { r.qp = qp }
func (r *requester) reset()          {}
func (r *requester) flush()          {}
func (r *requester) pending() bool   { return false }
func (r *requester) deadline() int64 { return Never }
func (r *requester) onTimer(int64)   {}

func (r *requester) onResponse(now int64, p *link.RxPacket, info *wire.Info) {}

func (r *requester) transmit(now int64, tx *link.TxBatch, budget int) (more bool) { return false }
