package conformance

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// modifyCases returns a case for each QP type.
func modifyCases() (cases []testCase) {
	for _, typ := range []verbs.QPType{rc, uc, ud, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv} {
		cases = append(cases, testCase{fmt.Sprintf("X_QPM_02_V_QPM_03_V_QPQ_01_%v_RangesOfModify", typ),
			func(t *T) { rangesOfModify(t, typ) }})
	}
	return cases
}

// attribute is an attribute of QP.Modify with a range.
type attribute struct {
	name             string
	bit              verbs.QPAttrMask
	least, most, top uint64
	set              func(a *verbs.QPAttr, v uint64)
	get              func(a *verbs.QPAttr) uint64
}

// attributes returns the attributes with a range.
func (e *end) attributes() []attribute {
	d, port := get(e.ctx.QueryDevice())(e.t), get(e.ctx.QueryPort(1))(e.t)
	ports, keys := uint64(d.PhysPortCnt), uint64(port.PKeyTblLen)
	const psn = 0xffffff
	list := []attribute{
		{"port_num", verbs.QPAttrPort, 1, ports, top8, func(a *verbs.QPAttr, v uint64) { a.PortNum = uint8(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.PortNum) }},
		{"pkey_index", verbs.QPAttrPKeyIndex, 0, keys - 1, top16,
			func(a *verbs.QPAttr, v uint64) { a.PKeyIndex = uint16(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.PKeyIndex) }},
		{"qkey", verbs.QPAttrQKey, 0, top32, top32, func(a *verbs.QPAttr, v uint64) { a.QKey = uint32(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.QKey) }},
		{"path_mtu", verbs.QPAttrPathMTU, 1, uint64(port.ActiveMTU), top8,
			func(a *verbs.QPAttr, v uint64) { a.PathMTU = verbs.MTU(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.PathMTU) }},
		{"dest_qp_num", verbs.QPAttrDestQPN, 0, psn, top32, func(a *verbs.QPAttr, v uint64) { a.DestQPNum = uint32(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.DestQPNum) }},
		{"rq_psn", verbs.QPAttrRQPSN, 0, psn, top32, func(a *verbs.QPAttr, v uint64) { a.RQPSN = uint32(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.RQPSN) }},
		{"sq_psn", verbs.QPAttrSQPSN, 0, psn, top32, func(a *verbs.QPAttr, v uint64) { a.SQPSN = uint32(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.SQPSN) }},
		{"min_rnr_timer", verbs.QPAttrMinRNRTimer, 0, 31, top8,
			func(a *verbs.QPAttr, v uint64) { a.MinRNRTimer = uint8(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.MinRNRTimer) }},
		{"timeout", verbs.QPAttrTimeout, 0, 31, top8, func(a *verbs.QPAttr, v uint64) { a.Timeout = uint8(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.Timeout) }},
		{"retry_cnt", verbs.QPAttrRetryCnt, 0, 7, top8, func(a *verbs.QPAttr, v uint64) { a.RetryCnt = uint8(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.RetryCnt) }},
		{"rnr_retry", verbs.QPAttrRNRRetry, 0, 7, top8, func(a *verbs.QPAttr, v uint64) { a.RNRRetry = uint8(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.RNRRetry) }},
		{"max_rd_atomic", verbs.QPAttrMaxQPRdAtomic, 0, uint64(d.MaxQPInitRdAtom), top8,
			func(a *verbs.QPAttr, v uint64) { a.MaxRdAtomic = uint8(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.MaxRdAtomic) }},
		{"max_dest_rd_atomic", verbs.QPAttrMaxDestRdAtomic, 0, uint64(d.MaxQPRdAtom), top8,
			func(a *verbs.QPAttr, v uint64) { a.MaxDestRdAtomic = uint8(v) },
			func(a *verbs.QPAttr) uint64 { return uint64(a.MaxDestRdAtomic) }},
	}
	if d.DeviceCapFlags&verbs.DeviceAutoPathMig != 0 {
		list = append(list,
			attribute{"alt_port_num", verbs.QPAttrAltPath, 1, ports, top8,
				func(a *verbs.QPAttr, v uint64) { a.AltPortNum, a.AltAHAttr.PortNum = uint8(v), uint8(v) },
				func(a *verbs.QPAttr) uint64 { return uint64(a.AltPortNum) }},
			attribute{"alt_pkey_index", verbs.QPAttrAltPath, 0, keys - 1, top16,
				func(a *verbs.QPAttr, v uint64) { a.AltPKeyIndex = uint16(v) },
				func(a *verbs.QPAttr) uint64 { return uint64(a.AltPKeyIndex) }},
			attribute{"alt_timeout", verbs.QPAttrAltPath, 0, 31, top8,
				func(a *verbs.QPAttr, v uint64) { a.AltTimeout = uint8(v) },
				func(a *verbs.QPAttr) uint64 { return uint64(a.AltTimeout) }})
	}
	for _, w := range e.t.pathFields(e) {
		list = append(list,
			attribute{"primary " + w.name, verbs.QPAttrAV, w.least, w.most, w.top,
				func(a *verbs.QPAttr, v uint64) { w.set(&a.AHAttr, v) }, nil})
		if d.DeviceCapFlags&verbs.DeviceAutoPathMig != 0 {
			list = append(list,
				attribute{"alternate " + w.name, verbs.QPAttrAltPath, w.least, w.most, w.top,
					func(a *verbs.QPAttr, v uint64) { w.set(&a.AltAHAttr, v) }, nil})
		}
	}
	return list
}

