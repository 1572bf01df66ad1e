package conformance

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Ranges for Ethernet frames. A RAW_PACKET QP needs a privilege that the process may lack.
var rawRangeCases = []testCase{
	{"V_WQ_05_X_RWQ_01_RangesOfWorkQueues", rangesOfWorkQueues},
	{"X_WQ_01_FailedModifyLeavesTheWorkQueueUnchanged", failedModifyOfWQ},
	{"V_QPX_06_V_QPX_07_RangesOfHashing", rangesOfHashing},
	{"V_QP_13_RAW_PACKET_RangesOfQPs", rangesOfRawQPs},
	{"X_QPM_02_V_QPM_03_RAW_PACKET_RangesOfModify", rangesOfRawModify},
	{"V_SEND_08_X_SEND_01_X_RECV_01_RAW_PACKET_RangesOfRequests", rangesOfRawRequests},
	{"V_FL_03_V_FL_05_RangesOfFlows", rangesOfFlows},
	{"X_CNT_01_RangesOfCounters", rangesOfCounters},
}

// needsRight skips a case if the process lacks the privilege for RAW_PACKET QPs or the device does not
// support them.
func (t *T) needsRight(err error) {
	t.Helper()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, verbs.ErrNotSupported) {
		t.Skipf("no RAW_PACKET QP: %v", err)
	}
	t.must(err)
}

// rawQP returns a RAW_PACKET QP in RESET.
func (e *end) rawQP(change func(*verbs.QPInitAttr)) *verbs.QP {
	e.t.Helper()
	init := rawInit(e)
	if change != nil {
		change(&init)
	}
	qp, err := e.pd.CreateQP(&init)
	e.t.needsRight(err)
	return closing(e.t, qp)
}

func rawInit(e *end) verbs.QPInitAttr {
	return verbs.QPInitAttr{Type: verbs.QPTypeRawPacket, SendCQ: e.sendCQ, RecvCQ: e.rcvQ,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInlineData: 100}}
}

func (t *T) rawToRTS(qp *verbs.QP) {
	t.Helper()
	t.must(qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort))
	t.to(qp, verbs.QPSRTR)
	t.to(qp, verbs.QPSRTS)
}

// workQueue returns a WQ in RESET.
func (e *end) workQueue() *verbs.WQ {
	e.t.Helper()
	if get(e.ctx.QueryDevice())(e.t).MaxWQTypeRQ == 0 {
		e.t.Skip("the device has no work queues")
	}
	return closing(e.t, get(e.ctx.CreateWQ(&verbs.WQInitAttr{MaxWR: 4, MaxSGE: 2, PD: e.pd, CQ: e.rcvQ}))(e.t))
}

func rangesOfWorkQueues(t *T) {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	wq := e.workQueue()
	create := func(change func(*verbs.WQInitAttr)) error {
		init := verbs.WQInitAttr{MaxWR: 1, MaxSGE: 1, PD: e.pd, CQ: e.rcvQ}
		change(&init)
		return made(e.ctx.CreateWQ(&init))
	}
	table := func(log uint64, n int) error {
		list := make([]*verbs.WQ, n)
		for i := range list {
			list[i] = wq
		}
		return made(e.ctx.CreateRWQIndTable(&verbs.RWQIndTableInitAttr{LogIndTblSize: uint32(log), IndTbl: list}))
	}
	most := uint64(0)
	for 2<<most <= uint64(d.RSSCaps.MaxRWQIndirectionTableSize) {
		most++
	}
	t.sweep([]span{
		{name: "max_wr", least: 1, most: uint64(d.MaxQPWR), queue: true, top: top32,
			try: func(v uint64) error { return create(func(i *verbs.WQInitAttr) { i.MaxWR = uint32(v) }) }},
		{name: "max_sge", least: 1, most: uint64(d.MaxSGE), top: top32,
			try: func(v uint64) error { return create(func(i *verbs.WQInitAttr) { i.MaxSGE = uint32(v) }) }},
		{name: "wq_type", most: 0, top: top32,
			try: func(v uint64) error { return create(func(i *verbs.WQInitAttr) { i.Type = verbs.WQType(v) }) }},
		{name: "log_ind_tbl_size", most: most, top: top32,
			try: func(v uint64) error { return table(v, 1<<min(v, most+1)) }},
	})
	for bit := range 32 {
		err := create(func(i *verbs.WQInitAttr) { i.CreateFlags = 1 << bit })
		if bit < 4 && !errors.Is(err, verbs.EOPNOTSUPP) { // existing flags, of which a device may support some
			t.must(err)
		} else if bit >= 4 {
			t.refused(fmt.Sprintf("flag %d", bit), err, verbs.EINVAL)
		}
	}
	for log, n := range map[uint64]int{0: 0, 1: 1, 2: 3, 3: 9} {
		t.refused(fmt.Sprintf("%d queues for 2^%d", n, log), table(log, n), verbs.EINVAL)
	}
}

