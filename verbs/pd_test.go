package verbs

import (
	"syscall"
	"testing"
)

func TestV_PD_01_AllocAndDealloc(t *testing.T) { // E-09
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	if pd.Context() != vctx {
		t.Error("context")
	}
	ok(t, pd.Close())
	drv.fail["AllocPD"] = ENOMEM
	_, err := vctx.AllocPD()
	refused(t, err, ENOMEM, "alloc_pd")
	ok(t, vctx.Close())
}

func TestV_PD_03_DeallocNeedsMembersGone(t *testing.T) { // V-PD-04, D-30
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	attr := AHAttr{PortNum: 1, IsGlobal: true, GRH: GlobalRoute{DGID: mustGID("::ffff:192.0.2.2"), SGIDIndex: 1}}
	ah := must(pd.CreateAH(&attr))(t)
	mr, mr2 := must(pd.RegMR(make([]byte, 8), 0))(t), must(pd.RegMR(make([]byte, 8), 0))(t)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 4, MaxSGE: 1}}))(t)
	qp, _ := newQP(t, pd, QPTypeUD)
	refused(t, pd.Close(), EBUSY, "dealloc_pd", "still used by 2 MRs, 1 QP, 1 SRQ, 1 AH")
	for _, m := range []interface{ Close() error }{mr, mr2, srq, ah, qp} {
		refused(t, pd.Close(), EBUSY)
		ok(t, m.Close())
	}
	if drv.called("Dealloc") {
		t.Error("the driver was asked")
	}
	drv.fail["Dealloc"] = syscall.EIO
	refused(t, pd.Close(), syscall.EIO)
	drv.fail["Dealloc"] = nil
	ok(t, pd.Close())
}

func TestNamesOfDomains(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	parent := must(vctx.AllocParentDomain(&ParentDomainInitAttr{PD: pd}))(t)
	imported := &PD{ctx: vctx, base: pd, from: pd}
	for pd, want := range map[*PD]string{
		pd: "PD of vrb_fake0", parent: "parent domain of vrb_fake0", imported: "imported PD of vrb_fake0",
	} {
		if pd.obj() != want {
			t.Errorf("%q, want %q", pd.obj(), want)
		}
	}
}

// TestV_PD_02_MixedDomains is also V-GEN-07 and X-PD-01.
func TestV_PD_02_MixedDomains(t *testing.T) {
	vctx, _ := openFake(t)
	a, b := newPD(t, vctx), newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	srq := must(b.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 4, MaxSGE: 1}}))(t)
	_, err := a.CreateQP(&QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq})
	refused(t, err, EINVAL, "the SRQ belongs to another PD")
	qp, drv := newQP(t, a, QPTypeUD)
	forceState(qp, drv, QPSRTS)
	attr := AHAttr{PortNum: 1, IsGlobal: true, GRH: GlobalRoute{DGID: mustGID("::ffff:192.0.2.2"), SGIDIndex: 1}}
	ah := must(b.CreateAH(&attr))(t)
	refused(t, qp.PostSend(SendWR{Opcode: WRSend, AH: ah}), EINVAL, "the address handle belongs to another PD")
}
