package conformance

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// transitionCases returns cases for each QP type: the transitions with their attributes, and the valid
// attributes in each state.
func transitionCases() (cases []testCase) {
	for _, typ := range []verbs.QPType{rc, uc, ud, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv} {
		cases = append(cases, testCase{fmt.Sprintf("V_QPM_11_V_QPM_02_V_QPM_03_V_QPS_02_%v_EveryTransition", typ),
			func(t *T) { everyTransition(t, typ) }})
	}
	for _, typ := range []verbs.QPType{rc, uc, ud} {
		cases = append(cases, testCase{fmt.Sprintf("V_QPQ_11_V_QPQ_02_%v_WhatIsValidInEachState", typ),
			func(t *T) { validInStates(t, typ) }})
	}
	return cases
}

// row is a row of the manual's tables. STATE is required for every change of state, and optional for a row
// that keeps it.
type row struct {
	from, to           verbs.QPState
	required, optional verbs.QPAttrMask
}

// Short names for the tables.
const (
	sRESET, sINIT, sRTR, sRTS = verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS
	sSQD, sSQE, sERR          = verbs.QPSSQD, verbs.QPSSQE, verbs.QPSErr
	mCUR, mNOTIFY             = verbs.QPAttrCurState, verbs.QPAttrEnSQDAsyncNotify
	mACC, mPKEY               = verbs.QPAttrAccessFlags, verbs.QPAttrPKeyIndex
	mPORT, mQKEY              = verbs.QPAttrPort, verbs.QPAttrQKey
	mAV, mMTU                 = verbs.QPAttrAV, verbs.QPAttrPathMTU
	mTIME, mRETRY             = verbs.QPAttrTimeout, verbs.QPAttrRetryCnt
	mRNR, mRQPSN              = verbs.QPAttrRNRRetry, verbs.QPAttrRQPSN
	mRD, mALT                 = verbs.QPAttrMaxQPRdAtomic, verbs.QPAttrAltPath
	mMINRNR, mSQPSN           = verbs.QPAttrMinRNRTimer, verbs.QPAttrSQPSN
	mDESTRD, mMIG             = verbs.QPAttrMaxDestRdAtomic, verbs.QPAttrPathMigState
	mDEST, mSTATE             = verbs.QPAttrDestQPN, verbs.QPAttrState
	mInRTS                    = mCUR | mACC | mMINRNR | mALT | mMIG
	mOfSQD                    = mPKEY | mPORT | mACC | mAV | mRD | mMINRNR | mALT | mTIME | mRETRY | mRNR | mDESTRD | mMIG
)

// rowsOf returns the manual's table for a type, without the transitions to RESET and ERR, which are
// possible from every state.
func rowsOf(typ verbs.QPType) []row {
	switch typ {
	case ud:
		return []row{
			{sRESET, sINIT, mPKEY | mPORT | mQKEY, 0}, {sINIT, sINIT, 0, mPKEY | mPORT | mQKEY}, {sINIT, sRTR, 0, mPKEY | mQKEY},
			{sRTR, sRTS, mSQPSN, mCUR | mQKEY}, {sRTS, sRTS, 0, mCUR | mQKEY}, {sRTS, sSQD, 0, mNOTIFY},
			{sSQD, sRTS, 0, mCUR | mQKEY}, {sSQD, sSQD, 0, mPKEY | mQKEY}, {sSQE, sRTS, 0, mCUR | mQKEY},
		}
	case uc:
		return []row{
			{sRESET, sINIT, mPKEY | mPORT | mACC, 0}, {sINIT, sINIT, 0, mPKEY | mPORT | mACC},
			{sINIT, sRTR, mMTU | mAV | mDEST | mRQPSN, mPKEY | mALT | mACC}, {sRTR, sRTS, mSQPSN, mCUR | mACC | mALT | mMIG},
			{sRTS, sRTS, 0, mCUR | mACC | mALT | mMIG}, {sRTS, sSQD, 0, mNOTIFY}, {sSQD, sRTS, 0, mCUR | mACC | mALT | mMIG},
			{sSQD, sSQD, 0, mPKEY | mACC | mAV | mALT | mMIG}, {sSQE, sRTS, 0, mCUR | mACC},
		}
	}
	toRTR, toRTS := mAV|mMTU|mDEST|mRQPSN|mDESTRD|mMINRNR, mSQPSN|mTIME|mRETRY|mRNR|mRD
	if typ == verbs.QPTypeXRCSend {
		toRTR &^= mDESTRD | mMINRNR
	}
	if typ == verbs.QPTypeXRCRecv {
		toRTS = mSQPSN | mTIME
	}
	return []row{
		{sRESET, sINIT, mPKEY | mPORT | mACC, 0}, {sINIT, sINIT, 0, mPKEY | mPORT | mACC},
		{sINIT, sRTR, toRTR, mPKEY | mACC | mALT},
		{sRTR, sRTS, toRTS, mInRTS}, {sRTS, sRTS, 0, mInRTS}, {sRTS, sSQD, 0, mNOTIFY}, {sSQD, sRTS, 0, mInRTS},
		{sSQD, sSQD, 0, mOfSQD},
	}
}

