package verbs

import (
	"fmt"
	"strings"
	"sync"
)

// Modify changes the attributes that mask names, and with QPAttrState the state (ibv_modify_qp). Each transition
// requires some attributes and permits others (docs/conformance/verbs-35.md); the error names the missing and the
// superfluous ones. On success attr holds actual values. A failure, EINVAL mostly, changes nothing.
//
// A path is of the port of the QP, and an alternate path of AltPortNum. A path alone in SQD changes the port too.
//
// QPAttrCap resizes the queues: Cap.MaxSendWR and Cap.MaxRecvWR, 0 for no change. It goes with every transition but
// those to RESET and ERR, not for RAW_PACKET and XRC_RECV, and needs a device with DeviceResizeMaxWR. Posted requests
// stay; EINVAL if more are outstanding. SGEs and inline data keep their sizes.
//
// Every state may go to RESET, which drops all requests and may drop completions that were not polled, and to ERR,
// which flushes the requests. SQD goes to RTS, and its attributes change, only when the send queue is drained, else
// EINVAL; EventSQDrained reports that if EnSQDAsyncNotify was set.
func (qp *QP) Modify(attr *QPAttr, mask QPAttrMask) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.modify(attr, mask)
}

// modify is Modify without locking.
//
// +checklocks:qp.mu
func (qp *QP) modify(attr *QPAttr, mask QPAttrMask) error {
	const op = "modify_qp"
	if qp.lifetime.closed.Load() {
		return errClosed(op, qp.obj())
	}
	if err := qp.ctx.checkRemoved(op, qp); err != nil {
		return err
	}
	if attr == nil {
		return newError(op, qp.obj(), EINVAL, "the attributes are nil")
	}
	next := attrs.Get().(*QPAttr)
	defer attrs.Put(next)
	*next = *attr
	before := qp.word.Load()
	m, err := qp.checkMove(op, QPState(before&stateMask), next, mask)
	if err != nil {
		return err
	}
	if err := qp.drv.Modify(next, mask); err != nil {
		return driverError(op, qp.obj(), fmt.Errorf("%v->%v: %w", m.from, m.to, err))
	}
	if m.to != m.from {
		qp.setState(before, m.to)
	}
	switch {
	case m.to == QPSReset:
		qp.port = 0
		if m.from != QPSReset {
			qp.local = nil // the next connection begins with another PSN, so that stray packets of this one do not fit
		}
	case mask&QPAttrPort != 0:
		qp.port = next.PortNum
	case mask&QPAttrAV != 0:
		qp.port = next.AHAttr.PortNum
	}
	if mask&QPAttrQKey != 0 {
		qp.setQKey(next.QKey)
	}
	if mask&QPAttrCap != 0 {
		qp.init.Cap.MaxSendWR, qp.init.Cap.MaxRecvWR = next.Cap.MaxSendWR, next.Cap.MaxRecvWR
		qp.sendRoom.Store(next.Cap.MaxSendWR)
	}
	*attr = *next
	return nil
}

// attrs are attributes that no modify uses now. No driver keeps a pointer to those it gets.
var attrs = sync.Pool{New: func() any { return new(QPAttr) }}

// checkMove checks the attributes for a QP that is in a state, and returns the move. It sets attr.QPState if mask does
// not have it.
//
// +checklocks:qp.mu
func (qp *QP) checkMove(op string, from QPState, attr *QPAttr, mask QPAttrMask) (move, error) {
	m := move{from, from}
	if mask&QPAttrState != 0 {
		m.to = attr.QPState
	}
	attr.QPState = m.to
	if problem, hint := qp.checkMask(m, mask); problem != "" {
		return m, &Error{Op: op, Obj: qp.obj(), Errno: EINVAL, Detail: problem, Hint: hint}
	}
	if err := qp.checkModify(m, attr, mask); err != nil {
		return m, badInput(op, qp.obj(), err)
	}
	return m, nil
}

// checkDriverModify checks a call of DriverQP.Modify that another process asks for, as Modify checks its own. It sets
// attr.QPState if mask does not have it. The caller sees to it that the QP does not change meanwhile.
func checkDriverModify(vctx DriverContext, drv DriverQP, t QPType, attr *QPAttr, mask QPAttrMask) error {
	const op = "modify_qp"
	now, err := drv.Query()
	if err != nil {
		return err
	}
	dev, err := vctx.QueryDevice()
	if err != nil {
		return err
	}
	qp := &QP{ctx: &Context{drv: vctx, attr: dev}, drv: drv, qpn: drv.QPN(), init: QPInitAttr{Type: t}}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.port = now.PortNum
	_, err = qp.checkMove(op, now.QPState, attr, mask)
	return err
}

