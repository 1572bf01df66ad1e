package conformance

import (
	"errors"
	"fmt"
	"math"

	"github.com/verbena-rdma/verbena/verbs"
)

// Parameter ranges: each parameter is tried at both limits and one beyond each, and a refused call must
// change nothing. QP.Modify is in rangesmodify.go, requests are in rangespost.go, Ethernet frames in
// rangesraw.go.
var rangeCases = []testCase{
	{"V_CQ_01_D_17_D_02_V_CQX_04_V_CQX_05_RangesOfCQs", rangesOfCQs},
	{"V_CQ_15_V_CQ_18_X_CQ_01_RangesOfChangesOfCQs", rangesOfCQChanges},
	{"V_SRQ_06_V_SRQ_08_RangesOfSRQs", rangesOfSRQs},
	{"X_SRQX_01_RangesOfTagMatching", rangesOfTagSRQs},
	{"V_QP_13_V_QP_02_V_QP_05_RangesOfQPs", rangesOfQPs},
	{"V_PORT_01_V_GID_01_V_PKEY_01_V_PKEY_07_RangesOfPorts", rangesOfPorts},
	{"V_AH_05_V_AH_02_RangesOfAddresses", rangesOfAddresses},
	{"V_MR_01_V_MR_13_X_MR_01_RangesOfRegions", rangesOfRegions},
	{"X_MR_02_V_MR_16_FailedReregLeavesTheRegionUnchanged", failedRereg},
	{"V_MR_23_V_MR_24_V_MR_25_X_DM_01_RangesOfDeviceMemory", rangesOfDeviceMemory},
	{"V_MW_09_X_MW_01_RangesOfWindows", rangesOfWindows},
	{"X_MC_01_V_MC_01_RangesOfGroups", rangesOfGroups},
	{"V_XRCD_01_V_QPO_02_RangesOfXRC", rangesOfXRC},
	{"V_TD_01_V_POLL_01_RangesOfTheRest", rangesOfTheRest},
}

// span is a parameter with its range.
type span struct {
	name        string
	least, most uint64
	top         uint64                // the largest value of the parameter's type, if above most
	try         func(v uint64) error  // calls with v, and releases the result
	same        func(t *T, at string) // checks that a refused call changed nothing; may be nil
	queue       bool                  // the entries of a queue: Setup.MaxQueue bounds the values that must succeed
}

// The largest values of Go's types.
const (
	top8  = math.MaxUint8
	top16 = math.MaxUint16
	top32 = math.MaxUint32
	top64 = math.MaxUint64
)

// sweep tries both limits of each span and one beyond each.
func (t *T) sweep(spans []span) {
	t.Helper()
	for _, s := range spans {
		for _, v := range []uint64{s.least, s.most} {
			if s.queue && t.maxQueue > 0 {
				v = min(v, t.maxQueue)
			}
			if err := s.try(v); err != nil {
				t.Errorf("%s %d of %d to %d: %v", s.name, v, s.least, s.most, err)
			}
		}
		var past []uint64
		if s.least > 0 {
			past = append(past, s.least-1)
		}
		if s.most < s.top {
			past = append(past, s.most+1, s.top)
		}
		for _, v := range past {
			at := fmt.Sprintf("%s %d, must be %d to %d", s.name, v, s.least, s.most)
			t.refused(at, s.try(v), verbs.EINVAL)
			if s.same != nil {
				s.same(t, at)
			}
		}
	}
}

// made closes the result of a call.
func made[C interface{ Close() error }](x C, err error) error {
	if err != nil {
		return err
	}
	return x.Close()
}

// steady returns a check that the result of a query does not change.
func steady[V comparable](t *T, query func() V) func(*T, string) {
	before := query()
	return func(_ *T, at string) {
		t.Helper()
		same(t, "after "+at, query(), before)
	}
}

