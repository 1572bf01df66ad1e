package verbs

import (
	"errors"
	"syscall"
	"testing"
)

func newSRQ(t *testing.T, pd *PD) (*SRQ, *fakeSRQ) {
	t.Helper()
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 10, MaxSGE: 2}}))(t)
	return srq, srq.drv.(*fakeSRQ)
}

func TestV_SRQ_01_V_SRQ_02_V_SRQ_03_ActualSizes(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	init := SRQInitAttr{Context: "mine", Attr: SRQAttr{MaxWR: 9, MaxSGE: 2, SRQLimit: 5}}
	srq := must(pd.CreateSRQ(&init))(t)
	if init.Attr != (SRQAttr{MaxWR: 10, MaxSGE: 2}) {
		t.Errorf("%+v", init.Attr)
	}
	if srq.SRQContext() != "mine" || srq.PD() != pd || srq.Context() != vctx {
		t.Error("the SRQ has other objects than its attributes")
	}
	if attr := must(srq.Query())(t); attr.SRQLimit != 0 {
		t.Errorf("a new SRQ has the limit %d", attr.SRQLimit)
	}
}

func TestV_SRQ_06_Ranges(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	for _, bad := range []SRQAttr{{0, 1, 0}, {65, 1, 0}, {1 << 31, 1, 0}, {1, 0, 0}, {1, 5, 0}} {
		init := SRQInitAttr{Attr: bad}
		_, err := pd.CreateSRQ(&init)
		refused(t, err, EINVAL, "create_srq")
		if init.Attr != bad {
			t.Errorf("attributes changed: %+v", init.Attr)
		}
	}
	for _, good := range []SRQAttr{{1, 1, 0}, {64, 4, 0}} {
		ok(t, must(pd.CreateSRQ(&SRQInitAttr{Attr: good}))(t).Close())
	}
	_, err := pd.CreateSRQ(nil)
	refused(t, err, EINVAL)
	drv.fail["CreateSRQ"] = ENOMEM
	_, err = pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}})
	refused(t, err, ENOMEM)
	ok(t, pd.Close())
}

func TestV_QDEV_04_NoSRQIsENOSYS(t *testing.T) {
	dev := newFakeDevice()
	dev.attr.MaxSRQ = 0
	vctx, _ := openDevice(t, dev)
	_, err := newPD(t, vctx).CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}})
	refused(t, err, ENOSYS, "no SRQs")
}

func TestV_SRQ_08_ModifyIsAllOrNothing(t *testing.T) {
	vctx, drv := openFake(t)
	srq, _ := newSRQ(t, newPD(t, vctx))
	tests := map[string]struct {
		attr SRQAttr
		mask SRQAttrMask
	}{
		"MaxWR 0":            {SRQAttr{0, 1, 5}, SRQAttrMaxWR | SRQAttrLimit},
		"MaxWR 65":           {SRQAttr{65, 1, 5}, SRQAttrMaxWR | SRQAttrLimit},
		"MaxSGE 5":           {SRQAttr{5, 5, 5}, SRQAttrMaxWR | SRQAttrLimit},
		"limit 11":           {SRQAttr{0, 0, 11}, SRQAttrLimit},
		"limit 21":           {SRQAttr{20, 1, 21}, SRQAttrMaxWR | SRQAttrLimit},
		"unknown attributes": {SRQAttr{20, 1, 5}, SRQAttrMaxWR | 4},
	}
	for text, tt := range tests {
		attr := tt.attr
		refused(t, srq.Modify(&attr, tt.mask), EINVAL, "modify_srq", text)
		if attr != tt.attr {
			t.Errorf("%s: attributes changed: %+v", text, attr)
		}
	}
	refused(t, srq.Modify(nil, SRQAttrLimit), EINVAL)
	drv.fail["ModifySRQ"] = ENOMEM
	refused(t, srq.Modify(&SRQAttr{SRQLimit: 5}, SRQAttrLimit), ENOMEM)
	if now := must(srq.Query())(t); now != (SRQAttr{10, 2, 0}) {
		t.Errorf("%+v", now)
	}
}