// failedModifyOfWQ attempts invalid changes in every state. The queue must keep its state and its receives.
func failedModifyOfWQ(t *T) {
	e := t.end()
	wq := e.workQueue()
	refuse := func(state verbs.WQState, more map[string]verbs.WQAttr) {
		t.Helper()
		list := map[string]verbs.WQAttr{
			"unknown attributes":      {AttrMask: 1 << 3},
			"every attribute":         {AttrMask: top32, State: verbs.WQSErr, CurrState: state},
			"the unknown state":       {AttrMask: verbs.WQAttrState, State: verbs.WQSUnknown},
			"a state beyond the last": {AttrMask: verbs.WQAttrState, State: verbs.WQSUnknown + 1},
			"the largest state":       {AttrMask: verbs.WQAttrState, State: top32},
			"another current state": {AttrMask: verbs.WQAttrCurrState | verbs.WQAttrState, CurrState: verbs.WQSUnknown,
				State: verbs.WQSErr},
			"an unknown flag": {AttrMask: verbs.WQAttrState | verbs.WQAttrFlags, State: verbs.WQSErr, Flags: 1 << 4,
				FlagsMask: 1 << 4},
			"the last flag": {AttrMask: verbs.WQAttrState | verbs.WQAttrFlags, State: verbs.WQSErr, FlagsMask: 1 << 31},
		}
		for name, attr := range more {
			list[name] = attr
		}
		for name, attr := range list {
			t.refused(fmt.Sprintf("%s in %v", name, state), wq.Modify(&attr), verbs.EINVAL)
			same(t, "the state after "+name, wq.State(), state)
		}
		fixed := verbs.WQAttr{AttrMask: verbs.WQAttrState | verbs.WQAttrFlags, State: verbs.WQSErr,
			Flags: verbs.WQScatterFCS, FlagsMask: verbs.WQScatterFCS}
		t.refused("a flag that cannot be changed", wq.Modify(&fixed), verbs.EOPNOTSUPP)
		same(t, "the state after a flag that cannot be changed", wq.State(), state)
	}
	to := func(s verbs.WQState) verbs.WQAttr { return verbs.WQAttr{AttrMask: verbs.WQAttrState, State: s} }
	move := func(s verbs.WQState) {
		t.Helper()
		attr := to(s)
		t.must(wq.Modify(&attr))
	}
	refuse(verbs.WQSReset, map[string]verbs.WQAttr{"RESET": to(verbs.WQSReset)})
	t.refused("a receive in RESET", wq.PostRecv(e.recv(1, 0, 8)), verbs.EINVAL)
	move(verbs.WQSReady)
	t.must(wq.PostRecv(e.recv(1, 0, 8), e.recv(2, 0, 8)))
	refuse(verbs.WQSReady, map[string]verbs.WQAttr{"RDY": to(verbs.WQSReady), "RESET": to(verbs.WQSReset)})
	many := e.recv(3, 0, 8)
	for range 3 {
		many.SGList = append(many.SGList, many.SGList[0])
	}
	t.refused("more entries than the queue was made for", wq.PostRecv(many), verbs.EINVAL)
	move(verbs.WQSErr)
	same(t, "flushed", t.ids(t.poll(e.rcvQ, 2), verbs.WCWRFlushErr), "[1 2]")
	refuse(verbs.WQSErr, map[string]verbs.WQAttr{"RDY": to(verbs.WQSReady)})
	t.silent("all was flushed", e.rcvQ)
	move(verbs.WQSReset)
}

