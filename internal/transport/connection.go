package transport

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/psn"
)

// A Mark is a position in the packets that an RC QP has sent. The zero Mark is never passed.
type Mark struct {
	qp        *QP
	life, psn uint32
}

// MarkOf returns the position after the packet at PSN p, which qp has sent.
func (qp *QP) MarkOf(p uint32) Mark { return Mark{qp, qp.req.life, p} }

// Passed reports whether the peer has acknowledged everything before the mark. It stays false if the QP was reset
// first.
func (m Mark) Passed() bool {
	return m.qp != nil && m.life == m.qp.req.life && psn.Less(m.psn, m.qp.req.una)
}

// Of reports whether the mark belongs to qp.
func (m Mark) Of(qp *QP) bool { return m.qp == qp }

// A Connection is a QP with one peer and one path, from the transition to RTR until RESET. The zero
// Connection belongs to no QP.
type Connection struct {
	qp       *QP
	life     uint32
	src, dst netip.Addr
	dest     uint32
}

// Connection is the present one of qp; the zero Connection if qp has no path.
func (qp *QP) Connection() Connection {
	if qp.path == nil {
		return Connection{}
	}
	return Connection{qp, qp.req.life, qp.path.Src, qp.path.Dst, qp.attr.DestQPN}
}

// Of reports whether it is a connection of qp.
func (c Connection) Of(qp *QP) bool { return c.qp == qp }
