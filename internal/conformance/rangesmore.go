package conformance

import (
	"math"
	"os"

	"github.com/verbena-rdma/verbena/verbs"
)

func rangesOfXRC(t *T) {
	e := t.end()
	if get(e.ctx.QueryDevice())(t).DeviceCapFlags&verbs.DeviceXRC == 0 {
		t.Skip("the device has no XRC")
	}
	open := func(a verbs.XRCDInitAttr) error { return made(e.ctx.OpenXRCD(&a)) }
	t.must(open(verbs.XRCDInitAttr{OFlags: os.O_CREATE}))
	for name, a := range map[string]verbs.XRCDInitAttr{
		"no O_CREATE":            {},
		"an unknown flag":        {OFlags: os.O_CREATE | os.O_APPEND},
		"O_EXCL alone, no file":  {OFlags: os.O_EXCL},
		"every flag that exists": {OFlags: -1},
	} {
		t.refused(name, open(a), verbs.EINVAL)
	}
	xrcd := closing(t, get(e.ctx.OpenXRCD(nil))(t))
	qp := closing(t, get(xrcd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}))(t))
	again := func(change func(*verbs.QPOpenAttr)) error {
		a := verbs.QPOpenAttr{QPNum: qp.QPN(), XRCD: xrcd, Type: verbs.QPTypeXRCRecv}
		change(&a)
		return made(e.ctx.OpenQP(&a))
	}
	t.must(again(func(*verbs.QPOpenAttr) {}))
	for name, change := range map[string]func(*verbs.QPOpenAttr){
		"another number":     func(a *verbs.QPOpenAttr) { a.QPNum ^= 1 },
		"25 bits":            func(a *verbs.QPOpenAttr) { a.QPNum |= 1 << 24 },
		"the largest number": func(a *verbs.QPOpenAttr) { a.QPNum = top32 },
		"no domain":          func(a *verbs.QPOpenAttr) { a.XRCD = nil },
		"another type":       func(a *verbs.QPOpenAttr) { a.Type = verbs.QPTypeXRCSend },
	} {
		t.refused(name, again(change), verbs.EINVAL)
	}
}

func rangesOfTheRest(t *T) {
	e := t.end()
	_, err := e.ctx.AllocParentDomain(&verbs.ParentDomainInitAttr{})
	t.refused("a parent domain without a PD", err, verbs.EINVAL)
	closing(t, get(e.ctx.AllocTD())(t))
	cq := closing(t, get(e.ctx.CreateCQ(4, nil))(t))
	var wc verbs.WC
	t.refused("next_poll outside of a batch", cq.NextPoll(&wc), verbs.EINVAL)
	t.refused("an empty CQ", cq.StartPoll(&wc), verbs.ENOENT)
	cq.EndPoll()
	for _, wcs := range [][]verbs.WC{nil, {}, make([]verbs.WC, 1), make([]verbs.WC, 100)} {
		same(t, "completions", get(e.sendCQ.Poll(wcs))(t), 0)
	}
	for _, n := range []int{math.MinInt, -1, 0, 1, math.MaxInt} {
		e.sendCQ.AckEvents(n) // there was none
	}
	qp := e.qp(rc, nil)
	_, _, err = qp.Query(1 << 24)
	t.refused("query_qp with an unknown attribute", err, verbs.EINVAL)
}