func rangesOfHashing(t *T) {
	e := t.end()
	wq := e.workQueue()
	ind := closing(t, get(e.ctx.CreateRWQIndTable(&verbs.RWQIndTableInitAttr{IndTbl: []*verbs.WQ{wq}}))(t))
	hash := func(change func(*verbs.RxHashConf)) error {
		conf := verbs.RxHashConf{Function: verbs.RxHashToeplitz, Key: make([]byte, verbs.RxHashKeyLen),
			Fields: verbs.RxHashSrcIPv4 | verbs.RxHashDstIPv4}
		change(&conf)
		return made(e.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRawPacket,
			RWQIndTbl: ind, RxHashConf: &conf}))
	}
	t.needsRight(hash(func(*verbs.RxHashConf) {}))
	t.sweep([]span{
		{name: "length of the hash key", least: verbs.RxHashKeyLen, most: verbs.RxHashKeyLen, top: 64,
			try: func(v uint64) error { return hash(func(c *verbs.RxHashConf) { c.Key = make([]byte, v) }) }},
		{name: "the hash function", least: 1, most: 1, top: top8, try: func(v uint64) error {
			return hash(func(c *verbs.RxHashConf) { c.Function = verbs.RxHashFunction(v) })
		}},
	})
	for bit := range 64 {
		err := hash(func(c *verbs.RxHashConf) { c.Fields |= verbs.RxHashFields(1) << bit })
		switch bit {
		case 0, 1, 4, 5, 6, 7, 8, 31: // allowed with IPv4 addresses
			t.must(err)
		default:
			t.refused(fmt.Sprintf("field %d with IPv4 addresses", bit), err, verbs.EINVAL)
		}
	}
	t.refused("TCP and UDP together",
		hash(func(c *verbs.RxHashConf) { c.Fields |= verbs.RxHashSrcPortTCP | verbs.RxHashSrcPortUDP }), verbs.EINVAL)
}

func rangesOfRawQPs(t *T) {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	e.rawQP(nil)
	_, inline := e.widestInline(verbs.QPTypeRawPacket)
	create := func(change func(*verbs.QPInitAttr)) error {
		init := rawInit(e)
		change(&init)
		want := init.Cap
		qp, err := e.pd.CreateQP(&init)
		if got := init.Cap; err == nil && (got.MaxSendWR < want.MaxSendWR || got.MaxRecvWR < want.MaxRecvWR ||
			got.MaxSendSGE < want.MaxSendSGE ||
			got.MaxRecvSGE < want.MaxRecvSGE || got.MaxInlineData < want.MaxInlineData) {
			t.Errorf("%+v became %+v", want, got)
		}
		return made(qp, err)
	}
	spans := []span{
		{name: "max_send_wr", most: uint64(d.MaxQPWR), queue: true,
			try: func(v uint64) error { return create(func(i *verbs.QPInitAttr) { i.Cap.MaxSendWR = uint32(v) }) }},
		{name: "max_recv_wr", most: uint64(d.MaxQPWR), queue: true,
			try: func(v uint64) error { return create(func(i *verbs.QPInitAttr) { i.Cap.MaxRecvWR = uint32(v) }) }},
		{name: "max_send_sge", most: uint64(d.MaxSGE),
			try: func(v uint64) error { return create(func(i *verbs.QPInitAttr) { i.Cap.MaxSendSGE = uint32(v) }) }},
		{name: "max_recv_sge", most: uint64(d.MaxSGE),
			try: func(v uint64) error { return create(func(i *verbs.QPInitAttr) { i.Cap.MaxRecvSGE = uint32(v) }) }},
		{name: "max_inline_data", most: uint64(inline),
			try: func(v uint64) error { return create(func(i *verbs.QPInitAttr) { i.Cap.MaxInlineData = uint32(v) }) }},
	}
	for i := range spans {
		spans[i].top = top32
	}
	t.sweep(spans)
	for bit := range 32 {
		err := create(func(i *verbs.QPInitAttr) { i.CreateFlags = 1 << bit })
		switch bit {
		case 8, 9, 11: // SCATTER_FCS, CVLAN_STRIPPING, PCI_WRITE_END_PADDING
			t.must(err)
		default:
			t.refused(fmt.Sprintf("flag %d", bit), err, verbs.EINVAL)
		}
	}
	t.refused("the longest TSO header", create(func(i *verbs.QPInitAttr) { i.MaxTSOHeader = top16 }), verbs.EINVAL)
}

