package transport

import "github.com/verbena-rdma/verbena/internal/psn"

// A Mark is a place in what an RC QP has sent. The zero Mark is never passed.
type Mark struct {
	qp        *QP
	life, psn uint32
}

// MarkOf is the place behind the packet p, which qp has sent.
func (qp *QP) MarkOf(p uint32) Mark { return Mark{qp, qp.req.life, p} }

// Passed tells whether the peer has acknowledged everything before the mark. It stays false if the QP was reset before that.
func (m Mark) Passed() bool {
	return m.qp != nil && m.life == m.qp.req.life && psn.Less(m.psn, m.qp.req.una)
}

// Of tells whether it is a place in what qp has sent.
func (m Mark) Of(qp *QP) bool { return m.qp == qp }
