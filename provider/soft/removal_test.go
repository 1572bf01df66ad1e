package soft

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// removable is a device of an interface that the test removes.
type removable struct {
	*device
	there, now ifaceState
	dev        *verbs.Device
}

func newRemovable() *removable {
	there := ifaceState{iface: "x0", up: true, mtu: 1500, addrs: addrs("192.0.2.1")}
	r := &removable{device: newDevice(spec{name: "vrb_x", iface: "x0"}), there: there, now: there}
	r.ifaceState = func(*spec) ifaceState { return r.now }
	fabric := mem.NewFabric(mem.Config{})
	r.cfg.links.Open = func(a []netip.Addr, ports int) (link.Link, error) {
		l, err := fabric.Open(a, ports)
		return &watched{Link: l}, err
	}
	r.cfg.links.Raw = fabric.OpenRaw
	r.dev = driver.NewDevice(r.device)
	return r
}

// remove removes the interface, restore makes it again.
func (r *removable) remove()  { r.now = ifaceState{iface: "x0", gone: true}; r.refresh() }
func (r *removable) restore() { r.now = r.there; r.refresh() }

// removedObjects are one of each kind, in the order in which they can be destroyed.
type removedObjects struct {
	ctx  *verbs.Context
	pd   *verbs.PD
	ch   *verbs.CompChannel
	cq   *verbs.CQ
	srq  *verbs.SRQ
	qp   *verbs.QP
	mr   *verbs.MR
	mw   *verbs.MW
	dm   *verbs.DM
	ah   *verbs.AH
	xrcd *verbs.XRCD
	attr verbs.AHAttr
	raw  rawObjects
	more sharedObjects
}

// sharedObjects are domains, and a context that imports. A kernel has no part in their end.
type sharedObjects struct {
	td       *verbs.TD
	domain   *verbs.PD
	importer *verbs.Context
	pd       *verbs.PD
	mr       *verbs.MR
	dm       *verbs.DM
	cmdFD    int
}

func (o *removedObjects) makeShared(t *testing.T, dev *verbs.Device) {
	t.Helper()
	m := &o.more
	m.td = made(o.ctx.AllocTD())(t)
	m.domain = made(o.ctx.AllocParentDomain(&verbs.ParentDomainInitAttr{PD: o.pd, TD: m.td}))(t)
	fd, err := o.ctx.CmdFD()
	if errors.Is(err, verbs.ErrNotSupported) {
		t.Skip("contexts have no descriptor on this system: ", err)
	}
	m.cmdFD = made(fd, err)(t)
	m.importer = made(dev.Open())(t)
	m.pd = made(m.importer.ImportPD(o.pd.Handle()))(t)
	m.mr = made(m.pd.ImportMR(o.mr.Handle()))(t)
	m.dm = made(m.importer.ImportDM(o.dm.Handle()))(t)
}

// close succeeds with and without a device.
func (m *sharedObjects) close() error {
	return errors.Join(m.domain.Close(), m.td.Close(), m.mr.Close(), m.dm.Close(), m.pd.Close(), m.importer.Close())
}

// sharedCalls are the calls of domains and imports.
func (o *removedObjects) sharedCalls() map[string]func() error {
	m := &o.more
	return map[string]func() error{
		"alloc_td": func() error { _, err := o.ctx.AllocTD(); return err },
		"alloc_parent_domain": func() error {
			_, err := o.ctx.AllocParentDomain(&verbs.ParentDomainInitAttr{PD: o.pd, TD: m.td})
			return err
		},
		"cmd_fd":        func() error { _, err := o.ctx.CmdFD(); return err },
		"import_device": func() error { _, err := verbs.ImportDevice(m.cmdFD); return err },
		"import_pd":     func() error { _, err := m.importer.ImportPD(o.pd.Handle()); return err },
		"import_mr":     func() error { _, err := m.pd.ImportMR(o.mr.Handle()); return err },
		"import_dm":     func() error { _, err := m.importer.ImportDM(o.dm.Handle()); return err },
	}
}

