package verbs

import (
	"syscall"
	"testing"
)

func TestV_QP_01_NewQPIsInReset(t *testing.T) { // V-QPS-01, V-QP-04, V-QP-11
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD} {
		qp, drv := newQP(t, pd, typ)
		if qp.State() != QPSReset || qp.Type() != typ || qp.PD() != pd || qp.Context() != vctx || qp.QPN() != drv.qpn {
			t.Errorf("%v: state %v", qp.Type(), qp.State())
		}
	}
}

func TestV_QP_02_ActualSizes(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	recv, _ := newCQ(t, vctx, nil)
	init := QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: recv, Cap: QPCap{MaxSendWR: 7, MaxInlineData: 256},
		Context: 1, SigAll: true}
	qp := must(pd.CreateQP(&init))(t)
	if init.Cap.MaxSendWR != 8 {
		t.Errorf("%+v", init.Cap)
	}
	if qp.SendCQ() != cq || qp.RecvCQ() != recv || qp.SRQ() != nil || qp.QPContext() != 1 {
		t.Error("the QP has other objects than its attributes")
	}
	drv := qp.drv.(*fakeQP)
	if drv.init.SendCQ != cq || drv.init.RecvCQ != recv || !drv.init.SigAll || drv.init.SRQ != nil {
		t.Errorf("%+v", drv.init)
	}
}

func TestV_QP_03_CQsMustExist(t *testing.T) {
	vctx, _ := openFake(t)
	other, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	foreign, _ := newCQ(t, other, nil)
	closed, _ := newCQ(t, vctx, nil)
	ok(t, closed.Close())
	tests := map[string]QPInitAttr{
		"SendCQ or RecvCQ is nil":    {Type: QPTypeRC, RecvCQ: cq},
		"CQ is nil":                  {Type: QPTypeRC, SendCQ: cq},
		"belongs to another context": {Type: QPTypeRC, SendCQ: foreign, RecvCQ: cq},
		"another context":            {Type: QPTypeRC, SendCQ: cq, RecvCQ: foreign},
		"[send CQ]":                  {Type: QPTypeRC, SendCQ: closed, RecvCQ: cq},
		"[receive CQ]":               {Type: QPTypeRC, SendCQ: cq, RecvCQ: closed},
	}
	for text, init := range tests {
		_, err := pd.CreateQP(&init)
		refused(t, err, EINVAL, "create_qp", text)
	}
	_, err := pd.CreateQP(nil)
	refused(t, err, EINVAL)
	ok(t, cq.Close())
	ok(t, pd.Close())
}

func TestV_QP_05_SRQReplacesReceiveQueue(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	srq, _ := newSRQ(t, pd)
	cq, _ := newCQ(t, vctx, nil)
	init := QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq,
		Cap: QPCap{MaxRecvWR: 1 << 31, MaxRecvSGE: 1 << 31}}
	qp := must(pd.CreateQP(&init))(t)
	drv := qp.drv.(*fakeQP)
	if drv.init.SRQ != srq || drv.init.Cap.MaxRecvWR != 0 || drv.init.Cap.MaxRecvSGE != 0 || qp.SRQ() != srq {
		t.Errorf("%+v", drv.init)
	}
}

func TestV_QP_06_SRQWithTypes(t *testing.T) { // D-04
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	srq, _ := newSRQ(t, pd)
	cq, _ := newCQ(t, vctx, nil)
	for typ, good := range map[QPType]bool{QPTypeRC: true, QPTypeUD: true, QPTypeXRCSend: true, QPTypeUC: false,
		QPTypeRawPacket: false} {
		_, err := pd.CreateQP(&QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq, SRQ: srq})
		if good {
			ok(t, err)
		} else {
			refused(t, err, EINVAL, "cannot have an SRQ")
		}
	}
}

func TestV_QP_07_SeveralQPsShareSRQ(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	srq, _ := newSRQ(t, pd)
	cq, _ := newCQ(t, vctx, nil)
	var qps []*QP
	for range 3 {
		qps = append(qps, must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq}))(t))
	}
	refused(t, srq.Close(), EBUSY, "3 QPs")
	for _, qp := range qps {
		ok(t, qp.Close())
	}
	ok(t, srq.Close())
}

func TestV_QP_09_UnknownTypes(t *testing.T) { // V-QP-08: there is no reliable datagram type
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	for _, typ := range []QPType{0, 1, 5, 11, 1 << 31} {
		_, err := pd.CreateQP(&QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq})
		refused(t, err, EINVAL, "unknown QP type")
	}
}

func TestV_QP_13_SizeRanges(t *testing.T) { // table of section 32
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	tests := map[string]struct{ good, bad QPCap }{
		"MaxSendWR":   {QPCap{MaxSendWR: 128}, QPCap{MaxSendWR: 129}},
		"MaxRecvWR":   {QPCap{MaxRecvWR: 128}, QPCap{MaxRecvWR: 129}},
		"MaxSendSGE":  {QPCap{MaxSendSGE: 8}, QPCap{MaxSendSGE: 9}},
		"MaxRecvSGE":  {QPCap{MaxRecvSGE: 8}, QPCap{MaxRecvSGE: 9}},
		"inline data": {QPCap{MaxInlineData: 256}, QPCap{MaxInlineData: 257}}, // the driver has the limit (V-QP-12)
	}
	for text, tt := range tests {
		ok(t, must(pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: tt.good}))(t).Close())
		init := QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: tt.bad}
		_, err := pd.CreateQP(&init)
		refused(t, err, EINVAL, text)
		if init.Cap != tt.bad {
			t.Errorf("attributes changed: %+v", init.Cap)
		}
	}
	for _, errno := range []Errno{ENOMEM, EOPNOTSUPP, syscall.EPERM} {
		drv.fail["CreateQP"] = errno
		_, err := pd.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq})
		refused(t, err, errno, "create_qp")
	}
	ok(t, cq.Close())
	ok(t, pd.Close())
}

