package sim

import "github.com/verbena-rdma/verbena/verbs"

// link is the connection attributes that both QPs of a pair agree on.
type link struct {
	mtu             verbs.MTU
	psn             [2]uint32 // the first PSN of each side
	depth           uint8     // outstanding READs and atomics
	timeout, rnrDly uint8     // codes
	retries         uint8
	rnrRetries      uint8
}

// newLink draws a link. Some links fail after a few losses in a row or a late receive.
func newLink(w *world) link {
	r := w.rand
	l := link{mtu: verbs.MTU(1 + r.IntN(5)), depth: uint8(1 << r.IntN(5)), timeout: uint8(8 + r.IntN(8)),
		rnrDly: uint8(1 + r.IntN(14)), psn: [2]uint32{w.psns.next(), w.psns.next()}, retries: 7, rnrRetries: 7}
	if w.net.slow {
		l.timeout = uint8(12 + r.IntN(4))
	}
	if w.calm {
		return l
	}
	if r.IntN(5) == 0 {
		l.retries = uint8(r.IntN(4))
	}
	if r.IntN(6) == 0 {
		l.rnrRetries = uint8(r.IntN(7))
	}
	return l
}

// connect moves side i of a pair to RTS. verbs.QP.Connect would draw its own PSN, and runs would differ.
func (l *link) connect(qp, peer *verbs.QP, i int) error {
	to, err := peer.LocalInfo()
	if err != nil {
		return err
	}
	if _, err := qp.LocalInfo(); err != nil {
		return err
	}
	attr := verbs.QPAttr{
		PortNum: 1, QPAccessFlags: remoteAccess | verbs.AccessFlushGlobal,
		AHAttr: verbs.AHAttr{
			PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: to.GID, SGIDIndex: gidIndex, HopLimit: 64},
		},
		PathMTU: l.mtu, DestQPNum: to.QPN, RQPSN: l.psn[1-i], SQPSN: l.psn[i], MaxRdAtomic: l.depth, MaxDestRdAtomic: l.depth,
		MinRNRTimer: l.rnrDly, Timeout: l.timeout, RetryCnt: l.retries, RNRRetry: l.rnrRetries, QKey: verbs.DefaultQKey,
	}
	for _, s := range steps[qp.Type()] {
		attr.QPState = s.state
		if err := qp.Modify(&attr, verbs.QPAttrState|s.mask); err != nil {
			return err
		}
	}
	return nil
}

const remoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// gidIndex is the index of the address of a device; 0 is the default GID.
const gidIndex = 1

type step struct {
	state verbs.QPState
	mask  verbs.QPAttrMask
}

const (
	toInit = verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	toRTR  = verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	toRTS  = verbs.QPAttrSQPSN
)

var steps = map[verbs.QPType][]step{
	verbs.QPTypeRC: {
		{verbs.QPSInit, toInit | verbs.QPAttrAccessFlags},
		{verbs.QPSRTR, toRTR | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
		{verbs.QPSRTS, toRTS | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic},
	},
	verbs.QPTypeXRCSend: {
		{verbs.QPSInit, toInit | verbs.QPAttrAccessFlags}, {verbs.QPSRTR, toRTR},
		{verbs.QPSRTS, toRTS | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic},
	},
	verbs.QPTypeXRCRecv: {
		{verbs.QPSInit, toInit | verbs.QPAttrAccessFlags},
		{verbs.QPSRTR, toRTR | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
		{verbs.QPSRTS, toRTS | verbs.QPAttrTimeout},
	},
	verbs.QPTypeUC: {{verbs.QPSInit, toInit | verbs.QPAttrAccessFlags}, {verbs.QPSRTR, toRTR}, {verbs.QPSRTS, toRTS}},
	verbs.QPTypeUD: {{verbs.QPSInit, toInit | verbs.QPAttrQKey}, {verbs.QPSRTR, 0}, {verbs.QPSRTS, toRTS}},
}