func rangesOfCQs(t *T) {
	e := t.end()
	d, vectors := get(e.ctx.QueryDevice())(t), uint64(e.ctx.NumCompVectors())
	plain := func(cqe int, o *verbs.CQOptions) error {
		cq, err := e.ctx.CreateCQ(cqe, o)
		if err == nil && cq.Cap() < cqe {
			t.Errorf("a CQ of %d entries has %d", cqe, cq.Cap())
		}
		return made(cq, err)
	}
	t.sweep([]span{
		{name: "cqe", least: 1, most: uint64(d.MaxCQE), top: math.MaxInt,
			try: func(v uint64) error { return plain(int(v), nil) }},
		{name: "comp_vector", most: vectors - 1, top: math.MaxInt,
			try: func(v uint64) error { return plain(4, &verbs.CQOptions{CompVector: int(v)}) }},
		{name: "cqe with fields", least: 1, most: uint64(d.MaxCQE), top: math.MaxInt,
			try: func(v uint64) error { return plain(int(v), &verbs.CQOptions{WCFlags: verbs.WCExWithSL}) }},
		{name: "comp_vector with fields", most: vectors - 1, top: math.MaxInt,
			try: func(v uint64) error { return plain(4, &verbs.CQOptions{CompVector: int(v), WCFlags: verbs.WCExWithSL}) }},
		{name: "wc_flags", most: 0xfff, top: top64, try: func(v uint64) error {
			err := plain(4, &verbs.CQOptions{WCFlags: verbs.CreateCQWCFlags(v)})
			if v == 0xfff && errors.Is(err, verbs.EOPNOTSUPP) {
				return nil // fields of Ethernet frames are optional
			}
			return err
		}},
		{name: "wc_flags of plain CQs", most: 0x7f,
			try: func(v uint64) error { return plain(4, &verbs.CQOptions{WCFlags: verbs.CreateCQWCFlags(v)}) }},
		{name: "flags", most: 3, top: top32,
			try: func(v uint64) error { return plain(4, &verbs.CQOptions{Flags: verbs.CreateCQFlags(v)}) }},
	})
	for _, v := range []int{-1, math.MinInt} {
		t.refused("a negative cqe", plain(v, nil), verbs.EINVAL)
		t.refused("a negative vector", plain(4, &verbs.CQOptions{CompVector: v}), verbs.EINVAL)
	}
}

func rangesOfCQChanges(t *T) {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	caps := d.CQModCaps
	a := t.end()
	cq := e.cq(8, nil)
	qa, qb := onCQ(a, e, cq)
	receive(a, e, qa, qb, 0, 3)
	moderate := func(m verbs.ModerateCQ) error {
		return cq.Modify(&verbs.ModifyCQAttr{AttrMask: verbs.CQAttrModerate, Moderate: m})
	}
	t.sweep([]span{
		{name: "cqe of resize_cq", least: 3, most: uint64(d.MaxCQE), top: math.MaxInt,
			try: func(v uint64) error { return cq.Resize(int(v)) }},
		{name: "cq_count", most: uint64(caps.MaxCQCount), top: top16,
			try: func(v uint64) error { return moderate(verbs.ModerateCQ{Count: uint16(v)}) }},
		{name: "cq_period", most: uint64(caps.MaxCQPeriod), top: top16,
			try: func(v uint64) error { return moderate(verbs.ModerateCQ{Period: uint16(v)}) }},
		{name: "attr_mask of modify_cq", most: 1, top: top32,
			try: func(v uint64) error { return cq.Modify(&verbs.ModifyCQAttr{AttrMask: verbs.CQAttrMask(v)}) }},
	})
	t.must(cq.Resize(8))
	room := cq.Cap()
	for _, n := range []int{math.MinInt, -1, 0, 2, d.MaxCQE + 1, math.MaxInt} {
		t.refused(fmt.Sprintf("a resize to %d", n), cq.Resize(n), verbs.EINVAL)
		same(t, "the capacity", cq.Cap(), room)
	}
	t.refused("modify_cq without attributes", cq.Modify(nil), verbs.EINVAL)
	receive(a, e, qa, qb, 3, 2)
	same(t, "its completions", t.ids(t.poll(cq, 5), verbs.WCSuccess), "[0 1 2 3 4]")
}

