package conformance

import (
	"fmt"
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

func rangesOfWorkQueues(t *T) {
	e := t.end()
	d, ex := get(e.ctx.QueryDevice())(t), get(e.ctx.QueryDeviceEx())(t)
	if ex.MaxWQTypeRQ == 0 {
		t.Skip("the device has no work queues")
	}
	create := func(change func(*verbs.WQInitAttr)) error {
		init := verbs.WQInitAttr{MaxWR: 1, MaxSGE: 1, PD: e.pd, CQ: e.rcvQ}
		change(&init)
		return made(e.ctx.CreateWQ(&init))
	}
	wq := closing(t, get(e.ctx.CreateWQ(&verbs.WQInitAttr{MaxWR: 1, MaxSGE: 1, PD: e.pd, CQ: e.rcvQ}))(t))
	table := func(log uint64, n int) error {
		list := make([]*verbs.WQ, n)
		for i := range list {
			list[i] = wq
		}
		return made(e.ctx.CreateRWQIndTable(&verbs.RWQIndTableInitAttr{LogIndTblSize: uint32(log), IndTbl: list}))
	}
	most := uint64(0)
	for 2<<most <= uint64(ex.RSSCaps.MaxRWQIndirectionTableSize) {
		most++
	}
	t.sweep([]span{
		{name: "max_wr", least: 1, most: uint64(d.MaxQPWR), top: top32, try: func(v uint64) error { return create(func(i *verbs.WQInitAttr) { i.MaxWR = uint32(v) }) }},
		{name: "max_sge", least: 1, most: uint64(d.MaxSGE), top: top32, try: func(v uint64) error { return create(func(i *verbs.WQInitAttr) { i.MaxSGE = uint32(v) }) }},
		{name: "wq_type", most: 0, top: top32, try: func(v uint64) error { return create(func(i *verbs.WQInitAttr) { i.Type = verbs.WQType(v) }) }},
		{name: "comp_mask", most: 1, top: top32, try: func(v uint64) error {
			return create(func(i *verbs.WQInitAttr) { i.CompMask = verbs.WQInitAttrMask(v) })
		}},
		{name: "log_ind_tbl_size", most: most, top: top32, try: func(v uint64) error { return table(v, 1<<min(v, most+1)) }},
	})
	t.refused("an unknown flag", create(func(i *verbs.WQInitAttr) { i.CreateFlags = 1 << 4 }), verbs.EINVAL)
	for log, n := range map[uint64]int{0: 0, 1: 1, 2: 3, 3: 9} {
		t.refused(fmt.Sprintf("%d queues for 2^%d", n, log), table(log, n), verbs.EINVAL)
	}
	for name, attr := range map[string]verbs.WQAttr{
		"an unknown attribute": {AttrMask: 1 << 3},
		"RESET->RESET":         {AttrMask: verbs.WQAttrState, State: verbs.WQSReset},
		"RESET->UNKNOWN":       {AttrMask: verbs.WQAttrState, State: verbs.WQSUnknown},
		"RESET->4":             {AttrMask: verbs.WQAttrState, State: 4},
		"another state":        {AttrMask: verbs.WQAttrCurrState | verbs.WQAttrState, CurrState: verbs.WQSReady, State: verbs.WQSErr},
		"an unknown flag":      {AttrMask: verbs.WQAttrState | verbs.WQAttrFlags, State: verbs.WQSReady, Flags: 1 << 4, FlagsMask: 1 << 4},
	} {
		t.refused(name, wq.Modify(&attr), verbs.EINVAL)
		same(t, "the state after "+name, wq.State(), verbs.WQSReset)
	}
	t.must(wq.Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrState, State: verbs.WQSReady}))
	ind := closing(t, get(e.ctx.CreateRWQIndTable(&verbs.RWQIndTableInitAttr{IndTbl: []*verbs.WQ{wq}}))(t))
	hash := func(change func(*verbs.RxHashConf)) error {
		conf := verbs.RxHashConf{Function: verbs.RxHashToeplitz, Key: make([]byte, verbs.RxHashKeyLen), Fields: verbs.RxHashSrcIPv4 | verbs.RxHashDstIPv4}
		change(&conf)
		return made(e.pd.CreateQPEx(&verbs.QPInitAttrEx{QPInitAttr: verbs.QPInitAttr{Type: verbs.QPTypeRawPacket}, RWQIndTbl: ind, RxHashConf: &conf}))
	}
	t.sweep([]span{
		{name: "length of the hash key", least: verbs.RxHashKeyLen, most: verbs.RxHashKeyLen, top: 64,
			try: func(v uint64) error { return hash(func(c *verbs.RxHashConf) { c.Key = make([]byte, v) }) }},
	})
	for name, change := range map[string]func(*verbs.RxHashConf){
		"no function":            func(c *verbs.RxHashConf) { c.Function = 0 },
		"another function":       func(c *verbs.RxHashConf) { c.Function = 2 },
		"an unknown field":       func(c *verbs.RxHashConf) { c.Fields = 1 << 9 },
		"IPv4 and IPv6 together": func(c *verbs.RxHashConf) { c.Fields |= verbs.RxHashSrcIPv6 },
		"TCP and UDP together":   func(c *verbs.RxHashConf) { c.Fields |= verbs.RxHashSrcPortTCP | verbs.RxHashSrcPortUDP },
	} {
		t.refused(name, hash(change), verbs.EINVAL)
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
