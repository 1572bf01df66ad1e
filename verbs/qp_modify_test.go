package verbs

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// attrNamesOfSpec is the list of V-QPQ-09: bit numbers and names.
var attrNamesOfSpec = map[int]string{
	0: "STATE", 1: "CUR_STATE", 2: "EN_SQD_ASYNC_NOTIFY", 3: "ACCESS_FLAGS", 4: "PKEY_INDEX", 5: "PORT", 6: "QKEY",
	7: "AV", 8: "PATH_MTU",
	9: "TIMEOUT", 10: "RETRY_CNT", 11: "RNR_RETRY", 12: "RQ_PSN", 13: "MAX_QP_RD_ATOMIC", 14: "ALT_PATH",
	15: "MIN_RNR_TIMER", 16: "SQ_PSN",
	17: "MAX_DEST_RD_ATOMIC", 18: "PATH_MIG_STATE", 19: "CAP", 20: "DEST_QPN", 25: "RATE_LIMIT",
}

// The tables of the specification's section 35, and X-QPM-01 in the same format.
const (
	specUD = `
| any->RESET | STATE | |
| any->ERR | STATE | |
| RESET->INIT | STATE PKEY_INDEX PORT QKEY | |
| INIT->INIT | | PKEY_INDEX PORT QKEY |
| INIT->RTR | STATE | PKEY_INDEX QKEY |
| RTR->RTS | STATE SQ_PSN | CUR_STATE QKEY |
| RTS->RTS | | CUR_STATE QKEY |
| RTS->SQD | STATE | EN_SQD_ASYNC_NOTIFY |
| SQD->RTS | STATE | CUR_STATE QKEY |
| SQD->SQD | | PKEY_INDEX QKEY |
| SQE->RTS | STATE | CUR_STATE QKEY |`

	specUC = `
| any->RESET | STATE | |
| any->ERR | STATE | |
| RESET->INIT | STATE PKEY_INDEX PORT ACCESS_FLAGS | |
| INIT->INIT | | PKEY_INDEX PORT ACCESS_FLAGS |
| INIT->RTR | STATE PATH_MTU AV DEST_QPN RQ_PSN | PKEY_INDEX ALT_PATH ACCESS_FLAGS |
| RTR->RTS | STATE SQ_PSN | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE |
| RTS->RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE |
| RTS->SQD | STATE | EN_SQD_ASYNC_NOTIFY |
| SQD->RTS | STATE | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE |
| SQD->SQD | | PKEY_INDEX ACCESS_FLAGS AV ALT_PATH PATH_MIG_STATE |
| SQE->RTS | STATE | CUR_STATE ACCESS_FLAGS |`

	specRC = `
| any->RESET | STATE | |
| any->ERR | STATE | |
| RESET->INIT | STATE PKEY_INDEX PORT ACCESS_FLAGS | |
| INIT->INIT | | PKEY_INDEX PORT ACCESS_FLAGS |
| INIT->RTR | STATE AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER | PKEY_INDEX ACCESS_FLAGS ALT_PATH |
| RTR->RTS | STATE SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC | CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER ALT_PATH PATH_MIG_STATE |
| RTS->RTS | | CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER ALT_PATH PATH_MIG_STATE |
| RTS->SQD | STATE | EN_SQD_ASYNC_NOTIFY |
| SQD->RTS | STATE | CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER ALT_PATH PATH_MIG_STATE |
| SQD->SQD | | PKEY_INDEX PORT ACCESS_FLAGS AV MAX_QP_RD_ATOMIC MIN_RNR_TIMER ALT_PATH TIMEOUT RETRY_CNT RNR_RETRY MAX_DEST_RD_ATOMIC PATH_MIG_STATE |`

	// XRC_SEND is like RC without MAX_DEST_RD_ATOMIC and MIN_RNR_TIMER in INIT->RTR.
	specXRCSendRow = `| INIT->RTR | STATE AV PATH_MTU DEST_QPN RQ_PSN | PKEY_INDEX ACCESS_FLAGS ALT_PATH |`
	// XRC_RECV is like RC, but RTR->RTS needs only TIMEOUT and SQ_PSN.
	specXRCRecvRow = `| RTR->RTS | STATE SQ_PSN TIMEOUT | CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER ALT_PATH PATH_MIG_STATE |`

	specRaw = `
| any->RESET | STATE | |
| any->ERR | STATE | |
| RESET->INIT | STATE PORT | |
| INIT->INIT | | |
| INIT->RTR | STATE | |
| RTR->RTS | STATE | RATE_LIMIT |
| RTS->RTS | | RATE_LIMIT |
| RTS->SQD | STATE | |
| SQD->RTS | STATE | |
| SQD->SQD | | |
| SQE->RTS | STATE | |`
)

type specRow struct{ required, optional QPAttrMask }

// specTable reads a table. Later rows replace earlier ones of the same transition.
func specTable(t *testing.T, texts ...string) map[string]specRow {
	t.Helper()
	bit := map[string]int{}
	for b, name := range attrNamesOfSpec {
		bit[name] = b
	}
	mask := func(names string) (m QPAttrMask) {
		for _, name := range strings.Fields(names) {
			b, ok := bit[name]
			if !ok {
				t.Fatalf("no attribute %q", name)
			}
			m |= 1 << b
		}
		return m
	}
	table := map[string]specRow{}
	for _, line := range strings.Split(strings.Join(texts, "\n"), "\n") {
		if line == "" {
			continue
		}
		cells := strings.Split(line, "|")
		row := specRow{mask(cells[2]), mask(cells[3])}
		from, to, _ := strings.Cut(strings.TrimSpace(cells[1]), "->")
		if from != "any" {
			table[from+to] = row
			continue
		}
		for s := QPSReset; s <= QPSErr; s++ {
			table[s.String()+to] = row
		}
	}
	return table
}