func TestV_QPD_01_DestroyInAnyState(t *testing.T) { // V-QPS-21
	for s := QPSReset; s <= QPSErr; s++ {
		qp, drv := newQPIn(t, QPTypeUD, s)
		drv.sent = []uint64{1}
		ok(t, qp.Close())
		ok(t, qp.PD().Close())
	}
}

func TestQPDestroyFailure(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
	drv.fail["DestroyQP"] = syscall.EIO
	refused(t, qp.Close(), syscall.EIO, "destroy_qp", "RC QP 0x000012")
	if qp.State() != QPSRTS {
		t.Errorf("state %v", qp.State())
	}
	ok(t, qp.PostSend(SendWR{Opcode: WRSend}))
	drv.fail["DestroyQP"] = nil
	ok(t, qp.Close())
}

func TestV_QPD_04_DestroyNeedsDetach(t *testing.T) { // V-MC-06
	qp, drv := newQPIn(t, QPTypeUD, QPSRTS)
	a, b := mustGID("ff0e::1"), mustGID("::ffff:224.0.0.9")
	ok(t, qp.AttachMcast(a, 0))
	ok(t, qp.AttachMcast(b, 0))
	refused(t, qp.Close(), EBUSY, "destroy_qp", "still used by 2 multicast groups")
	if len(drv.groups) != 2 || drv.called("DestroyQP") || qp.State() != QPSRTS {
		t.Error("a failed Close changed the QP")
	}
	ok(t, qp.DetachMcast(a, 0))
	refused(t, qp.Close(), EBUSY, "1 multicast group (")
	ok(t, qp.DetachMcast(b, 0))
	ok(t, qp.Close())
}

func TestV_MC_02_UDOnly(t *testing.T) {
	for _, typ := range []QPType{QPTypeRC, QPTypeUC} {
		qp, _ := newQPIn(t, typ, QPSInit)
		refused(t, qp.AttachMcast(mustGID("ff0e::1"), 0), EINVAL, "attach_mcast", "must be UD")
		refused(t, qp.DetachMcast(mustGID("ff0e::1"), 0), EINVAL, "detach_mcast", "must be UD")
	}
}

func TestV_MC_03_AttachedTwice(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeUD, QPSReset)
	g := mustGID("ff0e::1")
	ok(t, qp.AttachMcast(g, 0))
	ok(t, qp.AttachMcast(g, 0))
	if len(drv.groups) != 1 {
		t.Errorf("%d attachments", len(drv.groups))
	}
	ok(t, qp.DetachMcast(g, 0))
	refused(t, qp.DetachMcast(g, 0), EINVAL, "not attached")
	ok(t, qp.Close())
}

func TestX_MC_01_Groups(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeUD, QPSReset)
	for _, good := range []string{"ff02::1", "ff0e::ffff:224.0.0.9", "::ffff:224.0.0.9", "::ffff:239.1.2.3"} {
		ok(t, qp.AttachMcast(mustGID(good), 0))
		ok(t, qp.DetachMcast(mustGID(good), 0))
	}
	for _, bad := range []string{"fe80::1", "::ffff:192.0.2.1", "::", "::ffff:240.0.0.1"} {
		refused(t, qp.AttachMcast(mustGID(bad), 0), EINVAL, "must be in ff00::/8")
	}
	refused(t, qp.DetachMcast(mustGID("ff02::7"), 0), EINVAL, "not attached to ff02::7")
	drv.fail["AttachMcast"] = ENOMEM
	refused(t, qp.AttachMcast(mustGID("ff02::1"), 0), ENOMEM)
	drv.fail["AttachMcast"] = nil
	ok(t, qp.AttachMcast(mustGID("ff02::1"), 0))
	drv.fail["DetachMcast"] = syscall.EIO
	refused(t, qp.DetachMcast(mustGID("ff02::1"), 0), syscall.EIO)
	refused(t, qp.Close(), EBUSY)

	dev := newFakeDevice()
	dev.ports[0].LinkLayer = LinkLayerInfiniBand
	vctx, _ := openDevice(t, dev)
	ib, drv := newQP(t, newPD(t, vctx), QPTypeUD)
	for lid, good := range map[uint16]bool{0: false, 0xbfff: false, 0xc000: true, 0xfffe: true, 0xffff: false} {
		err := ib.AttachMcast(mustGID("ff02::1"), lid)
		if good {
			ok(t, err)
		} else {
			refused(t, err, EINVAL, "0xc000 to 0xfffe")
		}
	}
	ok(t, ib.AttachMcast(mustGID("ff02::2"), 0xc123))
	if drv.lid != 0xc123 {
		t.Errorf("the device attaches with MLID %#x", drv.lid)
	}
	ok(t, ib.DetachMcast(mustGID("ff02::2"), 0xc124))
	if drv.lid != 0xc124 {
		t.Errorf("the device detaches with MLID %#x", drv.lid)
	}
}
