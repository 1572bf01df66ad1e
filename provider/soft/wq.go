package soft

import (
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// wqFlags are the flags that work queues support.
const wqFlags = verbs.WQCVLANStripping | verbs.WQScatterFCS | verbs.WQDelayDrop | verbs.WQPCIWriteEndPadding

// wq is a DriverWQ.
type wq struct {
	raw.WQ
	dev *device
}

// CreateWQ makes a work queue.
func (p *pd) CreateWQ(init *verbs.WQInitAttr, up verbs.DriverEvents) (verbs.DriverWQ, error) {
	if err := checkCQs(init.CQ); err != nil {
		return nil, err
	}
	d := p.ctx.dev
	switch {
	case !d.hasFrames():
		return nil, fail(verbs.ENOSYS, "the device has no RAW_PACKET QPs and so no work queues")
	case init.CreateFlags&^wqFlags != 0:
		return nil, fail(verbs.EOPNOTSUPP, "CreateFlags %v: must be among %v", init.CreateFlags&^wqFlags, wqFlags)
	case d.rawUse.wqs.Add(1) > maxWQs:
		d.rawUse.wqs.Add(-1)
		return nil, fail(verbs.ENOMEM, "too many work queues: the device has at most %d", maxWQs)
	}
	w := &wq{dev: d}
	w.Num = d.rawUse.lastWQ.Add(1) & 0xffffff
	w.Queue = transport.NewRecvQueue(int(init.MaxWR), int(init.MaxSGE), false, p.num)
	w.CQ, w.PD, w.Flags = &cqOf(init.CQ).CQ, p.num, raw.RecvFlags(init.CreateFlags)
	w.Fatal = func() { up.Event(verbs.EventWQFatal) }
	init.MaxWR, init.MaxSGE = uint32(w.Queue.Cap()), uint32(w.Queue.MaxSGE())
	p.ctx.frames.AddWQ(&w.WQ)
	return w, nil
}

// WQN returns the queue's number.
func (w *wq) WQN() uint32 { return w.Num }

// State returns the queue's state.
func (w *wq) State() verbs.WQState { return verbs.WQState(w.WQ.State()) }

// Modify changes the state and sets flags.
func (w *wq) Modify(from, to verbs.WQState, flags, mask verbs.WQFlags) error {
	if from == verbs.WQSReset && to == verbs.WQSReady && w.CQ.Broken() {
		return verbsError("", engine.ErrCQOverrun)
	}
	if !w.Move(raw.WQState(from), raw.WQState(to), raw.RecvFlags(flags), raw.RecvFlags(mask)) {
		return fail(verbs.EINVAL, "the queue went to %v by itself", w.State())
	}
	return nil
}

// PostRecv appends receives.
func (w *wq) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if w.State() == verbs.WQSReset {
		return 0, fail(verbs.EINVAL, "the queue is in RESET; move it to RDY first")
	}
	n, err := postRecv(w.Queue, wrs)
	w.Posted()
	return n, err
}

// Destroy removes the queue.
func (w *wq) Destroy() error {
	w.Remove()
	w.dev.rawUse.wqs.Add(-1)
	return nil
}

// indTable is a DriverRWQIndTable.
type indTable struct {
	num uint32
	dev *device
	wqs []*raw.WQ
}

// CreateRWQIndTable makes an indirection table.
func (c *deviceContext) CreateRWQIndTable(wqs []verbs.DriverWQ) (verbs.DriverRWQIndTable, error) {
	u := &c.dev.rawUse
	if u.tables.Add(1) > maxIndTables {
		u.tables.Add(-1)
		return nil, fail(verbs.ENOMEM, "too many indirection tables: the device has at most %d", maxIndTables)
	}
	t := &indTable{num: u.lastWQ.Add(1) & 0xffffff, dev: c.dev}
	for _, w := range wqs {
		t.wqs = append(t.wqs, &w.(*wq).WQ)
	}
	return t, nil
}

// Num returns the table's number.
func (t *indTable) Num() uint32 { return t.num }

// Destroy removes the table.
func (t *indTable) Destroy() error {
	t.dev.rawUse.tables.Add(-1)
	return nil
}