func specTables(t *testing.T) map[QPType]map[string]specRow {
	return map[QPType]map[string]specRow{
		QPTypeUD: specTable(t, specUD), QPTypeUC: specTable(t, specUC), QPTypeRC: specTable(t, specRC),
		QPTypeXRCSend: specTable(t, specRC, specXRCSendRow), QPTypeXRCRecv: specTable(t, specRC, specXRCRecvRow),
		QPTypeRawPacket: specTable(t, specRaw),
	}
}

// goodAttr returns attributes with a valid value each.
func goodAttr(from, to QPState) QPAttr {
	way := AHAttr{IsGlobal: true, PortNum: 1, GRH: GlobalRoute{DGID: mustGID("::ffff:192.0.2.2"), SGIDIndex: 1,
		HopLimit: 64}}
	return QPAttr{
		QPState: to, CurQPState: from, PathMTU: MTU1024, QKey: 0x22222222, RQPSN: 1, SQPSN: 2, DestQPNum: 0x12,
		QPAccessFlags: AccessRemoteRead, AHAttr: way, AltAHAttr: way, AltPortNum: 1, PortNum: 1, MaxRdAtomic: 1,
		MaxDestRdAtomic: 1,
		MinRNRTimer:     12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
}

// subsets calls f with every subset of m.
func subsets(m QPAttrMask, f func(QPAttrMask)) {
	for s := m; ; s = (s - 1) & m {
		f(s)
		if s == 0 {
			return
		}
	}
}

// TestV_QPM_11_TransitionTables tries every pair of states of every type with every subset of the optional attributes,
// without each required one, with each superfluous one, and with random masks. Also V-QPM-01, V-QPM-02, V-QPS-02,
// V-QPS-06, V-QPS-08, V-QPS-09, V-QPS-10, D-31.
func TestV_QPM_11_TransitionTables(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for typ, table := range specTables(t) {
		t.Run(typ.String(), func(t *testing.T) {
			dev := newFakeDevice()
			vctx, _ := openDevice(t, dev)
			qp, drv := newQP(t, newPD(t, vctx), typ)
			probe := tableProbe{t: t, qp: qp, drv: drv, table: table}
			for from := QPSReset; from <= QPSErr; from++ {
				for to := QPSReset; to <= QPSErr; to++ {
					probe.pair(from, to, rnd)
				}
			}
			if probe.accepted == 0 || probe.refused == 0 {
				t.Errorf("%d accepted, %d refused", probe.accepted, probe.refused)
			}
		})
	}
}

type tableProbe struct {
	t                 *testing.T
	qp                *QP
	drv               *fakeQP
	table             map[string]specRow
	accepted, refused int
}

func (p *tableProbe) pair(from, to QPState, rnd *rand.Rand) {
	row := p.table[from.String()+to.String()]
	subsets(row.optional, func(o QPAttrMask) { p.try(from, to, row.required|o) })
	for b := range attrNamesOfSpec {
		p.try(from, to, (row.required|row.optional)^1<<b)
		p.try(from, to, row.required^1<<b)
		p.try(from, to, QPAttrState^1<<b)
	}
	for range 200 {
		p.try(from, to, QPAttrMask(rnd.Uint32())&qpAttrAll)
	}
	p.try(from, to, qpAttrAll)
	p.try(from, to, 0)
}

// try makes one transition and compares with the specification's row. A mask without STATE keeps the state.
func (p *tableProbe) try(from, to QPState, mask QPAttrMask) {
	p.t.Helper()
	if mask&QPAttrState == 0 {
		to = from
	}
	row, exists := p.table[from.String()+to.String()]
	if from == to {
		row.optional |= QPAttrState
	}
	missing, extra := row.required&^mask, mask&^(row.required|row.optional)
	forceState(p.qp, p.drv, from)
	attr := goodAttr(from, to)
	modifies := p.drv.modifies
	err := p.qp.Modify(&attr, mask)
	if exists && missing == 0 && extra == 0 {
		p.accepted++
		if err != nil || p.qp.State() != to || p.drv.modifies != modifies+1 || p.drv.mask != mask {
			p.t.Fatalf("%v->%v with %v: %v, state %v", from, to, mask, err, p.qp.State())
		}
		return
	}
	p.refused++
	if !errors.Is(err, EINVAL) || p.qp.State() != from || p.drv.modifies != modifies || attr != goodAttr(from, to) {
		p.t.Fatalf("%v->%v with %v: %v, state %v, driver called: %v", from, to, mask, err, p.qp.State(),
			p.drv.modifies != modifies)
	}
	want := from.String() + "->" + to.String() + " is not possible (EINVAL)"
	if exists {
		var parts []string
		if missing != 0 {
			parts = append(parts, "missing "+missing.String())
		}
		if extra != 0 {
			parts = append(parts, "not allowed here: "+extra.String())
		}
		want = from.String() + "->" + to.String() + ": " + strings.Join(parts, "; ") + " (EINVAL)"
	}
	if !strings.HasPrefix(err.Error(), "modify_qp: "+want) {
		p.t.Fatalf("%v->%v with %v: %q; want %q", from, to, mask, err, want)
	}
}

func TestV_QPM_02_RefusalNamesAttributes(t *testing.T) {
	qp, _ := newQPIn(t, QPTypeRC, QPSInit)
	attr := goodAttr(QPSInit, QPSRTR)
	mask := QPAttrState | QPAttrPathMTU | QPAttrRQPSN | QPAttrMaxDestRdAtomic | QPAttrMinRNRTimer | QPAttrCap
	err := qp.Modify(&attr, mask)
	want := "modify_qp: INIT->RTR: missing QP_AV, QP_DEST_QPN; not allowed here: QP_CAP (EINVAL); " +
		"required: QP_STATE, QP_AV, QP_PATH_MTU, QP_RQ_PSN, QP_MIN_RNR_TIMER, QP_MAX_DEST_RD_ATOMIC, QP_DEST_QPN; " +
		"optional: QP_ACCESS_FLAGS, QP_PKEY_INDEX, QP_ALT_PATH [RC QP 0x000012]"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %v", err, want)
	}
	attr.QPState = QPSRTS
	refused(t, qp.Modify(&attr, QPAttrState), EINVAL, "INIT->RTS is not possible",
		"from INIT a QP of type RC goes to RESET, INIT, RTR, ERR")
	refused(t, qp.Modify(&attr, 1<<24), EINVAL, "not allowed here: 0x1000000")
	refused(t, qp.Modify(nil, QPAttrState), EINVAL)
	attr.QPState = 1 << 31
	refused(t, qp.Modify(&attr, QPAttrState), EINVAL, "QPState(2147483648)")
}