// rawObjects are those of Ethernet frames.
type rawObjects struct {
	qp       *verbs.QP
	wq       *verbs.WQ
	table    *verbs.RWQIndTable
	counters *verbs.Counters
	flow     *verbs.Flow
}

func (o *removedObjects) makeRaw(t *testing.T) {
	t.Helper()
	r := &o.raw
	r.qp = made(o.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: o.cq, RecvCQ: o.cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	r.wq = made(o.ctx.CreateWQ(&verbs.WQInitAttr{MaxWR: 1, MaxSGE: 1, PD: o.pd, CQ: o.cq}))(t)
	r.table = made(o.ctx.CreateRWQIndTable(&verbs.RWQIndTableInitAttr{IndTbl: []*verbs.WQ{r.wq}}))(t)
	r.counters = made(o.ctx.CreateCounters())(t)
	r.flow = made(r.qp.CreateFlow(&verbs.FlowAttr{Port: 1, Specs: []verbs.FlowSpec{verbs.FlowSpecEth{}}}))(t)
}

func newObjects(t *testing.T, dev *verbs.Device) *removedObjects {
	t.Helper()
	o := &removedObjects{ctx: made(dev.Open())(t)}
	o.pd = made(o.ctx.AllocPD())(t)
	o.ch = made(o.ctx.CreateCompChannel())(t)
	o.cq = made(o.ctx.CreateCQ(8, &verbs.CQOptions{Channel: o.ch}))(t)
	o.srq = made(o.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1}}))(t)
	o.qp = made(o.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: o.cq, RecvCQ: o.cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	o.mr = made(o.pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))(t)
	o.mw = made(o.pd.AllocMW(verbs.MWType2))(t)
	o.dm = made(o.ctx.AllocDM(verbs.AllocDMAttr{Length: 64}))(t)
	const own = 1 // the entry of the address
	o.attr = verbs.AHAttr{PortNum: 1, IsGlobal: true,
		GRH: verbs.GlobalRoute{DGID: made(o.ctx.QueryGID(1, own))(t), SGIDIndex: own}}
	o.ah = made(o.pd.CreateAH(&o.attr))(t)
	o.xrcd = made(o.ctx.OpenXRCD(nil))(t)
	o.makeRaw(t)
	o.makeShared(t, dev)
	return o
}

