package soft

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// cqFields are the fields that completions can have.
const cqFields = verbs.WCStandardFlags | verbs.WCExWithCompletionTimestamp | verbs.WCExWithCompletionTimestampWallclock

// CreateCQEx makes an extended completion queue.
func (c *context) CreateCQEx(init *verbs.CQExDriverInit, up verbs.CQUpcalls) (verbs.CQExDriver, error) {
	if no := init.WCFlags &^ cqFields; no != 0 {
		return nil, fail(verbs.EOPNOTSUPP, "completions have no %v; they can have %v", no, cqFields)
	}
	q := &cq{c.eng.NewCQ(init.CQE, init.CompVector, up)}
	if init.WCFlags&(verbs.WCExWithCompletionTimestamp|verbs.WCExWithCompletionTimestampWallclock) != 0 {
		q.KeepTimes()
	}
	if init.Flags&verbs.CreateCQIgnoreOverrun != 0 {
		q.IgnoreOverrun()
	}
	return q, nil
}

// PollOne takes a completion.
func (c *cq) PollOne(wc *verbs.WCEx, more bool) (bool, error) {
	found, err := c.CQ.PollOne(more, func(e *transport.CQE, t engine.Stamp) {
		toWC(&wc.WC, e)
		wc.Timestamp, wc.Wallclock = uint64(t.Clock), uint64(t.Wall)
	})
	if err != nil {
		return false, verbsError("", err)
	}
	return found, nil
}

// Moderate holds completion events back.
func (c *cq) Moderate(m verbs.ModerateCQ) error {
	c.CQ.Moderate(m.Count, time.Duration(m.Period)*time.Microsecond)
	return nil
}