func TestV_QPM_03_FailureChangesNothing(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSInit)
	drv.fail["ModifyQP"] = syscall.ENOMEM
	attr := goodAttr(QPSInit, QPSRTR)
	drv.onModify = func(a *QPAttr, _ QPAttrMask) error { a.PathMTU = MTU256; return nil }
	before := attr
	refused(t, qp.Modify(&attr, transitionsOf[QPTypeRC][move{QPSInit, QPSRTR}].required), ENOMEM, "INIT->RTR")
	if attr != before || qp.State() != QPSInit {
		t.Errorf("attributes %+v, state %v", attr, qp.State())
	}
}

func TestV_QPM_04_ActualValuesAreReturned(t *testing.T) {
	qp, drv := newQPIn(t, QPTypeRC, QPSRTR)
	drv.onModify = func(a *QPAttr, _ QPAttrMask) error { a.MaxRdAtomic = 4; return nil }
	attr := goodAttr(QPSRTR, QPSRTS)
	attr.MaxRdAtomic = 3
	ok(t, qp.Modify(&attr, transitionsOf[QPTypeRC][move{QPSRTR, QPSRTS}].required))
	if attr.MaxRdAtomic != 4 {
		t.Errorf("MaxRdAtomic %d; want the driver's", attr.MaxRdAtomic)
	}
}

// TestV_QPM_05_CapNeedsResizing: that queues are resized is tested by provider/soft.
func TestV_QPM_05_CapNeedsResizing(t *testing.T) {
	attr := QPAttr{Cap: QPCap{MaxSendWR: 1}}
	qp, _ := newQPIn(t, QPTypeRC, QPSRTS)
	refused(t, qp.Modify(&attr, QPAttrCap), EINVAL, "not allowed here: QP_CAP")

	dev := newFakeDevice()
	dev.attr.DeviceCapFlags |= DeviceResizeMaxWR
	vctx, _ := openDevice(t, dev)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	forceState(qp, drv, QPSRTS)
	was := qp.init.Cap
	drv.onModify = func(a *QPAttr, _ QPAttrMask) error { a.Cap = QPCap{MaxSendWR: 9, MaxRecvWR: 10}; return nil }
	ok(t, qp.Modify(&attr, QPAttrCap))
	want := was
	want.MaxSendWR, want.MaxRecvWR = 9, 10 // the driver's sizes; the others are fixed
	if now, init, err := qp.Query(QPAttrCap); err != nil || now.Cap != want || init.Cap != want {
		t.Errorf("%+v, %+v, %v; want %+v", now.Cap, init.Cap, err, want)
	}
	for _, bad := range []QPCap{
		{MaxSendWR: uint32(dev.attr.MaxQPWR) + 1}, {MaxRecvWR: uint32(dev.attr.MaxQPWR) + 1},
		{MaxSendSGE: want.MaxSendSGE + 1}, {MaxRecvSGE: want.MaxRecvSGE + 1}, {MaxInlineData: want.MaxInlineData + 1},
	} {
		refused(t, qp.Modify(&QPAttr{Cap: bad}, QPAttrCap), EINVAL, "RTS->RTS: QP_CAP: Max", "must be 0 to")
	}
	for _, to := range []QPState{QPSReset, QPSErr} {
		refused(t, qp.Modify(&QPAttr{QPState: to}, QPAttrState|QPAttrCap), EINVAL, "not allowed here: QP_CAP")
	}
}

