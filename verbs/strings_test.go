package verbs

import (
	"fmt"
	"testing"
)

// A program logs its objects by %v: as errors name them, not as their fields, which other goroutines change.
func TestObjectsPrintAsErrorsNameThem(t *testing.T) {
	vctx, _ := openFake(t)
	pd, ch := newPD(t, vctx), must(vctx.CreateCompChannel())(t)
	cq, _ := newCQ(t, vctx, nil)
	srq := must(pd.CreateSRQ(&SRQInitAttr{Attr: SRQAttr{MaxWR: 4, MaxSGE: 1}}))(t)
	qp := must(pd.CreateQP(&QPInitAttr{Type: QPTypeUD, SendCQ: cq, RecvCQ: cq}))(t)
	mr := must(pd.RegMR(make([]byte, 8), AccessLocalWrite))(t)
	ah := must(pd.CreateAH(&AHAttr{PortNum: 1, IsGlobal: true,
		GRH: GlobalRoute{DGID: mustGID("::ffff:192.0.2.2"), SGIDIndex: 1}}))(t)
	mw := must(pd.AllocMW(MWType1))(t)
	xrcd := must(vctx.OpenXRCD(nil))(t)
	for _, o := range []named{vctx, pd, ch, cq, srq, qp, mr, ah, mw, xrcd} {
		if got := fmt.Sprintf("%v", o); got != o.obj() || got == "" {
			t.Errorf("%T prints as %q, want %q", o, got, o.obj())
		}
	}
}
