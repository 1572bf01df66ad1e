package verbs

import (
	"errors"
	"math/rand/v2"
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
	sqd, sqdPort := step{QPSSQD, QPSSQD, QPAttrAV}, step{QPSSQD, QPSSQD, QPAttrAV | QPAttrPort}
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
		{"av port", rtr, func(*QPAttr) {}, func(a *QPAttr) { a.AHAttr.PortNum = 0 }, "port 0 of the address"},
		{"av of another port", rtr, func(*QPAttr) {}, func(a *QPAttr) { a.AHAttr.PortNum = 2 },
			"port 2 of the address: must be 1, that of the QP"},
		{"av in sqd", sqd, func(a *QPAttr) { a.AHAttr.PortNum = 2 }, func(a *QPAttr) { a.AHAttr.PortNum = 0 },
			"port 0 of the address"},
		{"av and port in sqd", sqdPort, func(a *QPAttr) { a.PortNum, a.AHAttr.PortNum = 2, 2 },
			func(a *QPAttr) { a.PortNum, a.AHAttr.PortNum = 2, 1 }, "port 1 of the address: must be 2"},
		{"flow label", rtr, func(a *QPAttr) { a.AHAttr.GRH.FlowLabel = 0xfffff },
			func(a *QPAttr) { a.AHAttr.GRH.FlowLabel = 1 << 20 }, "flow label"},
		{"sl", rtr, func(a *QPAttr) { a.AHAttr.SL = 15 }, func(a *QPAttr) { a.AHAttr.SL = 16 }, "SL 16"},
		{"alt port", rtrAlt, func(a *QPAttr) { a.AltPortNum, a.AltAHAttr.PortNum = 2, 2 },
			func(a *QPAttr) { a.AltPortNum, a.AltAHAttr.PortNum = 3, 3 }, "alternate path: port 3"},
		{"alt av of another port", rtrAlt, func(*QPAttr) {}, func(a *QPAttr) { a.AltPortNum = 2 },
			"port 1 of the address: must be AltPortNum, 2"},
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