func TestV_QPM_06_AlternatePathNeedsCapability(t *testing.T) {
	for _, can := range []bool{true, false} {
		for _, mask := range []QPAttrMask{QPAttrAltPath, QPAttrPathMigState} {
			dev := newFakeDevice()
			if !can {
				dev.attr.DeviceCapFlags &^= DeviceAutoPathMig
			}
			vctx, _ := openDevice(t, dev)
			qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
			forceState(qp, drv, QPSRTS)
			attr := goodAttr(QPSRTS, QPSRTS)
			err := qp.Modify(&attr, mask)
			if can {
				ok(t, err)
			} else {
				refused(t, err, EINVAL, mask.String()+" needs a device with AUTO_PATH_MIG")
			}
		}
	}
}

func TestV_QPM_12_PortInSQDNeedsCapability(t *testing.T) {
	for _, can := range []bool{true, false} {
		dev := newFakeDevice()
		if !can {
			dev.attr.DeviceCapFlags &^= DeviceChangePhyPort
		}
		vctx, _ := openDevice(t, dev)
		qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
		forceState(qp, drv, QPSSQD)
		err := qp.Modify(&QPAttr{PortNum: 2}, QPAttrPort)
		if can {
			ok(t, err)
		} else {
			refused(t, err, EINVAL, "QP_PORT needs a device with CHANGE_PHY_PORT")
		}
		forceState(qp, drv, QPSInit)
		ok(t, qp.Modify(&QPAttr{PortNum: 2}, QPAttrPort)) // other transitions need no capability
	}
}

func TestV_QPM_08_RoCENeedsGRH(t *testing.T) {
	for _, typ := range []QPType{QPTypeRC, QPTypeUC} {
		required := transitionsOf[typ][move{QPSInit, QPSRTR}].required
		qp, _ := newQPIn(t, typ, QPSInit)
		attr := goodAttr(QPSInit, QPSRTR)
		attr.AHAttr.IsGlobal = false
		refused(t, qp.Modify(&attr, required), EINVAL, "INIT->RTR: QP_AV", "no GRH")
		attr.AHAttr.IsGlobal = true
		ok(t, qp.Modify(&attr, required))
	}
	// On InfiniBand without GRH_REQUIRED a LID is enough.
	dev := newFakeDevice()
	dev.ports[0].LinkLayer, dev.ports[0].Flags = LinkLayerInfiniBand, 0
	vctx, _ := openDevice(t, dev)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	forceState(qp, drv, QPSInit)
	attr := goodAttr(QPSInit, QPSRTR)
	attr.AHAttr = AHAttr{DLID: 7, PortNum: 1}
	ok(t, qp.Modify(&attr, transitionsOf[QPTypeRC][move{QPSInit, QPSRTR}].required))
}

