package verbs

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/seam"
)

// TestDriverOf asks for the driver's object of each kind of object, and of the nil pointers that attributes and
// requests may have.
func TestDriverOf(t *testing.T) {
	vctx, _ := openSteering(t)
	pd := newPD(t, vctx)
	cq, cqDrv := newCQ(t, vctx, nil)
	qp, qpDrv := newQP(t, pd, QPTypeRawPacket)
	wq, wqDrv := newWQ(t, vctx)
	way := goodAH()
	ah := must(pd.CreateAH(&way))(t)
	mw := must(pd.AllocMW(MWType1))(t)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
	xrcd := newXRCD(t, vctx)
	table := must(vctx.CreateRWQIndTable(&RWQIndTableInitAttr{IndTbl: []*WQ{wq}}))(t)
	counters := must(vctx.CreateCounters())(t)
	mr := must(pd.RegMR(make([]byte, 8), 0))(t)
	for _, c := range []struct{ object, want any }{
		{ah, ah.drv}, {mw, mw.drv}, {cq, cqDrv}, {srq, srq.drv}, {xrcd, xrcd.drv}, {table, table.drv},
		{counters, counters.drv}, {pd, pd.drv}, {qp, qpDrv}, {wq, wqDrv}, {mr, mr.drv}, {vctx, vctx.drv},
		{vctx.Device(), vctx.Device().drv},
		{(*AH)(nil), nil}, {(*MW)(nil), nil}, {(*CQ)(nil), nil}, {(*SRQ)(nil), nil}, {(*XRCD)(nil), nil},
		{(*RWQIndTable)(nil), nil}, {nil, nil}, {5, nil},
	} {
		if got := driverOf(c.object); got != c.want {
			t.Errorf("%T %v: %v, want %v", c.object, c.object, got, c.want)
		}
	}
}

// TestSeamCreateQP makes a QP by the function of another package of the module.
func TestSeamCreateQP(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	init := &QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq}
	made := must(seam.CreateQP("create_special", pd, init, pd.drv.CreateQP))(t)
	qp, isQP := made.(*QP)
	if !isQP || qp.PD() != pd {
		t.Fatalf("%v", made)
	}
	ok(t, qp.Close())
	init.SendCQ = nil
	_, err := seam.CreateQP("create_special", pd, init, pd.drv.CreateQP)
	refused(t, err, EINVAL, "create_special")
}