// With SRQAttrLimit alone the sizes in the attributes have no effect. If the driver cannot query the SRQ, it is not
// asked to change it.
func TestV_SRQ_08_LimitAlone(t *testing.T) {
	vctx, drv := openFake(t)
	srq, _ := newSRQ(t, newPD(t, vctx))
	ok(t, srq.Modify(&SRQAttr{MaxWR: 1, MaxSGE: 1, SRQLimit: 3}, SRQAttrLimit))
	ok(t, srq.PostRecv(RecvWR{SGList: make([]SGE, 2)}))
	drv.calls, drv.fail["QuerySRQ"] = nil, syscall.EIO
	attr := SRQAttr{SRQLimit: 4}
	refused(t, srq.Modify(&attr, SRQAttrLimit), syscall.EIO, "modify_srq")
	if drv.called("ModifySRQ") || attr != (SRQAttr{SRQLimit: 4}) {
		t.Errorf("calls %v, attributes %+v", drv.calls, attr)
	}
}

func TestV_SRQ_07_ModifyMask(t *testing.T) { // V-SRQ-16, V-SRQ-20 (E-11)
	vctx, drv := openFake(t)
	srq, _ := newSRQ(t, newPD(t, vctx))
	ok(t, srq.Modify(&SRQAttr{99, 99, 99}, 0)) // an empty mask changes nothing
	if drv.called("ModifySRQ") {
		t.Error("the driver was called")
	}
	ok(t, srq.Modify(&SRQAttr{MaxWR: 999, SRQLimit: 10}, SRQAttrLimit)) // the limit alone
	if now := must(srq.Query())(t); now != (SRQAttr{10, 2, 10}) {
		t.Errorf("%+v", now)
	}
	fewer := SRQAttr{MaxWR: 12} // as C programs leave max_sge, which is irrelevant for ibv_modify_srq
	ok(t, srq.Modify(&fewer, SRQAttrMaxWR))
	if now := must(srq.Query())(t); now != (SRQAttr{12, 2, 10}) || fewer.MaxSGE != 2 {
		t.Errorf("%+v, attributes %+v", now, fewer)
	}
	attr := SRQAttr{MaxWR: 21, MaxSGE: 1, SRQLimit: 21}
	ok(t, srq.Modify(&attr, SRQAttrMaxWR|SRQAttrLimit))
	if now := must(srq.Query())(t); now != (SRQAttr{22, 1, 21}) || attr.MaxWR != 22 {
		t.Errorf("%+v, attributes %+v", now, attr)
	}
	// The new size applies to requests.
	refused(t, srq.PostRecv(RecvWR{SGList: make([]SGE, 2)}), EINVAL, "must be 0 to 1")
}

func TestV_SRQ_14_ResizeNeedsCapability(t *testing.T) {
	dev := newFakeDevice()
	dev.attr.DeviceCapFlags = 0
	vctx, _ := openDevice(t, dev)
	srq, _ := newSRQ(t, newPD(t, vctx))
	refused(t, srq.Modify(&SRQAttr{MaxWR: 20, MaxSGE: 1}, SRQAttrMaxWR), ENOSYS, "does not resize")
	ok(t, srq.Modify(&SRQAttr{SRQLimit: 1}, SRQAttrLimit))
}

func TestV_SRQ_19_DestroyNeedsQPsGone(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	srq, _ := newSRQ(t, pd)
	cq, _ := newCQ(t, vctx, nil)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq}))(t)
	refused(t, srq.Close(), EBUSY, "destroy_srq", "still used by 1 QP (")
	ok(t, srq.PostRecv(RecvWR{}))
	ok(t, qp.Close())
	drv.fail["DestroySRQ"] = syscall.EIO
	refused(t, srq.Close(), syscall.EIO)
	drv.fail["DestroySRQ"] = nil
	ok(t, srq.Close()) // V-SRQ-18: with requests in it
	ok(t, pd.Close())
}

func TestV_RECV_08_SRQPostStopsAtTheFirstBadOne(t *testing.T) {
	vctx, _ := openFake(t)
	srq, drv := newSRQ(t, newPD(t, vctx))
	err := srq.PostRecv(RecvWR{WRID: 1}, RecvWR{WRID: 2, SGList: make([]SGE, 2)},
		RecvWR{WRID: 3, SGList: make([]SGE, 3)}, RecvWR{WRID: 4})
	var post *PostError
	if !errors.As(err, &post) || post.Index != 2 {
		t.Errorf("%v", err)
	}
	refused(t, err, EINVAL, "request 2: post_srq_recv", "3 SGEs: must be")
	drv.room = 3
	err = srq.PostRecv(RecvWR{WRID: 5}, RecvWR{WRID: 6})
	refused(t, err, ENOMEM, "request 1") // X-RECV-02
	if len(drv.posted) != 3 || drv.posted[2] != 5 {
		t.Errorf("posted %v", drv.posted)
	}
	ok(t, srq.PostRecv())
}
