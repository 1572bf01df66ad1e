package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

type responder struct{ qp *QP }

func (r *responder) init(qp *QP)   { r.qp = qp }
func (r *responder) reset()        {}
func (r *responder) flush()        {}
func (r *responder) pending() bool { return false }

// start makes the responder ready to take packets from attr.RQPSN on (INIT -> RTR).
func (r *responder) start() {}

func (r *responder) onRequest(now int64, p *link.RxPacket, info *wire.Info) {}

func (r *responder) transmit(now int64, tx *link.TxBatch, budget int) (more bool) { return false }
