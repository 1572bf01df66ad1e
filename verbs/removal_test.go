package verbs

import (
	"errors"
	"syscall"
	"testing"
)

// TestV_ENV_02_CallsAfterRemoval: the calls that a kernel would answer return EIO after the removal of the device, and
// do not reach the driver.
func TestV_ENV_02_CallsAfterRemoval(t *testing.T) {
	vctx, drv := openSteering(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	qp, _ := newQP(t, pd, QPTypeRawPacket)
	mr := must(pd.RegMR(make([]byte, 8), 0))(t)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	wq, _ := newWQ(t, vctx)
	counters := must(vctx.CreateCounters())(t)
	way, init := goodAH(), exInit(t, pd, QPTypeRC)
	drv.up.DeviceEvent(EventClientReregister) // another event
	must(vctx.QueryPort(1))(t)
	drv.up.DeviceEvent(EventDeviceFatal)
	drv.up.DeviceEvent(EventDeviceFatal) // a second one has no effect
	drv.calls = nil
	for name, call := range map[string]func() error{
		"alloc_pd":     func() error { _, err := vctx.AllocPD(); return err },
		"alloc_td":     func() error { _, err := vctx.AllocTD(); return err },
		"create_cq":    func() error { _, err := vctx.CreateCQ(1, nil); return err },
		"resize_cq":    func() error { return cq.Resize(5) },
		"modify_cq":    func() error { return cq.Modify(&ModifyCQAttr{}) },
		"create_qp":    func() error { _, err := pd.CreateQP(init); return err },
		"query_qp":     func() error { _, _, err := qp.Query(0); return err },
		"modify_qp":    func() error { return qp.Modify(&QPAttr{QPState: QPSErr}, QPAttrState) },
		"query_ece":    func() error { _, err := qp.QueryECE(); return err },
		"set_ece":      func() error { return qp.SetECE(ECE{}) },
		"create_flow":  func() error { _, err := qp.CreateFlow(&FlowAttr{Port: 1}); return err },
		"create_ah":    func() error { _, err := pd.CreateAH(&way); return err },
		"alloc_mw":     func() error { _, err := pd.AllocMW(MWType1); return err },
		"reg_mr":       func() error { _, err := pd.RegMR(make([]byte, 8), 0); return err },
		"rereg_mr":     func() error { return mr.Rereg(ReregChangeAccess, nil, nil, 0) },
		"query_srq":    func() error { _, err := srq.Query(); return err },
		"modify_srq":   func() error { return srq.Modify(&SRQAttr{}, SRQAttrLimit) },
		"modify_wq":    func() error { return wq.Modify(&WQAttr{AttrMask: WQAttrState, State: WQSReady}) },
		"query_device": func() error { _, err := vctx.QueryDevice(); return err },
		"query_port":   func() error { _, err := vctx.QueryPort(1); return err },
		"create_srq": func() error {
			_, err := pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}})
			return err
		},
		"create_wq": func() error {
			_, err := vctx.CreateWQ(&WQInitAttr{MaxWR: 1, MaxSGE: 1, PD: pd, CQ: cq})
			return err
		},
		"create_rwq_ind_table": func() error {
			_, err := vctx.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{wq}})
			return err
		},
		"modify_qp_rate_limit": func() error { return qp.ModifyRateLimit(&QPRateLimitAttr{}) },
		"create_counters":      func() error { _, err := vctx.CreateCounters(); return err },
		"read_counters":        func() error { return counters.Read(make([]uint64, 1), 0) },
		"attach_counters_point_flow": func() error {
			return counters.AttachPointFlow(&CounterAttachAttr{}, nil)
		},
	} {
		refused(t, call(), syscall.EIO, name, "the device was removed")
	}
	if len(drv.calls) != 0 {
		t.Errorf("calls of the driver: %v", drv.calls)
	}
}

// A QP that was attached to a group when its device was removed can be destroyed, as other objects can.
func TestV_ENV_02_V_QPD_04_GroupsEndWithTheDevice(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	qp, _ := newQP(t, pd, QPTypeUD)
	group := mustGID("ff0e::1")
	ok(t, qp.AttachMcast(group, 0))
	ok(t, qp.AttachMcast(mustGID("ff0e::2"), 0))
	refused(t, qp.Close(), EBUSY, "2 multicast groups")
	drv.up.DeviceEvent(EventDeviceFatal)
	refused(t, qp.DetachMcast(group, 0), syscall.EIO, "the device was removed")
	refused(t, qp.Close(), syscall.EIO, "the object is destroyed")
	refused(t, qp.SendCQ().Close(), syscall.EIO, "the object is destroyed")
	refused(t, pd.Close(), syscall.EIO, "the object is destroyed")
	ok(t, vctx.Close())
}

// After the removal a queue returns the events that are in it, and then EIO.
func TestEventsAfterRemoval(t *testing.T) {
	vctx, drv := openFake(t)
	ch, closed := must(vctx.CreateCompChannel())(t), must(vctx.CreateCompChannel())(t)
	cq, cqDrv := newCQ(t, vctx, &CQOptions{Channel: ch})
	ok(t, closed.Close())
	if list := vctx.channels.list(); len(list) != 1 || list[0] != ch {
		t.Errorf("channels %v, want the open one", list)
	}
	cqDrv.up.Completion()
	drv.up.DeviceEvent(EventDeviceFatal)
	if got := must(ch.GetEvent(t.Context()))(t); got != cq {
		t.Errorf("event of %v", got)
	}
	if ev := must(vctx.GetAsyncEvent(t.Context()))(t); ev.Type != EventDeviceFatal {
		t.Errorf("%+v", ev)
	}
	for range 2 {
		_, err := ch.GetEvent(t.Context())
		refused(t, err, syscall.EIO, "the device was removed")
		_, err = ch.TryGetEvent()
		refused(t, err, syscall.EIO, "the device was removed")
		_, err = vctx.GetAsyncEvent(t.Context())
		refused(t, err, syscall.EIO, "the device was removed")
		_, err = vctx.TryGetAsyncEvent()
		refused(t, err, syscall.EIO, "the device was removed")
	}
	_, err := vctx.CreateCompChannel()
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("a new channel: %v", err)
	}
}
