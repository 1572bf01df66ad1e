package sim

import "github.com/verbena-rdma/verbena/verbs"

// link is what both QPs of a connected pair agree on.
type link struct {
	mtu             verbs.MTU
	psn             [2]uint32 // the first one that each sends
	depth           uint8     // READs and atomics at once
	timeout, rnrDly uint8     // codes
}

// newLink draws one. PSNs like to be close to where they wrap around.
func newLink(w *world) link {
	l := link{mtu: verbs.MTU(1 + w.rand.IntN(5)), depth: uint8(1 << w.rand.IntN(5)),
		timeout: uint8(8 + w.rand.IntN(8)), rnrDly: uint8(1 + w.rand.IntN(14))}
	for i := range l.psn {
		l.psn[i] = w.rand.Uint32() & 0xffffff
		if w.rand.IntN(3) == 0 {
			l.psn[i] = 0xffffff - w.rand.Uint32N(200)
		}
	}
	return l
}

// connect takes side i of a pair to RTS. verbs.QP.Connect would draw a PSN of its own, and runs would differ.
func (l *link) connect(qp, peer *verbs.QP, i int) error {
	to, err := peer.LocalInfo()
	if err != nil {
		return err
	}
	if _, err := qp.LocalInfo(); err != nil {
		return err
	}
	attr := verbs.QPAttr{
		PortNum: 1, QPAccessFlags: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic,
		AHAttr:  verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: to.GID, SGIDIndex: gidIndex, HopLimit: 64}},
		PathMTU: l.mtu, DestQPNum: to.QPN, RQPSN: l.psn[1-i], SQPSN: l.psn[i], MaxRdAtomic: l.depth, MaxDestRdAtomic: l.depth,
		MinRNRTimer: l.rnrDly, Timeout: l.timeout, RetryCnt: 7, RNRRetry: 7, QKey: verbs.DefaultQKey,
	}
	for _, s := range steps[qp.Type()] {
		attr.QPState = s.state
		if err := qp.Modify(&attr, verbs.QPAttrState|s.mask); err != nil {
			return err
		}
	}
	return nil
}

// gidIndex is the index of a device's own address; 0 is the default GID.
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