func TestX_QPM_02_Ranges(t *testing.T) {
	type step struct {
		from, to QPState
		more     QPAttrMask
	}
	initial, rtr, rts := step{QPSReset, QPSInit, 0}, step{QPSInit, QPSRTR, 0}, step{QPSRTR, QPSRTS, 0}
	rtrAlt, migState := step{QPSInit, QPSRTR, QPAttrAltPath}, step{QPSRTS, QPSRTS, QPAttrPathMigState}
	try := func(t *testing.T, s step, change func(*QPAttr)) error {
		qp, drv := newQPIn(t, QPTypeRC, s.from)
		attr := goodAttr(s.from, s.to)
		change(&attr)
		err := qp.Modify(&attr, transitionsOf[QPTypeRC][move{s.from, s.to}].required|s.more)
		if failed := err != nil; failed != (drv.modifies == 0) || failed && qp.State() != s.from {
			t.Errorf("%v, but state %v and %d calls of the driver", err, qp.State(), drv.modifies)
		}
		return err
	}
	tests := []struct {
		name      string
		step      step
		good, bad func(*QPAttr)
		text      string
	}{
		{"pkey_index", initial, func(a *QPAttr) { a.PKeyIndex = 1 }, func(a *QPAttr) { a.PKeyIndex = 2 },
			"must be 0 to 1"},
		{"port", initial, func(a *QPAttr) { a.PortNum = 2 }, func(a *QPAttr) { a.PortNum = 3 }, "must be 1 to 2"},
		{"port 0", initial, func(a *QPAttr) { a.PortNum = 1 }, func(a *QPAttr) { a.PortNum = 0 }, "port 0: must be 1 to 2"},
		{"access", initial, func(a *QPAttr) { a.QPAccessFlags = 0xf }, func(a *QPAttr) { a.QPAccessFlags = 1 << 15 },
			"unknown access flags 0x8000"},
		{"path_mtu", rtr, func(a *QPAttr) { a.PathMTU = MTU1024 }, func(a *QPAttr) { a.PathMTU = MTU2048 },
			"at most the port's active MTU 1024"},
		{"path_mtu 0", rtr, func(a *QPAttr) { a.PathMTU = MTU256 }, func(a *QPAttr) { a.PathMTU = 0 }, "MTU256 to MTU4096"},
		{"path_mtu 6", rtr, func(a *QPAttr) { a.PathMTU = MTU256 }, func(a *QPAttr) { a.PathMTU = 6 }, "MTU256 to MTU4096"},
		{"dest_qp_num", rtr, func(a *QPAttr) { a.DestQPNum = 0xffffff }, func(a *QPAttr) { a.DestQPNum = 1 << 24 },
			"QP_DEST_QPN 16777216"},
		{"rq_psn", rtr, func(a *QPAttr) { a.RQPSN = 0xffffff }, func(a *QPAttr) { a.RQPSN = 1 << 24 }, "QP_RQ_PSN"},
		{"sq_psn", rts, func(a *QPAttr) { a.SQPSN = 0xffffff }, func(a *QPAttr) { a.SQPSN = 1 << 24 }, "QP_SQ_PSN"},
		{"min_rnr_timer", rtr, func(a *QPAttr) { a.MinRNRTimer = 31 }, func(a *QPAttr) { a.MinRNRTimer = 32 },
			"QP_MIN_RNR_TIMER 32: must be 0 to 31"},
		{"timeout", rts, func(a *QPAttr) { a.Timeout = 31 }, func(a *QPAttr) { a.Timeout = 32 }, "QP_TIMEOUT"},
		{"retry_cnt", rts, func(a *QPAttr) { a.RetryCnt = 7 }, func(a *QPAttr) { a.RetryCnt = 8 }, "QP_RETRY_CNT"},
		{"rnr_retry", rts, func(a *QPAttr) { a.RNRRetry = 7 }, func(a *QPAttr) { a.RNRRetry = 8 }, "QP_RNR_RETRY"},
		{"max_rd_atomic", rts, func(a *QPAttr) { a.MaxRdAtomic = 8 }, func(a *QPAttr) { a.MaxRdAtomic = 9 }, "0 to 8"},
		{"max_dest_rd_atomic", rtr, func(a *QPAttr) { a.MaxDestRdAtomic = 16 }, func(a *QPAttr) { a.MaxDestRdAtomic = 17 },
			"0 to 16"},
		{"sgid_index", rtr, func(a *QPAttr) { a.AHAttr.GRH.SGIDIndex = 3 }, func(a *QPAttr) { a.AHAttr.GRH.SGIDIndex = 16 },
			"SGID index 16: must be 0 to"},
		{"sgid_index empty", rtr, func(a *QPAttr) { a.AHAttr.GRH.SGIDIndex = 3 },
			func(a *QPAttr) { a.AHAttr.GRH.SGIDIndex = 2 }, "entry 2 of the GID table is empty"},
		{"dgid", rtr, func(*QPAttr) {}, func(a *QPAttr) { a.AHAttr.GRH.DGID = GID{} }, "destination GID is empty"},
		{"dgid multicast", rtr, func(*QPAttr) {}, func(a *QPAttr) { a.AHAttr.GRH.DGID = mustGID("::ffff:224.0.0.1") },
			"is a multicast group"},
		{"av port", rtr, func(a *QPAttr) { a.AHAttr.PortNum = 2 }, func(a *QPAttr) { a.AHAttr.PortNum = 0 },
			"port 0 of the address"},
		{"flow label", rtr, func(a *QPAttr) { a.AHAttr.GRH.FlowLabel = 0xfffff },
			func(a *QPAttr) { a.AHAttr.GRH.FlowLabel = 1 << 20 }, "flow label"},
		{"sl", rtr, func(a *QPAttr) { a.AHAttr.SL = 15 }, func(a *QPAttr) { a.AHAttr.SL = 16 }, "SL 16"},
		{"alt port", rtrAlt, func(a *QPAttr) { a.AltPortNum = 2 }, func(a *QPAttr) { a.AltPortNum = 3 },
			"alternate path: port 3"},
		{"alt pkey", rtrAlt, func(a *QPAttr) { a.AltPKeyIndex = 1 }, func(a *QPAttr) { a.AltPKeyIndex = 2 },
			"alternate P_Key index 2"},
		{"alt timeout", rtrAlt, func(a *QPAttr) { a.AltTimeout = 31 }, func(a *QPAttr) { a.AltTimeout = 32 },
			"QP_ALT_PATH 32"},
		{"alt av", rtrAlt, func(*QPAttr) {}, func(a *QPAttr) { a.AltAHAttr.IsGlobal = false },
			"QP_ALT_PATH: the address has no GRH"},
		{"mig state", migState, func(a *QPAttr) { a.PathMigState = MigArmed }, func(a *QPAttr) { a.PathMigState = 3 },
			"unknown path migration state"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ok(t, try(t, tt.step, tt.good))
			refused(t, try(t, tt.step, tt.bad), EINVAL, tt.text)
		})
	}
}

func TestV_QPS_11_SQDMustBeDrained(t *testing.T) {
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD} {
		qp, drv := newQPIn(t, typ, QPSSQD)
		drv.attr.SQDraining = true
		toRTS := QPAttr{QPState: QPSRTS}
		refused(t, qp.Modify(&toRTS, QPAttrState), EINVAL, "SQD->RTS", "draining", "SQ_DRAINED")
		refused(t, qp.Modify(&QPAttr{}, QPAttrPKeyIndex), EINVAL, "SQD->SQD", "draining")
		drv.attr.SQDraining = false
		ok(t, qp.Modify(&QPAttr{}, QPAttrPKeyIndex))
		drv.attr.QPState = QPSSQD
		ok(t, qp.Modify(&toRTS, QPAttrState))
		// Transitions to other states are always allowed.
		forceState(qp, drv, QPSSQD)
		drv.attr.SQDraining = true
		ok(t, qp.Modify(&QPAttr{QPState: QPSErr}, QPAttrState))
	}
}

