package soft

import (
	"os"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// envECN makes the packets of RC and XRC QPs ECN capable, so that switches mark them instead of dropping them.
const envECN = "VERBENA_ECN"

// path returns the path of a QP. It is ECN capable if the environment says so and the QP can send less: with a traffic
// class that has ECN bits, the program has decided.
func (q *qp) path(port uint8, a *verbs.AHAttr) (link.Path, error) {
	p, err := q.ctx.dev.at(port).path(a)
	if t := q.QP.Type; t != transport.RC && t != transport.XRCSend && t != transport.XRCRecv {
		return p, err
	}
	if os.Getenv(envECN) == "1" && p.TClass&wire.ECNMask == 0 {
		p.TClass |= wire.ECNCapable
	}
	return p, err
}