func rangesOfRawModify(t *T) {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	caps := d.PacketPacingCaps
	qp := e.rawQP(nil)
	if !verbs.IsQPTSupported(caps.SupportedQPTs, verbs.QPTypeRawPacket) {
		t.Skip("the device does not support rate limits")
	}
	attrs := func() verbs.QPAttr { a, _, err := qp.Query(0); t.must(err); return a }
	t.sweep([]span{{name: "port_num", least: 1, most: uint64(d.PhysPortCnt), top: top8,
		try: func(v uint64) error {
			t.to(qp, verbs.QPSReset)
			return qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: uint8(v)}, verbs.QPAttrState|verbs.QPAttrPort)
		},
		same: func(t *T, _ string) { t.Helper(); t.is(qp, verbs.QPSReset) },
	}})
	t.to(qp, verbs.QPSReset)
	t.rawToRTS(qp)
	least, most := uint64(caps.QPRateLimitMin), uint64(caps.QPRateLimitMax)
	t.must(qp.Modify(&verbs.QPAttr{}, verbs.QPAttrRateLimit)) // 0: none
	limited := func(rate uint32) func(*T, string) {
		t.must(qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: rate, MaxBurstSz: 3000}))
		return steady(t, attrs)
	}
	set := func(v uint64, err error) error {
		if err == nil {
			same(t, "the queried rate", uint64(attrs().RateLimit), v)
		}
		return err
	}
	if least <= 1 {
		least = 0
	}
	var unchanged func(*T, string)
	try := func(modify func(v uint64) error) func(v uint64) error {
		return func(v uint64) error {
			unchanged = limited(uint32(most - 1))
			return modify(v)
		}
	}
	kept := func(t *T, at string) { t.Helper(); unchanged(t, at) }
	t.sweep([]span{
		{name: "rate_limit", least: least, most: most, top: top32, same: kept,
			try: try(func(v uint64) error {
				return set(v, qp.Modify(&verbs.QPAttr{RateLimit: uint32(v)}, verbs.QPAttrRateLimit))
			})},
		{name: "rate_limit of modify_qp_rate_limit", least: least, most: most, top: top32, same: kept,
			try: try(func(v uint64) error {
				return set(v, qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: uint32(v)}))
			})},
		{name: "max_burst_sz", most: top32, try: func(v uint64) error {
			return qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: uint32(most), MaxBurstSz: uint32(v)})
		}},
		{name: "typical_pkt_sz", most: top16, try: func(v uint64) error {
			return qp.ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: uint32(most), TypicalPktSz: uint16(v)})
		}},
	})
	t.is(qp, verbs.QPSRTS)
	// A refused rate prevents the change of state, and a refused state that of the rate.
	unchanged = limited(uint32(most))
	t.refused("a rate in the transition to SQD", qp.Modify(&verbs.QPAttr{QPState: verbs.QPSSQD, RateLimit: uint32(most)},
		verbs.QPAttrState|verbs.QPAttrRateLimit), verbs.EINVAL)
	unchanged(t, "a rate in the transition to SQD")
	t.refused("a rate in the transition to INIT", qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, RateLimit: uint32(most)},
		verbs.QPAttrState|verbs.QPAttrRateLimit), verbs.EINVAL)
	unchanged(t, "a rate in the transition to INIT")
}