// step is a transition of a QP with its required and optional attributes.
type step struct {
	from, to           verbs.QPState
	required, optional verbs.QPAttrMask
}

// steps returns the transitions that bring a QP up, and SQD to SQD, without the attributes that an adapter ignores.
func steps(typ verbs.QPType, adapter bool) []step {
	list := allSteps(typ)
	if !adapter {
		return list
	}
	var ignored verbs.QPAttrMask
	switch typ {
	case verbs.QPTypeXRCSend:
		ignored = verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	case verbs.QPTypeXRCRecv:
		ignored = verbs.QPAttrMaxQPRdAtomic | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry
	}
	for i := range list {
		list[i].optional &^= ignored
	}
	return list
}

func allSteps(typ verbs.QPType) []step {
	const (
		state, pkey, alt = verbs.QPAttrState, verbs.QPAttrPKeyIndex, verbs.QPAttrAltPath
		reset, init      = verbs.QPSReset, verbs.QPSInit
		rtr, rts, sqd    = verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD
		inSQD            = pkey | verbs.QPAttrAV | alt | verbs.QPAttrMaxQPRdAtomic | verbs.QPAttrMinRNRTimer |
			verbs.QPAttrTimeout |
			verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxDestRdAtomic
		rnr = verbs.QPAttrMinRNRTimer
	)
	switch typ {
	case ud:
		return []step{
			{reset, init, state | pkey | verbs.QPAttrPort | verbs.QPAttrQKey, 0}, {init, rtr, state, pkey | verbs.QPAttrQKey},
			{rtr, rts, state | verbs.QPAttrSQPSN, verbs.QPAttrQKey}, {rts, sqd, state, 0},
			{sqd, sqd, 0, pkey | verbs.QPAttrQKey},
		}
	case uc:
		return []step{
			{reset, init, initMask, 0}, {init, rtr, ucRTRMask, pkey | alt}, {rtr, rts, ucRTSMask, alt}, {rts, sqd, state, 0},
			{sqd, sqd, 0, pkey | verbs.QPAttrAV | alt},
		}
	case verbs.QPTypeXRCSend:
		return []step{{reset, init, initMask, 0}, {init, rtr, ucRTRMask, pkey | alt}, {rtr, rts, rtsMask, alt | rnr},
			{rts, sqd, state, 0}, {sqd, sqd, 0, inSQD}}
	case verbs.QPTypeXRCRecv:
		return []step{
			{reset, init, initMask, 0}, {init, rtr, rtrMask, pkey | alt},
			{rtr, rts, state | verbs.QPAttrSQPSN | verbs.QPAttrTimeout, alt | rnr},
			{rts, sqd, state, 0}, {sqd, sqd, 0, inSQD},
		}
	}
	return []step{{reset, init, initMask, 0}, {init, rtr, rtrMask, pkey | alt}, {rtr, rts, rtsMask, alt | rnr},
		{rts, sqd, state, 0}, {sqd, sqd, 0, inSQD}}
}

// maker returns a function that creates a QP of a type; XRC types need a domain.
func (e *end) maker(typ verbs.QPType) func() *verbs.QP {
	if typ != verbs.QPTypeXRCRecv {
		return func() *verbs.QP { return e.qp(typ, nil) }
	}
	d := closing(e.t, get(e.ctx.OpenXRCD(nil))(e.t))
	return func() *verbs.QP { return closing(e.t, get(d.CreateQP(&verbs.QPInitAttr{Type: typ}))(e.t)) }
}