func rangesOfSRQs(t *T) {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	create := func(attr verbs.SRQAttr) error { return made(e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: attr})) }
	createEx := func(attr verbs.SRQAttr) error {
		return made(e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: attr}))
	}
	wrs, sges := uint64(d.MaxSRQWR), uint64(d.MaxSRQSGE)
	srq := e.srq(8)
	for i := range 5 {
		t.must(srq.PostRecv(e.recv(uint64(i), 0, 10)))
	}
	t.must(srq.Modify(&verbs.SRQAttr{SRQLimit: 3}, verbs.SRQAttrLimit))
	var before verbs.SRQAttr
	modify := func(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
		t.must(srq.Modify(&verbs.SRQAttr{MaxWR: 8, MaxSGE: 2}, verbs.SRQAttrMaxWR)) // restores the values
		before = get(srq.Query())(t)
		return srq.Modify(&attr, mask)
	}
	unchanged := func(t *T, at string) {
		t.Helper()
		same(t, "after "+at, get(srq.Query())(t), before)
	}
	t.sweep([]span{
		{name: "max_wr", least: 1, most: wrs, top: top32, queue: true,
			try: func(v uint64) error { return create(verbs.SRQAttr{MaxWR: uint32(v), MaxSGE: 1}) }},
		{name: "max_sge", least: 1, most: sges, top: top32,
			try: func(v uint64) error { return create(verbs.SRQAttr{MaxWR: 1, MaxSGE: uint32(v)}) }},
		{name: "srq_limit at creation", most: top32,
			try: func(v uint64) error { return create(verbs.SRQAttr{MaxWR: 1, MaxSGE: 1, SRQLimit: uint32(v)}) }},
		{name: "max_wr of create_srq_ex", least: 1, most: wrs, top: top32, queue: true,
			try: func(v uint64) error { return createEx(verbs.SRQAttr{MaxWR: uint32(v), MaxSGE: 1}) }},
		{name: "max_sge of create_srq_ex", least: 1, most: sges, top: top32,
			try: func(v uint64) error { return createEx(verbs.SRQAttr{MaxWR: 1, MaxSGE: uint32(v)}) }},
		// 5 receives are posted, so 4 is too small.
		{name: "max_wr of modify_srq", least: 5, most: wrs, top: top32, same: unchanged, queue: true,
			try: func(v uint64) error { return modify(verbs.SRQAttr{MaxWR: uint32(v), MaxSGE: 2}, verbs.SRQAttrMaxWR) }},
		{name: "max_sge of modify_srq", most: sges, top: top32, same: unchanged, // 0: no change
			try: func(v uint64) error { return modify(verbs.SRQAttr{MaxWR: 8, MaxSGE: uint32(v)}, verbs.SRQAttrMaxWR) }},
		{name: "mask of modify_srq", most: 3, top: top32, same: unchanged,
			try: func(v uint64) error {
				return modify(verbs.SRQAttr{MaxWR: 8, MaxSGE: 2, SRQLimit: 3}, verbs.SRQAttrMask(v))
			}},
	})
	room := get(srq.Query())(t).MaxWR
	for _, limit := range []uint32{room + 1, top32} {
		t.refused("a limit above max_wr", modify(verbs.SRQAttr{SRQLimit: limit}, verbs.SRQAttrLimit),
			verbs.EINVAL)
		unchanged(t, "a limit that is too large")
	}
	t.must(modify(verbs.SRQAttr{SRQLimit: 5}, verbs.SRQAttrLimit)) // as many as are posted
	full := closing(t, get(e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 64, MaxSGE: 1}}))(t))
	for i := range 64 {
		t.must(full.PostRecv(e.recv(uint64(i), 0, 10)))
	}
	t.must(full.Modify(&verbs.SRQAttr{SRQLimit: 64}, verbs.SRQAttrLimit))
	e.noEvent("the number of posted receives equals the limit")
}