// checkModify checks the values of the attributes.
func (qp *QP) checkModify(m move, attr *QPAttr, mask QPAttrMask) error {
	if mask&QPAttrCurState != 0 && attr.CurQPState != m.from {
		return fmt.Errorf("QP_CUR_STATE %v: the QP is in %v", attr.CurQPState, m.from)
	}
	if m.from == QPSSQD && (m.to == QPSSQD || m.to == QPSRTS) {
		if err := qp.checkDrained(m); err != nil {
			return err
		}
	}
	for _, check := range [...]func(*QP, move, *QPAttr, QPAttrMask) error{
		(*QP).checkFeatures, (*QP).checkNumbers, (*QP).checkSizes, (*QP).checkPort, (*QP).checkPaths,
	} {
		if err := check(qp, m, attr, mask); err != nil {
			return fmt.Errorf("%v->%v: %w", m.from, m.to, err)
		}
	}
	return nil
}

// checkDrained checks that nothing is left to send in SQD. It is not inlined: the attributes would take stack of every
// Modify.
//
//go:noinline
func (qp *QP) checkDrained(m move) error {
	now, err := qp.drv.Query()
	if err == nil && now.SQDraining {
		err = fmt.Errorf("%v->%v: the send queue is still draining; wait for the event SQ_DRAINED", m.from, m.to)
	}
	return err
}

// checkMask compares the attributes with the row of the table. hint is the allowed attributes.
func (qp *QP) checkMask(m move, mask QPAttrMask) (problem, hint string) {
	table := transitionsOf[qp.init.Type]
	row, ok := table[m]
	fixed := qp.init.Type == QPTypeRawPacket || qp.init.Type == QPTypeXRCRecv
	if !fixed && m.to != QPSReset && m.to != QPSErr && qp.ctx.attr.DeviceCapFlags&DeviceResizeMaxWR != 0 {
		row.optional |= QPAttrCap // in no row of the tables: a matter of the device (V-QPM-05)
	}
	if !ok {
		return fmt.Sprintf("%v->%v is not possible", m.from, m.to),
			fmt.Sprintf("from %v a QP of type %v goes to %s", m.from, qp.init.Type, table.from(m.from))
	}
	missing, extra := row.required&^mask, mask&^(row.required|row.optional)
	var parts []string
	if missing != 0 {
		parts = append(parts, "missing "+missing.String())
	}
	if extra != 0 {
		parts = append(parts, "not allowed here: "+extra.String())
		hint = fmt.Sprintf("required: %v; optional: %v", orNone(row.required), orNone(row.optional))
	}
	if parts == nil {
		return "", ""
	}
	return fmt.Sprintf("%v->%v: %s", m.from, m.to, strings.Join(parts, "; ")), hint
}

func orNone(m QPAttrMask) string {
	if m == 0 {
		return "none"
	}
	return m.String()
}

// from lists the states that can be reached from s.
func (t transitions) from(s QPState) string {
	var to []string
	for next := QPSReset; next <= QPSErr; next++ {
		if _, ok := t[move{s, next}]; ok {
			to = append(to, next.String())
		}
	}
	return strings.Join(to, ", ")
}

// checkFeatures checks that the device has the capabilities that the attributes need.
func (qp *QP) checkFeatures(m move, attr *QPAttr, mask QPAttrMask) error {
	needs := []struct {
		attrs QPAttrMask
		from  QPState
		cap   DeviceCapFlags
	}{
		{QPAttrAltPath | QPAttrPathMigState, m.from, DeviceAutoPathMig},
		{QPAttrPort, QPSSQD, DeviceChangePhyPort},
	}
	for _, n := range needs {
		if mask&n.attrs != 0 && m.from == n.from && qp.ctx.attr.DeviceCapFlags&n.cap == 0 {
			return fmt.Errorf("%v needs a device with %v", mask&n.attrs, n.cap)
		}
	}
	if unknown := attr.QPAccessFlags &^ (accessKnown | accessOptional); mask&QPAttrAccessFlags != 0 && unknown != 0 {
		return fmt.Errorf("unknown access flags %v", unknown)
	}
	if mask&QPAttrPathMigState != 0 && attr.PathMigState > MigArmed {
		return fmt.Errorf("unknown path migration state %v; must be MIGRATED, REARM or ARMED", attr.PathMigState)
	}
	return nil
}

// checkNumbers checks the attributes with a range of their own.
func (qp *QP) checkNumbers(_ move, attr *QPAttr, mask QPAttrMask) error {
	if mask&QPAttrRateLimit != 0 {
		if err := qp.checkRate(attr.RateLimit); err != nil {
			return err
		}
	}
	d := &qp.ctx.attr
	ranges := []struct {
		attr  QPAttrMask
		value uint32
		max   int
	}{
		{QPAttrDestQPN, attr.DestQPNum, 0xffffff},
		{QPAttrRQPSN, attr.RQPSN, 0xffffff},
		{QPAttrSQPSN, attr.SQPSN, 0xffffff},
		{QPAttrMinRNRTimer, uint32(attr.MinRNRTimer), 31},
		{QPAttrTimeout, uint32(attr.Timeout), 31},
		{QPAttrRetryCnt, uint32(attr.RetryCnt), 7},
		{QPAttrRNRRetry, uint32(attr.RNRRetry), 7},
		{QPAttrMaxQPRdAtomic, uint32(attr.MaxRdAtomic), d.MaxQPInitRdAtom},
		{QPAttrMaxDestRdAtomic, uint32(attr.MaxDestRdAtomic), d.MaxQPRdAtom},
		{QPAttrAltPath, uint32(attr.AltTimeout), 31},
	}
	for _, r := range ranges {
		if mask&r.attr != 0 && int64(r.value) > int64(r.max) {
			return fmt.Errorf("%v %d: must be 0 to %d", r.attr, r.value, r.max)
		}
	}
	return nil
}