// prober brings QPs of a type to any state and tries transitions from there.
type prober struct {
	*T
	e     *end
	typ   verbs.QPType
	fresh func() *verbs.QP
	rows  []row
	good  verbs.QPAttr
	able  verbs.QPAttrMask // without the attributes that need a missing capability of the device
}

func newProber(t *T, typ verbs.QPType) *prober {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	if (typ == verbs.QPTypeXRCSend || typ == verbs.QPTypeXRCRecv) && d.DeviceCapFlags&verbs.DeviceXRC == 0 {
		t.Skip("the device has no XRC")
	}
	way := pathTo(e.qp(ud, nil), verbs.GIDFromAddr(t.Addr(e.ctx)))
	p := &prober{T: t, e: e, typ: typ, fresh: e.maker(typ), rows: rowsOf(typ), able: ^verbs.QPAttrMask(0)}
	p.good = verbs.QPAttr{
		PortNum: 1, PathMTU: verbs.MTU512, DestQPNum: 0x345, AHAttr: way, AltAHAttr: way, AltPortNum: 1, AltTimeout: 11,
		QKey:    0x11223344,
		Timeout: 14, RetryCnt: 3, RNRRetry: 2, MaxRdAtomic: 2, MaxDestRdAtomic: 3, MinRNRTimer: 17, RQPSN: 0xabcdef,
		SQPSN:         0x123456,
		QPAccessFlags: verbs.AccessRemoteRead, EnSQDAsyncNotify: true,
	}
	if d.DeviceCapFlags&verbs.DeviceAutoPathMig == 0 {
		p.able &^= mALT | mMIG
	}
	if d.DeviceCapFlags&verbs.DeviceChangePhyPort == 0 {
		p.able &^= mPORT // for QPs whose port is fixed
	}
	return p
}

// in returns a QP in a state, reached by the shortest path.
func (p *prober) in(state verbs.QPState) *verbs.QP {
	p.Helper()
	qp := p.fresh()
	if state == sERR {
		p.to(qp, sERR)
		return qp
	}
	if state == sSQE {
		qp = p.inSQE(qp)
		return qp
	}
	for _, r := range p.rows {
		if qp.State() == state {
			break
		}
		if r.from == qp.State() && r.to != r.from {
			attr := p.good
			attr.QPState = r.to
			p.must(qp.Modify(&attr, mSTATE|r.required))
		}
	}
	p.is(qp, state)
	return qp
}

// inSQE sends from unregistered memory.
func (p *prober) inSQE(qp *verbs.QP) *verbs.QP {
	p.Helper()
	p.must(qp.Close())
	qp = p.in(sRTS)
	wr := p.e.send(1, 0, 1)
	wr.SGList[0].LKey ^= 0x55
	if p.typ == ud {
		wr = p.e.datagram(qp, qp, wr)
	}
	p.must(qp.PostSend(wr))
	same(p.T, "the failing send", p.poll(p.e.sendCQ, 1)[0].Status, verbs.WCLocProtErr)
	p.is(qp, sSQE)
	return qp
}

// states returns the states that QPs of the type can have.
func (p *prober) states() []verbs.QPState {
	list := []verbs.QPState{sRESET, sINIT, sRTR, sRTS, sSQD, sERR}
	if p.typ == uc || p.typ == ud {
		list = append(list, sSQE)
	}
	return list
}

// try makes one transition with a new QP, which must then be in its new state, or unchanged.
func (p *prober) try(from, to verbs.QPState, mask verbs.QPAttrMask, fits bool) {
	p.Helper()
	qp := p.in(from)
	defer func() { p.must(qp.Close()) }()
	before, _, err := qp.Query(0)
	p.must(err)
	attr := p.good
	attr.QPState, attr.CurQPState = to, from
	if attr.PathMigState = verbs.MigMigrated; mask&mALT != 0 {
		attr.PathMigState = verbs.MigRearm
	}
	at := fmt.Sprintf("%v->%v with %v", from, to, mask)
	err = qp.Modify(&attr, mask)
	if fits {
		if err != nil {
			p.Errorf("%s: %v", at, err)
			return
		}
		p.is(qp, to)
		return
	}
	p.refused(at, err, verbs.EINVAL)
	after, _, err := qp.Query(0)
	p.must(err)
	same(p.T, "the attributes after "+at, after, before)
	p.is(qp, from)
}

// everyTransition tries each pair of states with the required attributes of its row alone, with each
// optional one and with all of them, without each required one, and with each attribute that the row does
// not list. Pairs without a row must fail.
func everyTransition(t *T, typ verbs.QPType) {
	p := newProber(t, typ)
	for _, from := range p.states() {
		for to := sRESET; to <= sERR; to++ {
			i := slices.IndexFunc(p.rows, func(r row) bool { return r.from == from && r.to == to })
			switch {
			case to == sRESET || to == sERR:
				p.tryRow(row{from: from, to: to})
			case i >= 0:
				p.tryRow(p.rows[i])
			default:
				p.try(from, to, mSTATE, false)
				for _, r := range p.rows { // the required attributes of other rows
					if r.to == to {
						p.try(from, to, mSTATE|r.required, false)
					}
				}
			}
		}
	}
}