func rangesOfTagSRQs(t *T) {
	e := t.end()
	caps := get(e.ctx.QueryDevice())(t).TMCaps
	if caps.MaxNumTags == 0 {
		t.Skip("the device has no tag matching")
	}
	create := func(tags, ops uint64) error {
		return made(e.pd.CreateSRQ(&verbs.SRQInitAttr{
			Type: verbs.SRQTypeTM, CQ: e.rcvQ, Attr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1},
			TMCap: verbs.TMCap{MaxNumTags: uint32(tags), MaxOps: uint32(ops)},
		}))
	}
	t.sweep([]span{
		{name: "max_num_tags", least: 1, most: uint64(caps.MaxNumTags), top: top32,
			try: func(v uint64) error { return create(v, 1) }},
		{name: "max_ops", least: 1, most: uint64(caps.MaxOps), top: top32, try: func(v uint64) error { return create(1, v) }},
	})
	srq := closing(t, get(e.pd.CreateSRQ(&verbs.SRQInitAttr{
		Type: verbs.SRQTypeTM, CQ: e.rcvQ, Attr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1},
		TMCap: verbs.TMCap{MaxNumTags: 2, MaxOps: 64},
	}))(t))
	t.refused("an unknown operation", srq.PostOps(verbs.OpsWR{Opcode: verbs.TagSync + 1}), verbs.EINVAL)
	t.refused("too many entries",
		srq.PostOps(verbs.OpsWR{Opcode: verbs.TagAdd, Mask: 1, SGList: make([]verbs.SGE, caps.MaxSGE+1)}), verbs.EINVAL)
	t.refused("a tag with bits that the mask lacks", srq.PostOps(verbs.OpsWR{Opcode: verbs.TagAdd, Tag: 2, Mask: 1}),
		verbs.EINVAL)
}

