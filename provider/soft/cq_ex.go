package soft

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// cqFields are the fields that completions can have.
const cqFields = verbs.WCStandardFlags | verbs.WCExWithCompletionTimestamp | verbs.WCExWithCompletionTimestampWallclock |
	verbs.WCExWithTMInfo

// frameFields are those that completions of Ethernet frames have besides.
const frameFields = verbs.WCExWithCVLAN | verbs.WCExWithFlowTag

// CreateCQEx makes an extended completion queue.
func (c *context) CreateCQEx(init *verbs.CQExDriverInit, up verbs.CQUpcalls) (verbs.CQExDriver, error) {
	fields := cqFields
	if c.dev.hasFrames() {
		fields |= frameFields
	}
	if no := init.WCFlags &^ fields; no != 0 {
		return nil, fail(verbs.EOPNOTSUPP, "completions have no %v; they can have %v", no, fields)
	}
	q := c.newCQ(init.CQE, init.CompVector, up)
	if init.WCFlags&(verbs.WCExWithCompletionTimestamp|verbs.WCExWithCompletionTimestampWallclock) != 0 {
		q.KeepTimes()
	}
	if init.Flags&verbs.CreateCQIgnoreOverrun != 0 {
		q.IgnoreOverrun()
	}
	return q, nil
}

// RawClock is the time that completions are stamped with.
func (c *context) RawClock() (uint64, error) { return uint64(c.eng.Now()), nil }

// PollOne takes a completion.
func (c *cq) PollOne(wc *verbs.WCEx, more bool) (bool, error) {
	e, t, err := c.Next(more)
	switch {
	case err != nil:
		return false, verbsError("", err)
	case e == nil:
		return false, nil
	}
	toWC(&wc.WC, e)
	if e.Frame {
		wc.FlowTag, wc.CVLAN, wc.TM = uint32(e.Tag), uint16(e.AppCtx), verbs.TMInfo{}
	} else {
		wc.FlowTag, wc.CVLAN, wc.TM = 0, 0, verbs.TMInfo{Tag: e.Tag, Priv: e.AppCtx}
	}
	wc.Timestamp, wc.Wallclock = uint64(t.Clock), uint64(t.Wall)
	return true, nil
}

// Moderate holds completion events back.
func (c *cq) Moderate(m verbs.ModerateCQ) error {
	c.CQ.Moderate(m.Count, time.Duration(m.Period)*time.Microsecond)
	return nil
}
