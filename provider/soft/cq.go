package soft

import (
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// cq is a CQDriver.
type cq struct {
	*engine.CQ
	ctx *context
	num uint32
}

// Poll takes completions.
func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	n, err := c.CQ.Poll(len(wcs), func(i int, e *transport.CQE) { toWC(&wcs[i], e) })
	if err != nil {
		return n, verbsError("", err)
	}
	return n, nil
}

// ReqNotify arms the CQ.
func (c *cq) ReqNotify(solicitedOnly bool) error {
	if err := c.Arm(solicitedOnly); err != nil {
		return verbsError("", err)
	}
	return nil
}

// Resize changes the size.
func (c *cq) Resize(cqe int) error {
	if err := c.CQ.Resize(cqe); err != nil {
		return verbsError("", err)
	}
	return nil
}

// Destroy leaves the ring to the collector: no QP uses it.
func (c *cq) Destroy() error {
	c.ctx.dev.census.cqs.remove(c)
	return nil
}