// rangesOfModify tries each attribute in each transition that accepts it.
func rangesOfModify(t *T, typ verbs.QPType) {
	e := t.end()
	if (typ == verbs.QPTypeXRCSend || typ == verbs.QPTypeXRCRecv) &&
		get(e.ctx.QueryDevice())(t).DeviceCapFlags&verbs.DeviceXRC == 0 {
		t.Skip("the device has no XRC")
	}
	fresh, list, all := e.maker(typ), e.attributes(), steps(typ, t.adapter)
	way := pathTo(e.qp(ud, nil), verbs.GIDFromAddr(t.Addr(e.ctx)))
	good := verbs.QPAttr{
		PortNum: 1, PathMTU: verbs.MTU256, DestQPNum: 5, AHAttr: way, AltAHAttr: way, AltPortNum: 1, QKey: 7,
		Timeout: 14, RetryCnt: 1, RNRRetry: 2, MaxRdAtomic: 1, MaxDestRdAtomic: 1, MinRNRTimer: 12, RQPSN: 8, SQPSN: 9,
	}
	// before returns a QP in the initial state of a transition.
	before := func(s step) *verbs.QP {
		qp := fresh()
		for _, to := range all {
			if qp.State() == s.from {
				break
			}
			attr := good
			attr.QPState = to.to
			t.must(qp.Modify(&attr, to.required))
			if to.to == verbs.QPSSQD {
				t.drained(qp)
			}
		}
		return qp
	}
	for _, s := range all {
		for _, a := range list {
			if (s.required|s.optional)&a.bit == 0 {
				continue
			}
			qp, used := before(s), false
			modify := func(v uint64) error {
				if used {
					t.must(qp.Close())
					qp, used = before(s), false
				}
				attr := good
				attr.QPState = s.to
				a.set(&attr, v)
				err := qp.Modify(&attr, s.required|a.bit)
				if used = err == nil; used {
					now, _, err := qp.Query(0)
					t.must(err)
					if a.get != nil && a.get(&now) != v {
						t.Errorf("%s %d in %v->%v is %d afterwards", a.name, v, s.from, s.to, a.get(&now))
					}
					same(t, "the state", qp.State(), s.to)
				}
				return err
			}
			kept := func(t *T, at string) {
				t.Helper()
				now, _, err := qp.Query(0)
				t.must(err)
				ref := before(s)
				want, _, err := ref.Query(0)
				t.must(err)
				same(t, "the attributes after "+at, now, want)
				t.must(ref.Close())
				t.is(qp, s.from)
			}
			t.sweep([]span{{name: fmt.Sprintf("%s in %v->%v", a.name, s.from, s.to), least: a.least, most: a.most, top: a.top,
				try: modify, same: kept}})
			t.must(qp.Close())
		}
		t.badPathsIn(e, s, good, before)
	}
}

// badPathsIn tries invalid addresses, and attributes without a range of their own.
func (t *T) badPathsIn(e *end, s step, good verbs.QPAttr, before func(step) *verbs.QP) {
	t.Helper()
	qp := before(s)
	defer qp.Close()
	unchanged := steady(t, func() verbs.QPAttr { now, _, err := qp.Query(0); t.must(err); return now })
	try := func(name string, mask verbs.QPAttrMask, change func(*verbs.QPAttr)) {
		t.Helper()
		if mask&^(s.required|s.optional) != 0 {
			return
		}
		attr := good
		attr.QPState = s.to
		change(&attr)
		at := fmt.Sprintf("%s in %v->%v", name, s.from, s.to)
		t.refused(at, qp.Modify(&attr, s.required|mask), verbs.EINVAL)
		unchanged(t, at)
		t.is(qp, s.from)
	}
	for name, change := range t.badPaths(e) {
		try("primary path: "+name, verbs.QPAttrAV, func(a *verbs.QPAttr) { change(&a.AHAttr) })
		try("alternate path: "+name, verbs.QPAttrAltPath, func(a *verbs.QPAttr) { change(&a.AltAHAttr) })
	}
	try("a group", verbs.QPAttrAV, func(a *verbs.QPAttr) { a.AHAttr.GRH.DGID = t.group() })
	try("an access flag that does not exist", verbs.QPAttrAccessFlags, func(a *verbs.QPAttr) { a.QPAccessFlags = 1 << 10 })
	for state := verbs.QPState(0); state < 9; state++ {
		if state != s.from {
			attr := good
			attr.QPState, attr.CurQPState = s.to, state
			at := fmt.Sprintf("cur_qp_state %v in %v->%v", state, s.from, s.to)
			t.refused(at, qp.Modify(&attr, s.required|verbs.QPAttrCurState), verbs.EINVAL)
			unchanged(t, at)
		}
	}
	for _, state := range []verbs.QPState{verbs.QPSUnknown, 8, 1 << 30} {
		t.refused(fmt.Sprintf("state %d", state), qp.Modify(&verbs.QPAttr{QPState: state}, verbs.QPAttrState), verbs.EINVAL)
		unchanged(t, "an unknown state")
	}
	for bit := 21; bit < 32; bit++ {
		attr := good
		attr.QPState = s.to
		at := fmt.Sprintf("bit %d of the mask in %v->%v", bit, s.from, s.to)
		t.refused(at, qp.Modify(&attr, s.required|1<<bit), verbs.EINVAL)
		unchanged(t, at)
	}
	t.refused("no attributes", qp.Modify(nil, s.required), verbs.EINVAL)
}
