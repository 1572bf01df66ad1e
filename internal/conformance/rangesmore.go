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
	const both, private = verbs.XRCDInitFD | verbs.XRCDInitOFlags, -1
	t.must(open(verbs.XRCDInitAttr{CompMask: both, FD: private, OFlags: os.O_CREATE}))
	for name, a := range map[string]verbs.XRCDInitAttr{
		"an FD below -1":         {CompMask: both, FD: -2, OFlags: os.O_CREATE},
		"the most negative FD":   {CompMask: both, FD: math.MinInt, OFlags: os.O_CREATE},
		"an unknown field":       {CompMask: both | 1<<2, FD: private, OFlags: os.O_CREATE},
		"the FD alone":           {CompMask: verbs.XRCDInitFD, FD: private},
		"the flags alone":        {CompMask: verbs.XRCDInitOFlags, OFlags: os.O_CREATE},
		"no O_CREATE":            {CompMask: both, FD: private},
		"an unknown flag":        {CompMask: both, FD: private, OFlags: os.O_CREATE | os.O_APPEND},
		"O_EXCL alone, no file":  {CompMask: both, FD: private, OFlags: os.O_EXCL},
		"every flag that exists": {CompMask: both, FD: private, OFlags: -1},
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
		"another number":      func(a *verbs.QPOpenAttr) { a.QPNum ^= 1 },
		"25 bits":             func(a *verbs.QPOpenAttr) { a.QPNum |= 1 << 24 },
		"the largest number":  func(a *verbs.QPOpenAttr) { a.QPNum = top32 },
		"no domain":           func(a *verbs.QPOpenAttr) { a.XRCD = nil },
		"another type":        func(a *verbs.QPOpenAttr) { a.Type = verbs.QPTypeXRCSend },
		"an unknown field":    func(a *verbs.QPOpenAttr) { a.CompMask = 1 << 4 },
		"fields without NUM":  func(a *verbs.QPOpenAttr) { a.CompMask = verbs.QPOpenXRCD | verbs.QPOpenType },
		"fields without XRCD": func(a *verbs.QPOpenAttr) { a.CompMask = verbs.QPOpenNum | verbs.QPOpenType },
		"fields without TYPE": func(a *verbs.QPOpenAttr) { a.CompMask = verbs.QPOpenNum | verbs.QPOpenXRCD },
	} {
		t.refused(name, again(change), verbs.EINVAL)
	}
}

func rangesOfTheRest(t *T) {
	e := t.end()
	t.sweep([]span{
		{name: "comp_mask of alloc_td", most: 0, top: top32, try: func(v uint64) error { return made(e.ctx.AllocTD(&verbs.TDInitAttr{CompMask: uint32(v)})) }},
	})
	_, err := e.ctx.AllocParentDomain(&verbs.ParentDomainInitAttr{})
	t.refused("a parent domain without a PD", err, verbs.EINVAL)
	cq := closing(t, get(e.ctx.CreateCQEx(&verbs.CQInitAttrEx{CQE: 4}))(t))
	t.refused("an attribute of start_poll", cq.StartPoll(&verbs.PollCQAttr{CompMask: 1}), verbs.EINVAL)
	t.refused("next_poll outside of a batch", cq.NextPoll(), verbs.EINVAL)
	t.refused("an empty CQ", cq.StartPoll(nil), verbs.ENOENT)
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