func TestX_QPM_01_CurStateMustBeTrue(t *testing.T) {
	qp, _ := newQPIn(t, QPTypeUD, QPSSQE)
	attr := QPAttr{QPState: QPSRTS, CurQPState: QPSRTS}
	refused(t, qp.Modify(&attr, QPAttrState|QPAttrCurState), EINVAL, "QP_CUR_STATE RTS: the QP is in SQE")
	attr.CurQPState = QPSSQE
	ok(t, qp.Modify(&attr, QPAttrState|QPAttrCurState))
}

// TestV_QPM_13_SampleBringUp makes the transitions of the manual's samples.
func TestV_QPM_13_SampleBringUp(t *testing.T) {
	way := AHAttr{IsGlobal: true, PortNum: 1, GRH: GlobalRoute{DGID: mustGID("2001:db8::2"), SGIDIndex: 3}}
	steps := map[QPType][]struct {
		attr QPAttr
		mask QPAttrMask
	}{
		QPTypeUD: {
			{QPAttr{QPState: QPSInit, PortNum: 1, QKey: 0x22222222}, QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrQKey},
			{QPAttr{QPState: QPSRTR}, QPAttrState},
			{QPAttr{QPState: QPSRTS}, QPAttrState | QPAttrSQPSN},
		},
		QPTypeUC: {
			{QPAttr{QPState: QPSInit, PortNum: 1}, QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags},
			{QPAttr{QPState: QPSRTR, PathMTU: MTU1024, DestQPNum: 5, AHAttr: way},
				QPAttrState | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrAV},
			{QPAttr{QPState: QPSRTS}, QPAttrState | QPAttrSQPSN},
		},
		QPTypeRC: {
			{QPAttr{QPState: QPSInit, PortNum: 1}, QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags},
			{QPAttr{QPState: QPSRTR, PathMTU: MTU1024, DestQPNum: 5, AHAttr: way, MaxDestRdAtomic: 1, MinRNRTimer: 12},
				QPAttrState | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrAV | QPAttrMaxDestRdAtomic | QPAttrMinRNRTimer},
			{QPAttr{QPState: QPSRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
				QPAttrState | QPAttrSQPSN | QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxQPRdAtomic},
		},
	}
	for typ, list := range steps {
		vctx, _ := openFake(t)
		qp, _ := newQP(t, newPD(t, vctx), typ)
		for _, step := range list {
			ok(t, qp.Modify(&step.attr, step.mask))
		}
		if qp.State() != QPSRTS {
			t.Errorf("%v is in %v", typ, qp.State())
		}
	}
}

func TestV_QPS_15_TransitionsOfTheDevice(t *testing.T) { // V-QPS-13
	qp, drv := newQPIn(t, QPTypeUD, QPSRTS)
	drv.up.StateChanged(QPSSQE)
	if qp.State() != QPSSQE {
		t.Errorf("state %v", qp.State())
	}
	ok(t, qp.Modify(&QPAttr{QPState: QPSRTS}, QPAttrState)) // V-QPS-14: SQE is left by modify
	if qp.State() != QPSRTS {
		t.Errorf("state %v", qp.State())
	}
	drv.up.StateChanged(QPSErr)
	refused(t, qp.Modify(&QPAttr{QPState: QPSRTS}, QPAttrState), EINVAL, "ERR->RTS is not possible")
	ok(t, qp.Modify(&QPAttr{QPState: QPSReset}, QPAttrState))
}

// TestModifyRacesWithDevice: the device moves the QP during Modify. The last transition counts, as the driver's Query
// reports it.
func TestModifyRacesWithDevice(t *testing.T) {
	for _, last := range []QPState{QPSErr, QPSReset} {
		qp, drv := newQPIn(t, QPTypeRC, QPSRTS)
		drv.onModify = func(a *QPAttr, _ QPAttrMask) error {
			drv.up.StateChanged(QPSErr)
			a.QPState = last // the result of Query
			return nil
		}
		ok(t, qp.Modify(&QPAttr{QPState: QPSReset}, QPAttrState))
		if qp.State() != last {
			t.Errorf("state %v; the driver's is %v", qp.State(), last)
		}
	}
}

func TestV_QPQ_01_Query(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	cq, _ := newCQ(t, vctx, nil)
	init := QPInitAttr{Type: QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 7}, Context: "mine", SigAll: true}
	qp := must(pd.CreateQP(&init))(t)
	ok(t, qp.Modify(&QPAttr{QPState: QPSInit, PortNum: 2, PKeyIndex: 1},
		transitionsOf[QPTypeRC][move{QPSReset, QPSInit}].required))
	attr, back, err := qp.Query(QPAttrState)
	ok(t, err)
	if attr.QPState != QPSInit || attr.CurQPState != QPSInit || attr.PortNum != 2 || attr.PKeyIndex != 1 ||
		attr.Cap != init.Cap {
		t.Errorf("attributes %+v", attr)
	}
	if back != init {
		t.Errorf("init attributes %+v; want %+v", back, init)
	}
	_, _, err = qp.Query(1 << 22)
	refused(t, err, EINVAL)
	ok(t, qp.Close())
	_, _, err = qp.Query(QPAttrState)
	refused(t, err, EINVAL, "closed")
}

