package verbs

import "testing"

// The raw packet objects of the fake driver.

func (q *fakeQP) CreateFlow(attr *FlowAttr) (DriverHandle, error) {
	return &fakeFlow{q.fakeContext, attr}, q.call("CreateFlow")
}

type fakeFlow struct {
	*fakeContext
	attr *FlowAttr
}

func (f *fakeFlow) Destroy() error { return f.call("DestroyFlow") }

func (q *fakeQP) ModifyRateLimit(attr QPRateLimitAttr) error {
	q.attr.RateLimit = attr.RateLimit
	return q.call("ModifyRateLimit")
}

func (c *fakeContext) CreateCounters() (DriverCounters, error) {
	return &fakeCounters{fakeContext: c}, c.call("CreateCounters")
}

func (c *fakeContext) CreateFlowActionESP(attr *FlowActionESPAttr) (DriverFlowAction, error) {
	return &fakeAction{c, attr}, c.call("CreateFlowActionESP")
}

type fakeAction struct {
	*fakeContext
	attr *FlowActionESPAttr
}

func (a *fakeAction) ModifyESP(attr *FlowActionESPAttr) error {
	a.attr = attr
	return a.call("ModifyESP")
}

func (a *fakeAction) Destroy() error { return a.call("DestroyFlowAction") }

type fakeCounters struct {
	*fakeContext
	packets, bytes uint64
}

func (c *fakeCounters) Attach(DriverHandle) error { return c.call("AttachCounters") }
func (c *fakeCounters) Destroy() error            { return c.call("DestroyCounters") }

func (c *fakeCounters) Read() (packets, bytes uint64, err error) {
	return c.packets, c.bytes, c.call("ReadCounters")
}

func (p *fakePD) CreateWQ(init *WQInitAttr, up DriverEvents) (DriverWQ, error) {
	asked := *init
	init.MaxWR += init.MaxWR % 2
	return &fakeWQ{fakeContext: p.fakeContext, up: up, init: asked}, p.call("CreateWQ")
}

type fakeWQ struct {
	*fakeContext
	up       DriverEvents
	init     WQInitAttr
	state    WQState
	flags    WQFlags
	mask     WQFlags
	received []uint64
}

func (*fakeWQ) WQN() uint32      { return 5 }
func (w *fakeWQ) State() WQState { return w.state }
func (w *fakeWQ) Destroy() error { return w.call("DestroyWQ") }

func (w *fakeWQ) Modify(_, to WQState, flags, mask WQFlags) error {
	if err := w.call("ModifyWQ"); err != nil {
		return err
	}
	w.state, w.flags, w.mask = to, flags, mask
	return nil
}

func (w *fakeWQ) PostRecv(wrs []RecvWR) (int, error) { return fakePostRecv(&w.received, 2, wrs) }

func (c *fakeContext) CreateRWQIndTable(wqs []DriverWQ) (DriverRWQIndTable, error) {
	return &fakeIndTable{c, len(wqs)}, c.call("CreateRWQIndTable")
}

type fakeIndTable struct {
	*fakeContext
	n int
}

func (*fakeIndTable) Num() uint32      { return 6 }
func (t *fakeIndTable) Destroy() error { return t.call("DestroyRWQIndTable") }

// openSteering opens a fake device with flow steering.
func openSteering(t testing.TB) (*Context, *fakeContext) {
	t.Helper()
	dev := newFakeDevice()
	dev.attr.DeviceCapFlags |= DeviceManagedFlowSteering
	return openDevice(t, dev)
}

func newWQ(t testing.TB, vctx *Context) (*WQ, *fakeWQ) {
	t.Helper()
	cq, _ := newCQ(t, vctx, nil)
	wq := must(vctx.CreateWQ(&WQInitAttr{MaxWR: 3, MaxSGE: 2, PD: newPD(t, vctx), CQ: cq}))(t)
	return wq, wq.drv.(*fakeWQ)
}
