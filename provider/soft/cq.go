package soft

import (
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// cq is a CQDriver.
type cq struct {
	*engine.CQ
	up  *cqUpcalls
	ctx *context
	num uint32
}

// cqUpcalls passes what a CQ reports up, and an overflow to the SRQs that match tags and complete into it.
type cqUpcalls struct {
	verbs.CQUpcalls
	mu   sync.Mutex
	srqs []*tmSRQ
}

// Error reports the overflow (V-AE-19), and that nothing can be received through those SRQs any more (V-AE-21).
func (u *cqUpcalls) Error() {
	u.CQUpcalls.Error()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.srqs {
		s.up.Event(verbs.EventSRQErr)
	}
}

func (u *cqUpcalls) add(s *tmSRQ) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.srqs = append(u.srqs, s)
}

func (u *cqUpcalls) remove(s *tmSRQ) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.srqs = slices.DeleteFunc(u.srqs, func(o *tmSRQ) bool { return o == s })
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

// working refuses CQs that have overflowed: a queue that completes into one is of no use, and has missed the event that says so.
func working(cqs ...verbs.CQDriver) error {
	for _, c := range cqs {
		if c, ok := c.(*cq); ok && c.Broken() {
			return verbsError("", engine.ErrCQOverrun)
		}
	}
	return nil
}

// Destroy leaves the ring to the collector: no QP uses it.
func (c *cq) Destroy() error {
	c.ctx.dev.census.cqs.remove(c)
	return nil
}