// calls are those that a kernel would answer, except destructions.
func (o *removedObjects) calls() map[string]func() error {
	group := verbs.GIDFromAddr(netip.MustParseAddr("ff0e::1"))
	return map[string]func() error{
		"query_device":    func() error { _, err := o.ctx.QueryDevice(); return err },
		"query_port":      func() error { _, err := o.ctx.QueryPort(1); return err },
		"query_gid":       func() error { _, err := o.ctx.QueryGID(1, 0); return err },
		"query_gid_table": func() error { _, err := o.ctx.QueryGIDTable(); return err },
		"query_pkey":      func() error { _, err := o.ctx.QueryPKey(1, 0); return err },
		"get_pkey_index":  func() error { _, err := o.ctx.PKeyIndex(1, 0xffff); return err },
		"select_gid":      func() error { _, err := o.ctx.SelectGID(1, netip.MustParseAddr("192.0.2.2")); return err },
		"query_rt_values": func() error { _, err := o.ctx.QueryRTValues(); return err },
		"alloc_pd":        func() error { _, err := o.ctx.AllocPD(); return err },
		"create_channel":  func() error { _, err := o.ctx.CreateCompChannel(); return err },
		"create_cq":       func() error { _, err := o.ctx.CreateCQ(1, nil); return err },
		"resize_cq":       func() error { return o.cq.Resize(16) },
		"modify_cq":       func() error { return o.cq.Modify(&verbs.ModifyCQAttr{}) },
		"create_srq": func() error {
			_, err := o.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}})
			return err
		},
		"query_srq":  func() error { _, err := o.srq.Query(); return err },
		"modify_srq": func() error { return o.srq.Modify(&verbs.SRQAttr{SRQLimit: 1}, verbs.SRQAttrLimit) },
		"create_qp": func() error {
			_, err := o.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: o.cq, RecvCQ: o.cq})
			return err
		},
		"query_qp": func() error { _, _, err := o.qp.Query(verbs.QPAttrState); return err },
		"modify_qp": func() error {
			return o.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)
		},
		"attach_mcast":         func() error { return o.qp.AttachMcast(group, 0) },
		"detach_mcast":         func() error { return o.qp.DetachMcast(group, 0) },
		"query_ece":            func() error { _, err := o.qp.QueryECE(); return err },
		"set_ece":              func() error { return o.qp.SetECE(verbs.ECE{}) },
		"set_keepalive":        func() error { return o.qp.SetKeepAlive(0) },
		"modify_qp_rate_limit": func() error { return o.qp.ModifyRateLimit(&verbs.QPRateLimitAttr{}) },
		"reg_mr":               func() error { _, err := o.pd.RegMR(make([]byte, 8), 0); return err },
		"rereg_mr": func() error {
			return o.mr.Rereg(verbs.ReregChangeAccess, nil, nil, verbs.AccessLocalWrite)
		},
		"reg_dm_mr": func() error {
			_, err := o.pd.RegDMMR(o.dm, 0, 8, verbs.AccessZeroBased)
			return err
		},
		"advise_mr":       func() error { return o.pd.AdviseMR(verbs.AdvicePrefetch, 0, o.mr.SGE(0, 1)) },
		"alloc_null_mr":   func() error { _, err := o.pd.AllocNullMR(); return err },
		"alloc_mw":        func() error { _, err := o.pd.AllocMW(verbs.MWType1); return err },
		"alloc_dm":        func() error { _, err := o.ctx.AllocDM(verbs.AllocDMAttr{Length: 8}); return err },
		"create_ah":       func() error { _, err := o.pd.CreateAH(&o.attr); return err },
		"open_xrcd":       func() error { _, err := o.ctx.OpenXRCD(nil); return err },
		"create_counters": func() error { _, err := o.ctx.CreateCounters(); return err },
		"create_wq": func() error {
			_, err := o.ctx.CreateWQ(&verbs.WQInitAttr{MaxWR: 1, MaxSGE: 1, PD: o.pd, CQ: o.cq})
			return err
		},
		"modify_wq": func() error {
			return o.raw.wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSReady})
		},
		"create_rwq_ind_table": func() error {
			_, err := o.ctx.CreateRWQIndTable(&verbs.RWQIndTableInitAttr{IndTbl: []*verbs.WQ{o.raw.wq}})
			return err
		},
		"create_flow": func() error {
			_, err := o.raw.qp.CreateFlow(&verbs.FlowAttr{Port: 1, Specs: []verbs.FlowSpec{verbs.FlowSpecEth{}}})
			return err
		},
		"attach_counters": func() error {
			return o.raw.counters.AttachPointFlow(&verbs.CounterAttachAttr{}, nil)
		},
		"attach_counters_flow": func() error {
			return o.raw.counters.AttachPointFlow(&verbs.CounterAttachAttr{}, o.raw.flow)
		},
		"read_counters": func() error { return o.raw.counters.Read(make([]uint64, 1), 0) },
		"get_cq_event":  func() error { _, err := o.ch.GetEvent(context.Background()); return err },
		"try_cq_event":  func() error { _, err := o.ch.TryGetEvent(); return err },
		"wait_cq": func() error {
			_, err := o.cq.Wait(context.Background(), make([]verbs.WC, 1))
			return err
		},
	}
}

// destroy destroys the objects and returns the results.
func (o *removedObjects) destroy() map[string]error {
	results := map[string]error{}
	for _, x := range []struct {
		name string
		o    interface{ Close() error }
	}{
		{"flow", o.raw.flow}, {"counters", o.raw.counters}, {"table", o.raw.table}, {"wq", o.raw.wq}, {"raw qp", o.raw.qp},
		{"qp", o.qp}, {"srq", o.srq}, {"cq", o.cq}, {"ah", o.ah}, {"mw", o.mw}, {"mr", o.mr}, {"dm", o.dm}, {"xrcd", o.xrcd},
		{"pd", o.pd},
	} {
		results[x.name] = x.o.Close()
	}
	return results
}

