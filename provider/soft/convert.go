package soft

import (
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// The enums of verbs and transport have equal values (see TestEnumsAreEqual), so converting is a type conversion.

// toWC converts a completion.
func toWC(wc *verbs.WC, e *transport.CQE) {
	*wc = verbs.WC{
		WRID:      e.WRID,
		Status:    verbs.WCStatus(e.Status),
		Opcode:    verbs.WCOpcode(e.Op),
		VendorErr: e.VendorErr,
		ByteLen:   e.ByteLen,
		QPNum:     e.QPN,
		SrcQP:     e.SrcQP,
		WCFlags:   verbs.WCFlags(e.Flags),
		PKeyIndex: e.PKeyIndex,
	}
	if e.Flags&transport.WithInv != 0 {
		wc.InvalidatedRKey = e.Imm
	} else {
		wc.ImmData = e.Imm
	}
	if e.Cause != nil {
		wc.Cause = toWCError(e.Cause)
	}
}

// toWCError converts the story of a failure.
func toWCError(f *transport.Failure) *verbs.WCError {
	if f == nil {
		return nil
	}
	return &verbs.WCError{
		Status: verbs.WCStatus(f.Status), QPN: f.QPN, DestQPN: f.DestQPN, Peer: f.Peer, Reason: f.Reason, Syndrome: f.Syndrome,
		LastSent: f.LastSent, LastAck: f.LastAck, Retries: f.Retries, Elapsed: f.Elapsed, Heard: f.Heard, First: toWCError(f.First),
	}
}

// toSGEs is the same list in the transport's type, which has the same layout (see TestSGELayout).
func toSGEs(list []verbs.SGE) []transport.SGE {
	return unsafe.Slice((*transport.SGE)(unsafe.Pointer(unsafe.SliceData(list))), len(list))
}

// toAttr converts the attributes that mask names.
func (q *qp) toAttr(a *verbs.QPAttr, mask verbs.QPAttrMask) (t transport.Attr, m transport.Mask, err error) {
	t = transport.Attr{
		State:         transport.State(a.QPState),
		DestQPN:       a.DestQPNum,
		MTU:           a.PathMTU.Bytes(),
		PKeyIndex:     a.PKeyIndex,
		PKey:          defaultPKey,
		QKey:          a.QKey,
		RQPSN:         a.RQPSN,
		SQPSN:         a.SQPSN,
		Access:        uint32(a.QPAccessFlags) & uint32(mr.RemoteWrite|mr.RemoteRead|mr.RemoteAtomic),
		MaxRdAtomic:   int(a.MaxRdAtomic),
		MaxDestRdAtom: int(a.MaxDestRdAtomic),
		MinRNRTimer:   a.MinRNRTimer,
		Timeout:       a.Timeout,
		RetryCnt:      a.RetryCnt,
		RNRRetry:      a.RNRRetry,
		SQDNotify:     a.EnSQDAsyncNotify,
	}
	if mask&verbs.QPAttrAV != 0 {
		if t.Path, err = q.ctx.dev.port.Load().path(&a.AHAttr); err != nil {
			return t, 0, err
		}
	}
	return t, transport.Mask(mask), nil
}

// merge copies the attributes that mask names from a to to, which Query answers from.
func merge(to, a *verbs.QPAttr, mask verbs.QPAttrMask) {
	put(mask&verbs.QPAttrAccessFlags, &to.QPAccessFlags, a.QPAccessFlags)
	put(mask&verbs.QPAttrPKeyIndex, &to.PKeyIndex, a.PKeyIndex)
	put(mask&verbs.QPAttrPort, &to.PortNum, a.PortNum)
	put(mask&verbs.QPAttrQKey, &to.QKey, a.QKey)
	put(mask&verbs.QPAttrAV, &to.AHAttr, a.AHAttr)
	put(mask&verbs.QPAttrPathMTU, &to.PathMTU, a.PathMTU)
	put(mask&verbs.QPAttrTimeout, &to.Timeout, a.Timeout)
	put(mask&verbs.QPAttrRetryCnt, &to.RetryCnt, a.RetryCnt)
	put(mask&verbs.QPAttrRNRRetry, &to.RNRRetry, a.RNRRetry)
	put(mask&verbs.QPAttrRQPSN, &to.RQPSN, a.RQPSN)
	put(mask&verbs.QPAttrMaxQPRdAtomic, &to.MaxRdAtomic, a.MaxRdAtomic)
	put(mask&verbs.QPAttrMinRNRTimer, &to.MinRNRTimer, a.MinRNRTimer)
	put(mask&verbs.QPAttrSQPSN, &to.SQPSN, a.SQPSN)
	put(mask&verbs.QPAttrMaxDestRdAtomic, &to.MaxDestRdAtomic, a.MaxDestRdAtomic)
	put(mask&verbs.QPAttrDestQPN, &to.DestQPNum, a.DestQPNum)
}

func put[T any](named verbs.QPAttrMask, to *T, from T) {
	if named != 0 {
		*to = from
	}
}