// checkSizes checks the sizes of a QP that is resized. The number of SGEs and of inline bytes is fixed.
//
// +checklocks:qp.mu
func (qp *QP) checkSizes(_ move, attr *QPAttr, mask QPAttrMask) error {
	if mask&QPAttrCap == 0 {
		return nil
	}
	now, d := &qp.init.Cap, &qp.ctx.attr
	for _, s := range []struct {
		name  string
		value uint32
		max   int64
	}{
		{"MaxSendWR", attr.Cap.MaxSendWR, int64(d.MaxQPWR)}, {"MaxRecvWR", attr.Cap.MaxRecvWR, int64(d.MaxQPWR)},
		{"MaxSendSGE", attr.Cap.MaxSendSGE, int64(now.MaxSendSGE)},
		{"MaxRecvSGE", attr.Cap.MaxRecvSGE, int64(now.MaxRecvSGE)},
		{"MaxInlineData", attr.Cap.MaxInlineData, int64(now.MaxInlineData)},
	} {
		if int64(s.value) > s.max {
			return fmt.Errorf("QP_CAP: %s %d: must be 0 to %d", s.name, s.value, s.max)
		}
	}
	return nil
}

// checkPort checks the attributes that depend on the port: its number, those of the paths, P_Key indices and the path
// MTU. In SQD a path alone changes the port too, as in Linux.
//
// +checklocks:qp.mu
func (qp *QP) checkPort(m move, attr *QPAttr, mask QPAttrMask) error {
	const dependent = QPAttrPort | QPAttrAV | QPAttrPKeyIndex | QPAttrPathMTU | QPAttrAltPath
	if mask&dependent == 0 {
		return nil
	}
	num, err := qp.currentPort()
	if err != nil {
		return err
	}
	if mask&QPAttrPort != 0 {
		num = attr.PortNum
	}
	port, err := qp.portOf(num)
	if err != nil {
		return err
	}
	switch {
	case mask&QPAttrAV != 0 && (m.to == QPSRTR || mask&QPAttrPort != 0) && attr.AHAttr.PortNum != num:
		return fmt.Errorf("QP_AV: port %d of the address: must be %d, that of the QP", attr.AHAttr.PortNum, num)
	case mask&QPAttrPKeyIndex != 0 && attr.PKeyIndex >= max(port.PKeyTblLen, 1): // iWARP adapters have no table
		return fmt.Errorf("P_Key index %d: must be 0 to %d", attr.PKeyIndex, max(int(port.PKeyTblLen), 1)-1)
	case mask&QPAttrPathMTU != 0 && attr.PathMTU.Bytes() == 0:
		return fmt.Errorf("path MTU %v: must be MTU256 to MTU4096", attr.PathMTU)
	case mask&QPAttrPathMTU != 0 && attr.PathMTU > port.ActiveMTU:
		return fmt.Errorf("path MTU %v: must be at most the port's active MTU %v", attr.PathMTU, port.ActiveMTU)
	case mask&QPAttrAltPath == 0:
		return nil
	}
	if port, err = qp.portOf(attr.AltPortNum); err != nil {
		return fmt.Errorf("alternate path: %w", err)
	}
	if attr.AltAHAttr.PortNum != attr.AltPortNum {
		return fmt.Errorf("QP_ALT_PATH: port %d of the address: must be AltPortNum, %d", attr.AltAHAttr.PortNum,
			attr.AltPortNum)
	}
	if attr.AltPKeyIndex >= port.PKeyTblLen {
		return fmt.Errorf("alternate P_Key index %d: must be 0 to %d", attr.AltPKeyIndex, int(port.PKeyTblLen)-1)
	}
	return nil
}

func (qp *QP) portOf(num uint8) (PortAttr, error) {
	if num < 1 || num > qp.ctx.attr.PhysPortCnt {
		return PortAttr{}, fmt.Errorf("port %d: must be 1 to %d", num, qp.ctx.attr.PhysPortCnt)
	}
	port, err := qp.ctx.drv.QueryPort(num)
	if err != nil {
		return PortAttr{}, err
	}
	return port, nil
}

// checkPaths checks the paths to the peer. A connected QP has one peer, so that a multicast group is refused.
func (qp *QP) checkPaths(_ move, attr *QPAttr, mask QPAttrMask) error {
	paths := []struct {
		attr QPAttrMask
		way  *AHAttr
	}{{QPAttrAV, &attr.AHAttr}, {QPAttrAltPath, &attr.AltAHAttr}}
	for _, p := range paths {
		if mask&p.attr == 0 {
			continue
		}
		err := qp.ctx.checkAH(p.way)
		if err == nil && p.way.IsGlobal && p.way.GRH.DGID.IsMulticast() {
			err = fmt.Errorf("the destination %v is a multicast group", p.way.GRH.DGID)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", p.attr, err)
		}
	}
	return nil
}