// rangesOfRawRequests sends frames that no host receives.
func rangesOfRawRequests(t *T) {
	e := t.end()
	qp := e.rawQP(func(i *verbs.QPInitAttr) { i.MaxTSOHeader = 64 })
	_, init, err := qp.Query(0)
	t.must(err)
	t.must(qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort))
	recv := func(sges uint64) error {
		wr := verbs.RecvWR{WRID: sges}
		for range sges {
			wr.SGList = append(wr.SGList, e.mr.SGE(0, 8))
		}
		return qp.PostRecv(wr)
	}
	t.sweep([]span{{name: "num_sge of a receive", most: uint64(init.Cap.MaxRecvSGE), top: 100, try: recv}})
	t.to(qp, verbs.QPSReset)
	t.rawToRTS(qp)
	copy(e.buf, []byte{2, 0xfe, 0, 0, 0, 1, 2, 0xfe, 0, 0, 0, 2, 0x88, 0xb5}) // between unused addresses
	frame := func(change func(*verbs.SendWR)) error {
		wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{e.mr.SGE(0, 64)}}
		change(&wr)
		if err := qp.PostSend(wr); err != nil {
			return err
		}
		t.good(e.sendCQ, 1)
		return nil
	}
	for n := uint64(1); n <= uint64(init.Cap.MaxSendSGE)+1; n++ {
		err := frame(func(wr *verbs.SendWR) {
			for range n - 1 {
				wr.SGList = append(wr.SGList, e.mr.SGE(64, 64))
			}
		})
		if n > uint64(init.Cap.MaxSendSGE) {
			t.refused("one entry too many", err, verbs.EINVAL)
		} else {
			t.must(err)
		}
	}
	inline := func(n uint32) error {
		return frame(func(wr *verbs.SendWR) { wr.Flags, wr.SGList, wr.Inline = wr.Flags|verbs.SendInline, nil, e.buf[:n] })
	}
	t.must(inline(init.Cap.MaxInlineData))
	t.refused("one byte of inline data too many", inline(init.Cap.MaxInlineData+1), verbs.EINVAL)
	for bit := 5; bit < 32; bit++ {
		t.refused(fmt.Sprintf("flag %d", bit), frame(func(wr *verbs.SendWR) { wr.Flags |= 1 << bit }), verbs.EINVAL)
	}
	for op := range verbs.WROpcode(40) {
		if op != verbs.WRSend && op != verbs.WRTSO {
			t.refused(fmt.Sprintf("opcode %d", op), frame(func(wr *verbs.SendWR) { wr.Opcode = op }), verbs.EINVAL)
		}
	}
	t.is(qp, verbs.QPSRTS)
}