func (p *prober) tryRow(r row) {
	p.Helper()
	optional := r.optional & p.able
	if r.to == sINIT {
		optional = r.optional
	}
	p.try(r.from, r.to, mSTATE|r.required, true)
	p.try(r.from, r.to, mSTATE|r.required|optional, true)
	for bit := verbs.QPAttrMask(1); bit <= verbs.QPAttrDestQPN; bit <<= 1 {
		switch {
		case bit == mSTATE || bit == verbs.QPAttrCap: // CAP needs a capability of its own
		case r.required&bit != 0:
			p.try(r.from, r.to, mSTATE|r.required&^bit, false)
		case optional&bit != 0:
			p.try(r.from, r.to, mSTATE|r.required|bit, true)
		default:
			p.try(r.from, r.to, mSTATE|r.required|bit, false)
		}
	}
}

// validInStates sets the attributes of each transition to distinct values, and reads all attributes that
// are valid in each state.
func validInStates(t *T, typ verbs.QPType) {
	p := newProber(t, typ)
	none := verbs.QPAttr{}
	type field struct {
		bit verbs.QPAttrMask
		get func(a *verbs.QPAttr) any
	}
	fields := []field{
		{mPORT, func(a *verbs.QPAttr) any { return a.PortNum }}, {mQKEY, func(a *verbs.QPAttr) any { return a.QKey }},
		{mACC, func(a *verbs.QPAttr) any { return a.QPAccessFlags }},
		{mPKEY, func(a *verbs.QPAttr) any { return a.PKeyIndex }},
		{mAV, func(a *verbs.QPAttr) any { return a.AHAttr }}, {mMTU, func(a *verbs.QPAttr) any { return a.PathMTU }},
		{mDEST, func(a *verbs.QPAttr) any { return a.DestQPNum }}, {mRQPSN, func(a *verbs.QPAttr) any { return a.RQPSN }},
		{mDESTRD, func(a *verbs.QPAttr) any { return a.MaxDestRdAtomic }},
		{mMINRNR, func(a *verbs.QPAttr) any { return a.MinRNRTimer }},
		{mALT, func(a *verbs.QPAttr) any { return [...]any{a.AltAHAttr, a.AltPortNum, a.AltPKeyIndex, a.AltTimeout} }},
		{mSQPSN, func(a *verbs.QPAttr) any { return a.SQPSN }}, {mTIME, func(a *verbs.QPAttr) any { return a.Timeout }},
		{mRETRY, func(a *verbs.QPAttr) any { return a.RetryCnt }}, {mRNR, func(a *verbs.QPAttr) any { return a.RNRRetry }},
		{mRD, func(a *verbs.QPAttr) any { return a.MaxRdAtomic }},
		{mMIG, func(a *verbs.QPAttr) any { return a.PathMigState }},
	}
	init := mPKEY | mPORT | mACC
	rtr, rts := init|mAV|mMTU|mDEST|mRQPSN|mALT, mSQPSN|mMIG
	switch typ {
	case rc:
		rtr |= mDESTRD | mMINRNR
		rts |= mTIME | mRETRY | mRNR | mRD
	case ud:
		init = mPKEY | mPORT | mQKEY
		rtr, rts = init, mSQPSN
	}
	rts |= rtr
	good := p.good
	good.PathMigState = verbs.MigRearm
	valid := func(qp *verbs.QP, state verbs.QPState, mask verbs.QPAttrMask) {
		t.Helper()
		now, _, err := qp.Query(verbs.QPAttrState)
		t.must(err)
		same(t, "the state", now.QPState, state)
		for _, f := range fields {
			want := f.get(&none)
			if mask&f.bit&p.able != 0 || mask&f.bit == mPORT {
				want = f.get(&good)
			}
			if got := f.get(&now); got != want && mask&f.bit != 0 {
				t.Errorf("%v in %v: %+v, want %+v", f.bit, state, got, want)
			}
		}
	}
	qp := p.fresh()
	valid(qp, sRESET, 0)
	for _, s := range []struct {
		to   verbs.QPState
		set  verbs.QPAttrMask
		mask verbs.QPAttrMask
	}{{sINIT, init, init}, {sRTR, rtr &^ init, rtr}, {sRTS, rts &^ rtr, rts}, {sSQD, 0, rts}, {sRTS, 0, rts}} {
		attr := good
		attr.QPState = s.to
		t.must(qp.Modify(&attr, mSTATE|s.set&(p.able|mPORT)))
		valid(qp, s.to, s.mask)
	}
	if typ != rc {
		wr := p.e.send(1, 0, 1)
		wr.SGList[0].LKey ^= 0x55
		if typ == ud {
			wr = p.e.datagram(qp, qp, wr)
		}
		t.must(qp.PostSend(wr))
		t.poll(p.e.sendCQ, 1)
		valid(qp, sSQE, rts)
	}
	t.to(qp, sERR)
	valid(qp, sERR, 0)
	t.to(qp, sRESET)
	valid(qp, sRESET, 0)
}