const allowDestroy = "RDMAV_ALLOW_DISASSOC_DESTROY"

// TestV_ENV_02_V_AE_25_DestroyAfterRemoval: after the interface of a device was deleted, the destruction of its objects
// returns EIO, or nothing if the variable is set. The objects are gone in both cases: the context can be closed.
// The device works again, for contexts that are opened then, when the interface is back.
func TestV_ENV_02_V_AE_25_DestroyAfterRemoval(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		t.Setenv(allowDestroy, "1")
		if !allowed {
			_ = os.Unsetenv(allowDestroy)
		}
		r := newRemovable()
		o := newObjects(t, r.dev)
		r.remove()
		if err := o.more.close(); err != nil {
			t.Errorf("allowed %v: end of domains and imports: %v", allowed, err)
		}
		for name, err := range o.destroy() {
			if allowed && err != nil || !allowed && !errors.Is(err, syscall.EIO) {
				t.Errorf("allowed %v: destroy of the %s: %v", allowed, name, err)
			}
		}
		if err := o.qp.Close(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("a second destruction: %v", err)
		}
		if err := errors.Join(o.ch.Close(), o.ctx.Close()); err != nil { // in C only descriptors are closed
			t.Error(err)
		}
		r.restore()
		back := newObjects(t, r.dev)
		if err := back.more.close(); err != nil {
			t.Error("after the return:", err)
		}
		for name, err := range back.destroy() {
			if err != nil {
				t.Errorf("after the return: destroy of the %s: %v", name, err)
			}
		}
		if err := errors.Join(back.ch.Close(), back.ctx.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestV_ENV_02_CallsAfterRemoval: all calls that a kernel would answer return EIO after the removal of the device, also
// those that waited, and after the interface has returned. Events that were raised before are still delivered. Polling
// and closing work.
func TestV_ENV_02_CallsAfterRemoval(t *testing.T) {
	r := newRemovable()
	o := newObjects(t, r.dev)
	waiting := make(chan error, 1)
	go func() {
		_, err := o.ch.GetEvent(context.Background())
		waiting <- err
	}()
	r.remove()
	select {
	case err := <-waiting:
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("the call that waited: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a call still waits for an event")
	}
	for _, want := range []verbs.EventType{verbs.EventGIDChange, verbs.EventPortErr, verbs.EventDeviceFatal} {
		ev, err := o.ctx.GetAsyncEvent(context.Background())
		if err != nil || ev.Type != want {
			t.Errorf("event %v, %v; want %v", ev.Type, err, want)
		}
		ev.Ack()
	}
	for range 2 {
		if _, err := o.ctx.GetAsyncEvent(context.Background()); !errors.Is(err, syscall.EIO) {
			t.Errorf("get_async_event: %v", err)
		}
		calls := o.calls()
		maps.Copy(calls, o.sharedCalls())
		for name, call := range calls {
			if err := call(); !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n, err := o.cq.Poll(make([]verbs.WC, 1)); n != 0 || err != nil {
			t.Errorf("poll_cq: %d, %v", n, err)
		}
		r.restore() // the context stays as it is
		for _, err := o.ctx.TryGetAsyncEvent(); err == nil; _, err = o.ctx.TryGetAsyncEvent() {
		}
	}
	later := made(r.dev.Open())(t)
	if _, err := later.ImportPD(o.pd.Handle()); !errors.Is(err, syscall.EIO) {
		t.Errorf("import_pd from a removed context: %v", err)
	}
	if err := errors.Join(later.Close(), o.more.close()); err != nil {
		t.Error(err)
	}
	o.destroy()
	if err := errors.Join(o.ch.Close(), o.ctx.Close()); err != nil {
		t.Error(err)
	}
}