func rangesOfFlows(t *T) {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	if d.DeviceCapFlags&verbs.DeviceManagedFlowSteering == 0 {
		t.Skip("the device has no flow steering")
	}
	qp := e.rawQP(nil)
	create := func(change func(*verbs.FlowAttr)) error {
		attr := verbs.FlowAttr{Port: 1}
		change(&attr)
		return made(qp.CreateFlow(&attr))
	}
	specs := func(s ...verbs.FlowSpec) error {
		return create(func(a *verbs.FlowAttr) { a.Specs = s })
	}
	t.sweep([]span{
		{name: "port", least: 1, most: uint64(d.PhysPortCnt), top: top8,
			try: func(v uint64) error { return create(func(a *verbs.FlowAttr) { a.Port = uint8(v) }) }},
		{name: "priority", most: top16,
			try: func(v uint64) error { return create(func(a *verbs.FlowAttr) { a.Priority = uint16(v) }) }},
		{name: "type", most: 3, top: top32,
			try: func(v uint64) error { return create(func(a *verbs.FlowAttr) { a.Type = verbs.FlowAttrType(v) }) }},
		{name: "flags", most: 4,
			try: func(v uint64) error { return create(func(a *verbs.FlowAttr) { a.Flags = verbs.FlowFlags(v) }) }},
		{name: "flow label", most: 1<<20 - 1, top: top32, try: func(v uint64) error {
			return specs(verbs.FlowSpecIPv6{Val: verbs.FlowIPv6Filter{FlowLabel: uint32(v)},
				Mask: verbs.FlowIPv6Filter{FlowLabel: 1<<20 - 1}})
		}},
		{name: "tunnel ID", most: 1<<24 - 1, top: top32, try: func(v uint64) error {
			return specs(verbs.FlowSpecVXLAN{Val: verbs.FlowTunnelFilter{TunnelID: uint32(v)},
				Mask: verbs.FlowTunnelFilter{TunnelID: 1<<24 - 1}})
		}},
		{name: "flags of IPv4", most: 7, top: top8, try: func(v uint64) error {
			return specs(verbs.FlowSpecIPv4Ext{Val: verbs.FlowIPv4ExtFilter{Flags: uint8(v)},
				Mask: verbs.FlowIPv4ExtFilter{Flags: 7}})
		}},
		{name: "flow tag", most: top32,
			try: func(v uint64) error { return specs(verbs.FlowSpecActionTag{TagID: uint32(v)}) }},
	})
	for bit := 3; bit < 32; bit++ {
		t.refused(fmt.Sprintf("flag %d", bit), create(func(a *verbs.FlowAttr) { a.Flags = 1 << bit }), verbs.EINVAL)
	}
	t.refused("256 specifications", specs(make([]verbs.FlowSpec, 256)...), verbs.EINVAL)
	rule := closing(t, get(qp.CreateFlow(&verbs.FlowAttr{Port: 1}))(t))
	t.refused("closing a QP with a rule", qp.Close(), verbs.EBUSY)
	t.must(rule.Close())
}

func rangesOfCounters(t *T) {
	e := t.end()
	if err := made(e.ctx.CreateCounters()); errors.Is(err, verbs.ErrNotSupported) {
		t.Skipf("%v", err)
	}
	attach := func(change func(*verbs.CounterAttachAttr)) error {
		c := closing(t, get(e.ctx.CreateCounters())(t))
		var attr verbs.CounterAttachAttr
		change(&attr)
		return c.AttachPointFlow(&attr, nil)
	}
	c := closing(t, get(e.ctx.CreateCounters())(t))
	t.must(c.AttachPointFlow(&verbs.CounterAttachAttr{Index: 3}, nil))
	values := make([]uint64, 5)
	t.sweep([]span{
		{name: "counter_desc", most: 1, top: top32, try: func(v uint64) error {
			return attach(func(a *verbs.CounterAttachAttr) { a.CounterDesc = verbs.CounterDescription(v) })
		}},
		{name: "index", most: verbs.MaxCounters - 1, top: top32,
			try: func(v uint64) error { return attach(func(a *verbs.CounterAttachAttr) { a.Index = uint32(v) }) }},
		{name: "values of read_counters", least: 4, most: 5, try: func(v uint64) error { return c.Read(values[:v], 0) }},
		{name: "flags of read_counters", most: 1, top: top32,
			try: func(v uint64) error { return c.Read(values, verbs.ReadCountersFlags(v)) }},
	})
	t.refused("an index in use",
		c.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterBytes, Index: 3}, nil), verbs.EINVAL)
	same(t, "refused attachments do not count", c.Read(values, 0) == nil && values[3] == 0, true)
}
