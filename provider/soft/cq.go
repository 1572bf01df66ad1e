package soft

import (
	"slices"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// cq is a DriverCQ.
type cq struct {
	verbs.DriverUnsupported
	engine.CQ
	up       cqEvents
	ctx      *deviceContext
	num      uint32
	extended bool       // completions have fields beyond WCStandardFlags
	polls    sync.Mutex // held by pollExtended: calls of PollOne must not overlap
}

// cqEvents passes a CQ's reports to the verbs layer, and an overflow also to the SRQs with tag matching and the queues
// of Ethernet frames that complete into it.
type cqEvents struct {
	verbs.DriverCQEvents
	frames *raw.Device // nil if the device has none
	mu     sync.Mutex  // guards srqs
	// +checklocks:mu
	srqs []*tmSRQ
}

// Error reports the overflow (V-AE-19), and that nothing can be received any more through those SRQs (V-AE-21).
func (u *cqEvents) Error() {
	u.DriverCQEvents.Error()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.srqs {
		s.up.Event(verbs.EventSRQErr)
	}
	if u.frames != nil {
		go u.frames.Overrun() // a caller of Push may hold its locks
	}
}

func (u *cqEvents) add(s *tmSRQ) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.srqs = append(u.srqs, s)
}

func (u *cqEvents) remove(s *tmSRQ) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.srqs = slices.DeleteFunc(u.srqs, func(o *tmSRQ) bool { return o == s })
}

// Poll takes completions.
func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	if c.extended {
		return c.pollExtended(wcs)
	}
	n, err := c.CQ.Poll(len(wcs), func(i int, e *transport.CQE) { toWC(&wcs[i], e) })
	return n, verbsError("", err)
}

// ReqNotify arms the CQ.
func (c *cq) ReqNotify(solicitedOnly bool) error { return verbsError("", c.Arm(solicitedOnly)) }

// Resize changes the size.
func (c *cq) Resize(cqe int) error { return verbsError("", c.CQ.Resize(cqe)) }

// cqOf returns the driver's CQ of a program's; nil for nil.
func cqOf(c *verbs.CQ) *cq { return driver.Of[*cq](c) }

// checkCQs refuses CQs that have overflowed: a queue that completes into one is of no use, and its program would
// never get the event.
func checkCQs(cqs ...*verbs.CQ) error {
	for _, c := range cqs {
		if c := cqOf(c); c != nil && c.Broken() {
			return verbsError("", engine.ErrCQOverrun)
		}
	}
	return nil
}

// Destroy removes the CQ from the list of objects; the garbage collector frees the ring. No QP uses it.
func (c *cq) Destroy() error {
	c.ctx.dev.objects.cqs.remove(c)
	return nil
}

// cqFields are the fields that completions can have.
const cqFields = verbs.WCStandardFlags | verbs.WCExWithCompletionTimestamp |
	verbs.WCExWithCompletionTimestampWallclock |
	verbs.WCExWithTMInfo

// frameFields are the additional fields of completions of Ethernet frames.
const frameFields = verbs.WCExWithCVLAN | verbs.WCExWithFlowTag

// CreateCQ makes a completion queue.
func (c *deviceContext) CreateCQ(cqe int, opts *verbs.CQOptions, up verbs.DriverCQEvents) (verbs.DriverCQ, error) {
	fields := cqFields
	var frames *raw.Device
	if c.dev.hasFrames() {
		fields |= frameFields
		frames = c.frames
	}
	if no := opts.WCFlags &^ fields; no != 0 {
		return nil, fail(verbs.EOPNOTSUPP, "completion fields %v: not supported; must be among %v", no, fields)
	}
	q := &cq{ctx: c, num: c.dev.lastCQ.Add(1)}
	q.up.DriverCQEvents, q.up.frames = up, frames
	q.extended = opts.WCFlags&^verbs.WCStandardFlags != 0
	c.eng.InitCQ(&q.CQ, cqe, opts.CompVector, &q.up)
	c.dev.objects.cqs.add(q)
	if opts.WCFlags&(verbs.WCExWithCompletionTimestamp|verbs.WCExWithCompletionTimestampWallclock) != 0 {
		q.KeepTimes()
	}
	if opts.Flags&verbs.CreateCQIgnoreOverrun != 0 {
		q.IgnoreOverrun()
	}
	return q, nil
}

// RawClock returns the time of completion timestamps, in nanoseconds.
func (c *deviceContext) RawClock() (uint64, error) { return uint64(c.eng.Now()), nil }

// PollOne takes a completion.
func (c *cq) PollOne(wc *verbs.WC, more bool) (bool, error) {
	e, t, err := c.Next(more)
	switch {
	case err != nil:
		return false, verbsError("", err)
	case e == nil:
		return false, nil
	}
	toWC(wc, e)
	if e.Frame {
		wc.FlowTag, wc.CVLAN = uint32(e.Tag), uint16(e.AppCtx)
	} else {
		wc.TM = verbs.TMInfo{Tag: e.Tag, Priv: e.AppCtx}
	}
	wc.Timestamp, wc.Wallclock = uint64(t.Clock), uint64(t.Wall)
	return true, nil
}

// pollExtended is Poll for completions with fields beyond WCStandardFlags.
func (c *cq) pollExtended(wcs []verbs.WC) (int, error) {
	c.polls.Lock()
	defer c.polls.Unlock()
	for i := range wcs {
		found, err := c.PollOne(&wcs[i], i > 0)
		if !found {
			if i > 0 {
				err = nil // the next Poll returns it
			}
			return i, err
		}
	}
	return len(wcs), nil
}

// Moderate sets the moderation of completion events.
func (c *cq) Moderate(m verbs.ModerateCQ) error {
	c.CQ.Moderate(m.Count, time.Duration(m.Period)*time.Microsecond)
	return nil
}