func TestConnect(t *testing.T) { // V-QPM-07
	ctxA, _ := openFake(t)
	ctxB, _ := openFake(t)
	for _, typ := range []QPType{QPTypeRC, QPTypeUC} {
		a, drvA := newQP(t, newPD(t, ctxA), typ)
		b, drvB := newQP(t, newPD(t, ctxB), typ)
		infoA, infoB := must(a.LocalInfo())(t), must(b.LocalInfo())(t)
		if again := must(a.LocalInfo())(t); again != infoA {
			t.Errorf("LocalInfo returned %v, then %v", infoA, again)
		}
		if infoA.GID != mustGID("::ffff:192.0.2.1") || infoA.QPN != a.QPN() || infoA.MTU != MTU1024 || infoA.PSN > 0xffffff {
			t.Errorf("info %v", infoA)
		}
		ok(t, a.Connect(infoB, nil))
		infoA.MTU = MTU512
		ok(t, b.Connect(infoA, &ConnectOptions{Timeout: 10, HopLimit: 3}))
		if a.State() != QPSRTS || b.State() != QPSRTS {
			t.Errorf("states %v, %v", a.State(), b.State())
		}
		if drvA.attr.SQPSN != infoA.PSN || drvB.modifies != 3 {
			t.Errorf("PSN %#x, %d modifies", drvA.attr.SQPSN, drvB.modifies)
		}
		refused(t, a.Connect(infoB, nil), EINVAL, "not possible in RTS")
	}
}

func TestConnectValues(t *testing.T) {
	vctx, _ := openFake(t)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	var steps []QPAttr
	drv.onModify = func(a *QPAttr, _ QPAttrMask) error { steps = append(steps, *a); return nil }
	local := must(qp.LocalInfoFor(netip.MustParseAddr("192.0.2.9")))(t)
	remote := QPInfo{Type: QPTypeRC, QPN: 0x99, PSN: 0x777, GID: mustGID("::ffff:192.0.2.9"), MTU: MTU512, RdAtomic: 3}
	ok(t, qp.Connect(remote, &ConnectOptions{RetryCnt: 2, MinRNRTimer: 5, TrafficClass: 9, Access: AccessRemoteWrite}))
	rtr, rts := steps[1], steps[2]
	if steps[0].QPAccessFlags != AccessRemoteWrite || rtr.DestQPNum != 0x99 || rtr.RQPSN != 0x777 ||
		rtr.PathMTU != MTU512 || rtr.MinRNRTimer != 5 ||
		rtr.MaxDestRdAtomic != 16 || !rtr.AHAttr.IsGlobal || rtr.AHAttr.GRH.DGID != remote.GID ||
		rtr.AHAttr.GRH.SGIDIndex != 1 ||
		rtr.AHAttr.GRH.HopLimit != 64 || rtr.AHAttr.GRH.TrafficClass != 9 {
		t.Errorf("INIT %+v\nRTR %+v", steps[0], rtr)
	}
	if rts.SQPSN != local.PSN || rts.Timeout != 14 || rts.RetryCnt != 2 || rts.RNRRetry != 7 || rts.MaxRdAtomic != 3 {
		t.Errorf("RTS %+v", rts)
	}
}

func TestConnectZero(t *testing.T) {
	vctx, _ := openFake(t)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	var steps []QPAttr
	drv.onModify = func(a *QPAttr, _ QPAttrMask) error { steps = append(steps, *a); return nil }
	opts := ConnectOptions{Timeout: Zero, RetryCnt: Zero, RNRRetry: Zero, MinRNRTimer: Zero, Access: AccessLocalWrite}
	ok(t, qp.Connect(QPInfo{Type: QPTypeRC, QPN: 0x99, GID: mustGID("::ffff:192.0.2.9"), MTU: MTU512}, &opts))
	rtr, rts := steps[1], steps[2]
	if rtr.MinRNRTimer != 0 || rts.Timeout != 0 || rts.RetryCnt != 0 || rts.RNRRetry != 0 ||
		steps[0].QPAccessFlags != AccessLocalWrite {
		t.Errorf("INIT %+v\nRTR %+v\nRTS %+v", steps[0], rtr, rts)
	}
}

// Connect without LocalInfo fails as it does if no GID reaches the peer, and the QP stays in RESET.
func TestConnectWithoutAGID(t *testing.T) {
	dev := newFakeDevice()
	dev.gids = dev.gids[:2] // IPv4 and link-local
	dev.gids[0] = GIDEntry{}
	vctx, _ := openDevice(t, dev)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	err := qp.Connect(QPInfo{Type: QPTypeRC, QPN: 5, GID: mustGID("2001:db8::9"), MTU: MTU512}, nil)
	refused(t, err, syscall.ENETUNREACH)
	if qp.State() != QPSReset || drv.modifies != 0 {
		t.Errorf("state %v, %d modifies", qp.State(), drv.modifies)
	}
}

func TestConnectDefaults(t *testing.T) {
	defaults := ConnectOptions{Access: AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic, Timeout: 14, RetryCnt: 7,
		RNRRetry: 7, MinRNRTimer: 12, HopLimit: 64, QKey: 0x11111111}
	given := ConnectOptions{Access: AccessLocalWrite, MTU: MTU256, Timeout: 1, RetryCnt: 2, RNRRetry: 3, MinRNRTimer: 4,
		HopLimit: 5, TrafficClass: 6, QKey: 7}
	for _, c := range []struct {
		opts *ConnectOptions
		want ConnectOptions
	}{{nil, defaults}, {&ConnectOptions{}, defaults}, {&given, given}} {
		if got := c.opts.withDefaults(); got != c.want {
			t.Errorf("%+v\nwant %+v", got, c.want)
		}
	}
}