func rangesOfQPs(t *T) {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	_, inline := e.widestInline(rc)
	srq := e.srq(4)
	xrc := d.DeviceCapFlags&verbs.DeviceXRC != 0
	for _, typ := range []verbs.QPType{rc, uc, ud, verbs.QPTypeXRCSend} {
		if typ == verbs.QPTypeXRCSend && !xrc {
			continue
		}
		create := func(change func(*verbs.QPInitAttr, *verbs.QPCap)) error {
			init := verbs.QPInitAttr{Type: typ, SendCQ: e.sendCQ, RecvCQ: e.rcvQ,
				Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
			change(&init, &init.Cap)
			want := init.Cap
			qp, err := e.pd.CreateQP(&init)
			if got := init.Cap; err == nil && (got.MaxSendWR < want.MaxSendWR || got.MaxSendSGE < want.MaxSendSGE ||
				got.MaxInlineData < want.MaxInlineData ||
				typ != verbs.QPTypeXRCSend && init.SRQ == nil &&
					(got.MaxRecvWR < want.MaxRecvWR || got.MaxRecvSGE < want.MaxRecvSGE)) {
				t.Errorf("%v: %+v became %+v", typ, want, got)
			}
			return made(qp, err)
		}
		most := func(n int) uint64 { return uint64(n) }
		spans := []span{
			{name: "max_send_wr", most: most(d.MaxQPWR), queue: true, try: func(v uint64) error {
				return create(func(_ *verbs.QPInitAttr, c *verbs.QPCap) { c.MaxSendWR = uint32(v) })
			}},
			{name: "max_send_sge", most: most(d.MaxSGE), try: func(v uint64) error {
				return create(func(_ *verbs.QPInitAttr, c *verbs.QPCap) { c.MaxSendSGE = uint32(v) })
			}},
			{name: "max_inline_data", most: most(inline), try: func(v uint64) error {
				return create(func(_ *verbs.QPInitAttr, c *verbs.QPCap) { c.MaxInlineData = uint32(v) })
			}},
		}
		if typ != verbs.QPTypeXRCSend {
			spans = append(spans,
				span{name: "max_recv_wr", most: most(d.MaxQPWR), queue: true, try: func(v uint64) error {
					return create(func(_ *verbs.QPInitAttr, c *verbs.QPCap) { c.MaxRecvWR = uint32(v) })
				}},
				span{name: "max_recv_sge", most: most(d.MaxSGE), try: func(v uint64) error {
					return create(func(_ *verbs.QPInitAttr, c *verbs.QPCap) { c.MaxRecvSGE = uint32(v) })
				}})
		}
		for i := range spans {
			spans[i].name = fmt.Sprintf("%s of %v", spans[i].name, typ)
			spans[i].top = top32
		}
		t.sweep(spans)
		for bit := range 32 {
			err := create(func(i *verbs.QPInitAttr, _ *verbs.QPCap) { i.CreateFlags = 1 << bit })
			if bit == 11 || typ == ud && (bit == 1 || bit == 10) { // existing flags, which a device may lack
				if !errors.Is(err, verbs.EOPNOTSUPP) {
					t.must(err)
				}
				continue
			}
			t.refused(fmt.Sprintf("create flag %d of %v", bit, typ), err, verbs.EINVAL)
		}
		if typ != uc {
			t.must(create(func(i *verbs.QPInitAttr, c *verbs.QPCap) { i.SRQ, c.MaxRecvWR, c.MaxRecvSGE = srq, top32, top32 }))
		}
	}
	for v := range verbs.QPType(0x101) {
		err := made(e.pd.CreateQP(&verbs.QPInitAttr{Type: v, SendCQ: e.sendCQ, RecvCQ: e.rcvQ}))
		switch v {
		case rc, uc, ud, verbs.QPTypeRawPacket, verbs.QPTypeXRCSend, verbs.QPTypeDriver:
			continue // these types exist, or the device has a reason to refuse them
		}
		t.refused(fmt.Sprintf("a QP of type %d", v), err, verbs.EINVAL)
	}
}

func rangesOfPorts(t *T) {
	e := t.end()
	d, port := get(e.ctx.QueryDevice())(t), get(e.ctx.QueryPort(1))(t)
	ports, gids, keys := uint64(d.PhysPortCnt), uint64(port.GIDTblLen), uint64(port.PKeyTblLen)
	key := get(e.ctx.QueryPKey(1, 0))(t)
	t.sweep([]span{
		{name: "port of query_port", least: 1, most: ports, top: top8,
			try: func(v uint64) error { _, err := e.ctx.QueryPort(uint8(v)); return err }},
		{name: "port of query_gid", least: 1, most: ports, top: top8,
			try: func(v uint64) error { _, err := e.ctx.QueryGID(uint8(v), 0); return err }},
		{name: "port of query_gid_ex", least: 1, most: ports, top: top8,
			try: func(v uint64) error { _, err := e.ctx.QueryGIDEntry(uint8(v), 0); return err }},
		{name: "port of query_pkey", least: 1, most: ports, top: top8,
			try: func(v uint64) error { _, err := e.ctx.QueryPKey(uint8(v), 0); return err }},
		{name: "port of get_pkey_index", least: 1, most: ports, top: top8,
			try: func(v uint64) error { _, err := e.ctx.PKeyIndex(uint8(v), key); return err }},
		{name: "index of query_gid", most: gids - 1, top: math.MaxInt,
			try: func(v uint64) error { _, err := e.ctx.QueryGID(1, int(v)); return err }},
		{name: "index of query_pkey", most: keys - 1, top: math.MaxInt,
			try: func(v uint64) error { _, err := e.ctx.QueryPKey(1, int(v)); return err }},
	})
	_, err := e.ctx.QueryGID(1, -1)
	t.refused("GID -1", err, verbs.EINVAL)
	_, err = e.ctx.QueryPKey(1, -1)
	t.refused("P_Key -1", err, verbs.EINVAL)
	for _, index := range []int{math.MinInt, -1, int(gids), math.MaxInt} {
		_, err = e.ctx.QueryGIDEntry(1, index)
		t.refused(fmt.Sprintf("query_gid_ex of index %d", index), err, verbs.EINVAL)
	}
	_, err = e.ctx.QueryGIDEntry(1, int(gids)-1) // the table has gaps
	t.refused("query_gid_ex of the last, which is empty", err, verbs.ENODATA)
}

// pathFields returns the fields of an address, in AHs and in the paths of connected QPs. GID indices are in
// badPaths, since the table has gaps.
func (t *T) pathFields(e *end) []pathField {
	ports := uint64(get(e.ctx.QueryDevice())(t).PhysPortCnt)
	return []pathField{
		{"port_num", 1, ports, top8, func(a *verbs.AHAttr, v uint64) { a.PortNum = uint8(v) }},
		{"sl", 0, 15, top8, func(a *verbs.AHAttr, v uint64) { a.SL = uint8(v) }},
		{"src_path_bits", 0, 127, top8, func(a *verbs.AHAttr, v uint64) { a.SrcPathBits = uint8(v) }},
		{"static_rate", 0, top8, top8, func(a *verbs.AHAttr, v uint64) { a.StaticRate = verbs.StaticRate(v) }},
		{"flow_label", 0, 0xfffff, top32, func(a *verbs.AHAttr, v uint64) { a.GRH.FlowLabel = uint32(v) }},
		{"hop_limit", 0, top8, top8, func(a *verbs.AHAttr, v uint64) { a.GRH.HopLimit = uint8(v) }},
		{"traffic_class", 0, top8, top8, func(a *verbs.AHAttr, v uint64) { a.GRH.TrafficClass = uint8(v) }},
		{"dlid", 0, top16, top16, func(a *verbs.AHAttr, v uint64) { a.DLID = uint16(v) }},
	}
}

type pathField struct {
	name             string
	least, most, top uint64
	set              func(a *verbs.AHAttr, v uint64)
}

// badPaths returns changes that make an address invalid.
func (t *T) badPaths(e *end) map[string]func(a *verbs.AHAttr) {
	port := get(e.ctx.QueryPort(1))(t)
	bad := map[string]func(a *verbs.AHAttr){
		"no GRH":                       func(a *verbs.AHAttr) { a.IsGlobal = false },
		"no DGID":                      func(a *verbs.AHAttr) { a.GRH.DGID = verbs.GID{} },
		"sgid_index -1":                func(a *verbs.AHAttr) { a.GRH.SGIDIndex = -1 },
		"sgid_index behind the table":  func(a *verbs.AHAttr) { a.GRH.SGIDIndex = port.GIDTblLen },
		"the largest sgid_index":       func(a *verbs.AHAttr) { a.GRH.SGIDIndex = math.MaxInt },
		"the most negative sgid_index": func(a *verbs.AHAttr) { a.GRH.SGIDIndex = math.MinInt },
	}
	if last := port.GIDTblLen - 1; get(e.ctx.QueryGID(1, last))(t).IsZero() {
		bad["an empty entry of the GID table"] = func(a *verbs.AHAttr) { a.GRH.SGIDIndex = last }
	}
	return bad
}

func rangesOfAddresses(t *T) {
	e := t.end()
	good := pathTo(e.qp(ud, nil), verbs.GIDFromAddr(t.Addr(e.ctx)))
	create := func(change func(*verbs.AHAttr)) error {
		attr := good
		change(&attr)
		return made(e.pd.CreateAH(&attr))
	}
	for _, f := range t.pathFields(e) {
		t.sweep([]span{{name: f.name, least: f.least, most: f.most, top: f.top,
			try: func(v uint64) error { return create(func(a *verbs.AHAttr) { f.set(a, v) }) }}})
	}
	for name, change := range t.badPaths(e) {
		t.refused(name, create(change), verbs.EINVAL)
	}
	t.refused("no attributes", made(e.pd.CreateAH(nil)), verbs.EINVAL)
}
