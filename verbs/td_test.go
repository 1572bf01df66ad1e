package verbs

import "testing"

func TestV_TD_01_Attributes(t *testing.T) {
	vctx, _ := openFake(t)
	td := must(vctx.AllocTD())(t)
	if td.Context() != vctx {
		t.Error("another context")
	}
	refused(t, vctx.Close(), EBUSY, "1 TD")
	ok(t, td.Close())
	refused(t, td.Close(), EINVAL, "dealloc_td")
	ok(t, vctx.Close())
	_, err := vctx.AllocTD()
	refused(t, err, EINVAL, "alloc_td", "closed")
}

func TestV_TD_02_V_TD_03_D_28_V_WR_07_NoLocksWithinATD(t *testing.T) { // CQs: TestV_CQX_10_BatchesExcludeEachOther
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	td := must(vctx.AllocTD())(t)
	with := must(vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd, TD: td}))(t)
	without := must(vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd}))(t)
	for _, c := range []struct {
		pd       *PD
		unlocked bool
	}{{pd, false}, {without, false}, {with, true}} {
		x, _ := newEx(t, c.pd, QPTypeRC)
		x.Start()
		if free := x.mu.TryLock(); free != c.unlocked {
			t.Errorf("free %v, want %v", free, c.unlocked)
		} else if free {
			x.mu.Unlock()
		}
		ok(t, x.Complete())
	}
}

func TestV_TD_04_CloseNeedsUsersGone(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	td := must(vctx.AllocTD())(t)
	parent := must(vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd, TD: td}))(t)
	refused(t, td.Close(), EBUSY, "1 parent domain")
	refused(t, pd.Close(), EBUSY, "1 parent domain")
	qp, _ := newQP(t, parent, QPTypeRC)
	refused(t, parent.Close(), EBUSY, "dealloc_pd", "1 QP")
	ok(t, qp.Close())
	ok(t, parent.Close())
	refused(t, parent.Close(), EINVAL)
	ok(t, td.Close())
	ok(t, pd.Close())
}

func TestX_TD_01_ParentDomainIsAPD(t *testing.T) {
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	parent := must(vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd, PDContext: "mine"}))(t)
	if parent.Context() != vctx || parent.PDContext() != "mine" || pd.PDContext() != nil {
		t.Errorf("%+v", parent)
	}
	// Objects of a parent domain and of its PD can be combined.
	for _, p := range [][2]*PD{{pd, parent}, {parent, pd}} {
		srq, _ := newSRQ(t, p[0])
		cq, _ := newCQ(t, vctx, nil)
		qp := must(p[1].CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq}))(t)
		ud, udDrv := newQP(t, p[0], QPTypeUD)
		forceState(ud, udDrv, QPSRTS)
		attr := goodAH()
		ah := must(p[1].CreateAH(&attr))(t)
		ok(t, ud.PostSend(SendWR{Opcode: WRSend, AH: ah}))
		mr := must(p[0].RegMR(make([]byte, 8), 0))(t)
		ok(t, mr.Rereg(ReregChangePD, p[1], nil, 0))
		for _, c := range []interface{ Close() error }{mr, ah, ud, qp, srq, cq} {
			ok(t, c.Close())
		}
	}
	other, _ := openFake(t)
	otherPD, otherTD := newPD(t, other), must(other.AllocTD())(t)
	for _, bad := range []*ParentDomainInitAttr{nil, {}, {PD: parent}, {PD: otherPD}, {PD: pd, TD: otherTD}} {
		_, err := vctx.AllocParentDomain(bad)
		refused(t, err, EINVAL, "alloc_parent_domain")
	}
	td := must(vctx.AllocTD())(t)
	ok(t, td.Close())
	_, err := vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd, TD: td})
	refused(t, err, EINVAL, "closed")
	if drv.called("Dealloc") {
		t.Error("the driver freed a PD")
	}
	ok(t, parent.Close())
	ok(t, pd.Close())
	_, err = vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd})
	refused(t, err, EINVAL, "closed")
}