func TestConnectUD(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	qp, drv := newQP(t, pd, QPTypeUD)
	ok(t, qp.Connect(QPInfo{}, &ConnectOptions{QKey: 5}))
	if qp.State() != QPSRTS || drv.modifies != 3 {
		t.Errorf("state %v", qp.State())
	}
	attr := must(qp.AHAttrTo(QPInfo{Type: QPTypeUD, GID: mustGID("::ffff:192.0.2.7")}, nil))(t)
	ah := must(pd.CreateAH(&attr))(t)
	ok(t, ah.Close())
}

// TestV_QPS_20_ReuseThroughReset: LocalInfo has another PSN only if the QP was connected before.
func TestV_QPS_20_ReuseThroughReset(t *testing.T) {
	vctx, _ := openFake(t)
	qp, _ := newQP(t, newPD(t, vctx), QPTypeUC)
	remote := QPInfo{Type: QPTypeUC, GID: mustGID("::ffff:192.0.2.2"), MTU: MTU1024}
	seen := map[uint32]bool{}
	for range 10 {
		told := must(qp.LocalInfo())(t)
		ok(t, qp.Modify(&QPAttr{QPState: QPSReset}, QPAttrState)) // from RESET to RESET keeps the PSN
		if again := must(qp.LocalInfo())(t); again != told {
			t.Errorf("LocalInfo returned %v, then %v", told, again)
		}
		ok(t, qp.Connect(remote, nil))
		ok(t, qp.Modify(&QPAttr{QPState: QPSReset}, QPAttrState))
		seen[told.PSN] = true
	}
	if len(seen) < 2 {
		t.Errorf("the same PSN each time: %v", seen)
	}
}

func TestConnectRefusals(t *testing.T) {
	vctx, _ := openFake(t)
	qp, drv := newQP(t, newPD(t, vctx), QPTypeRC)
	must(qp.LocalInfo())(t)
	refused(t, qp.Connect(QPInfo{Type: QPTypeUC}, nil), EINVAL, "the peer's QP type is UC")
	v6 := QPInfo{Type: QPTypeRC, GID: mustGID("2001:db8::2"), MTU: MTU1024}
	refused(t, qp.Connect(v6, nil), EINVAL, "use LocalInfoFor")
	if drv.modifies != 0 || qp.State() != QPSReset {
		t.Errorf("state %v", qp.State())
	}
	if info := must(qp.LocalInfoFor(v6.GID.Addr()))(t); info.GID.Addr().Is4() {
		t.Errorf("GID %v for %v", info.GID, v6.GID)
	}
	ok(t, qp.Connect(v6, nil))
	ok(t, qp.Close())
	refused(t, qp.Connect(v6, nil), EINVAL, "closed")
	_, err := qp.LocalInfo()
	refused(t, err, EINVAL, "closed")
	_, err = qp.AHAttrTo(v6, nil)
	refused(t, err, EINVAL, "closed")
}

func TestQPInfoText(t *testing.T) {
	info := QPInfo{Type: QPTypeUD, QPN: 0x11, PSN: 0xabcdef, GID: mustGID("::ffff:192.0.2.1"), LID: 7, MTU: MTU4096,
		RdAtomic: 16, QKey: 0x11111111}
	text := "UD qpn=0x000011 psn=0xabcdef gid=::ffff:192.0.2.1 lid=7 mtu=4096 rd_atomic=16 qkey=0x11111111"
	if info.String() != text {
		t.Errorf("%q", info)
	}
	if back := must(ParseQPInfo(text + " later=x"))(t); back != info {
		t.Errorf("%+v", back)
	}
	for _, bad := range []string{
		"", "XX", "RC", "RC qpn=1 psn=2 gid=::1", "RC qpn=0x1000000 psn=2 gid=::1 mtu=1024",
		"RC qpn=1 psn=-2 gid=::1 mtu=1024",
		"RC qpn=1 psn=2 gid=x mtu=1024", "RC qpn=1 psn=2 gid=::1 mtu=1000", "RC qpn=1 psn=2 gid=::1 mtu=1024 lid=65536",
		"RC qpn= psn=2 gid=::1 mtu=1024", "RC qpn=1 psn=2 gid=::1 mtu=18446744073709551615",
		"RC qpn=1 psn=2 gid=::1 mtu=1024 rd_atomic=256",
	} {
		_, err := ParseQPInfo(bad)
		refused(t, err, EINVAL)
	}
}

func FuzzParseQPInfo(f *testing.F) {
	f.Add("RC qpn=0x000011 psn=0xabcdef gid=::ffff:192.0.2.1 lid=7 mtu=4096 rd_atomic=16 qkey=0x1")
	f.Fuzz(func(t *testing.T, text string) {
		info, err := ParseQPInfo(text)
		if err != nil {
			return
		}
		if back, err := ParseQPInfo(info.String()); err != nil || back != info {
			t.Errorf("%q parsed as %+v, again as %+v, %v", text, info, back, err)
		}
	})
}
