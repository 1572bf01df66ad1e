package conformance

import "github.com/verbena-rdma/verbena/verbs"

// The attributes of each transition, for cases that need other values than QP.Connect sets.

const (
	initMask = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	rtrMask  = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	rtsMask = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
		verbs.QPAttrMaxQPRdAtomic
	ucRTRMask = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	ucRTSMask = verbs.QPAttrState | verbs.QPAttrSQPSN
)

// toInit takes an RC or UC QP from RESET to INIT.
func toInit(qp *verbs.QP, access verbs.AccessFlags) {
	mustModify(qp, &verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, QPAccessFlags: access &^ verbs.AccessLocalWrite},
		initMask)
}

// toRTR takes an RC or UC QP from INIT to RTR.
func toRTR(qp *verbs.QP, peer verbs.QPInfo, minRNRTimer uint8) {
	mask := rtrMask
	if qp.Type() == verbs.QPTypeUC {
		mask = ucRTRMask
	}
	mustModify(qp, &verbs.QPAttr{
		QPState: verbs.QPSRTR, PathMTU: min(peer.MTU, verbs.MTU1024), DestQPNum: peer.QPN, RQPSN: peer.PSN,
		MaxDestRdAtomic: 4, MinRNRTimer: minRNRTimer, AHAttr: pathTo(qp, peer.GID),
	}, mask)
}

// pathTo returns the path from a QP's device to a GID.
func pathTo(qp *verbs.QP, gid verbs.GID) verbs.AHAttr {
	choice, err := qp.Context().SelectGID(1, gid.Addr())
	if err != nil {
		panic(err)
	}
	return verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: gid, SGIDIndex: choice.Index,
		HopLimit: 64}}
}

func mustModify(qp *verbs.QP, attr *verbs.QPAttr, mask verbs.QPAttrMask) {
	if err := qp.Modify(attr, mask); err != nil {
		panic(err) // a fault of the case, not of the device
	}
}
