package soft

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// The enums of verbs and transport have equal values (see TestEnumsAreEqual), so converting is a type conversion.

// toWC converts a completion.
func toWC(wc *verbs.WC, e *transport.CQE) {
	wc.WRID = e.WRID
	wc.Status = verbs.WCStatus(e.Status)
	wc.Opcode = verbs.WCOpcode(e.Op)
	wc.VendorErr = e.VendorErr
	wc.ByteLen = e.ByteLen
	wc.ImmData, wc.InvalidatedRKey = e.Imm, 0
	wc.QPNum = e.QPN
	wc.SrcQP = e.SrcQP
	wc.WCFlags = verbs.WCFlags(e.Flags)
	wc.PKeyIndex = e.PKeyIndex
	wc.SLID, wc.SL, wc.DLIDPathBits = 0, e.SL, 0
	wc.Cause = nil
	wc.Timestamp, wc.Wallclock, wc.FlowTag, wc.CVLAN, wc.TM = 0, 0, 0, 0, verbs.TMInfo{}
	if e.Flags&transport.WithInv != 0 {
		wc.ImmData, wc.InvalidatedRKey = 0, e.Imm
	}
	if e.Cause != nil {
		wc.Cause = toWCError(e.Cause)
	}
}

// toWCError converts the description of a failure.
func toWCError(f *transport.Failure) *verbs.WCError {
	if f == nil {
		return nil
	}
	e := &verbs.WCError{
		Status: verbs.WCStatus(f.Status), QPN: f.QPN, DestQPN: f.DestQPN, Peer: f.Peer, Reason: f.Reason,
		Syndrome: f.Syndrome,
		LastSent: f.LastSent, LastAck: f.LastAck, Retries: f.Retries, Elapsed: f.Elapsed, Heard: f.Heard,
		PeerEnded: f.PeerEnded, Stream: f.Stream,
		Refused: f.Refused.Errno(), RefusedLen: f.Refused.Len(), Payload: f.Payload, First: toWCError(f.First),
	}
	if peer, err := netip.ParseAddr(f.Peer); e.Refused == syscall.EMSGSIZE && err == nil {
		e.RouteMTU = lookup.RouteMTU(netip.Addr{}, peer)
	}
	return e
}

// toSGEs returns the same list in the transport's type, which has the same layout (see TestSGELayout).
func toSGEs(list []verbs.SGE) []transport.SGE {
	return unsafe.Slice((*transport.SGE)(unsafe.Pointer(unsafe.SliceData(list))), len(list))
}

// toAttr converts the attributes that mask names, and writes them to t.
func (q *qp) toAttr(t *transport.Attr, a *verbs.QPAttr, mask verbs.QPAttrMask) (m transport.Mask, err error) {
	*t = transport.Attr{}
	t.State = transport.State(a.QPState)
	t.DestQPN = a.DestQPNum
	t.MTU = a.PathMTU.Bytes()
	t.PKeyIndex = a.PKeyIndex
	t.QKey = a.QKey
	t.RQPSN, t.SQPSN = a.RQPSN, a.SQPSN
	t.Access = uint32(a.QPAccessFlags) & uint32(mr.RemoteWrite|mr.RemoteRead|mr.RemoteAtomic|mr.FlushGlobal)
	t.MaxRdAtomic, t.MaxDestRdAtom = int(a.MaxRdAtomic), int(a.MaxDestRdAtomic)
	t.MinRNRTimer = a.MinRNRTimer
	t.Timeout, t.RetryCnt, t.RNRRetry = a.Timeout, a.RetryCnt, a.RNRRetry
	t.SQDNotify = a.EnSQDAsyncNotify
	t.Port = a.PortNum
	t.AltPKeyIdx, t.AltPort, t.AltTimeout = a.AltPKeyIndex, a.AltPortNum, a.AltTimeout
	t.Mig = transport.MigState(a.PathMigState)
	if mask&verbs.QPAttrAV != 0 {
		if t.Path, err = q.path(a.AHAttr.PortNum, &a.AHAttr); err != nil {
			return 0, err
		}
		t.PathOwner = a.AHAttr
		if mask&verbs.QPAttrPort == 0 { // in SQD the path may be of another port
			t.Port, mask = a.AHAttr.PortNum, mask|verbs.QPAttrPort
		}
	}
	if mask&verbs.QPAttrPort != 0 && mask&verbs.QPAttrAV == 0 && q.State() == transport.SQD {
		if mask, err = q.changePort(t, a.PortNum, mask); err != nil {
			return 0, err
		}
	}
	if mask&verbs.QPAttrAltPath != 0 {
		if t.Alt, err = q.path(a.AltAHAttr.PortNum, &a.AltAHAttr); err != nil {
			return 0, fmt.Errorf("alternate path: %w", err)
		}
		t.AltOwner = a.AltAHAttr
	}
	return transport.Mask(mask), nil
}

// changePort makes the path leave through another port: its GID index is of that port's table then.
func (q *qp) changePort(t *transport.Attr, port uint8, mask verbs.QPAttrMask) (verbs.QPAttrMask, error) {
	now, _ := q.QP.Query()
	ah, ok := now.PathOwner.(verbs.AHAttr)
	if !ok {
		return mask, nil
	}
	ah.PortNum = port
	var err error
	t.Path, err = q.path(port, &ah)
	t.PathOwner = ah
	return mask | verbs.QPAttrAV, err
}

// setPath sets in a the attributes that change when the QP migrates to its alternate path.
func setPath(a *verbs.QPAttr, t *transport.Attr) {
	a.PathMigState = verbs.MigState(t.Mig)
	a.AHAttr, _ = t.PathOwner.(verbs.AHAttr)
	a.PortNum, a.PKeyIndex, a.Timeout = t.Port, t.PKeyIndex, t.Timeout
	a.AltAHAttr, _ = t.AltOwner.(verbs.AHAttr)
	a.AltPortNum, a.AltPKeyIndex, a.AltTimeout = t.AltPort, t.AltPKeyIdx, t.AltTimeout
}

// merge copies the attributes that mask names from a to to, the attributes that Query returns. Those that the QP may
// change by itself are not copied.
func merge(to, a *verbs.QPAttr, mask verbs.QPAttrMask) {
	put(mask&verbs.QPAttrAccessFlags, &to.QPAccessFlags, a.QPAccessFlags)
	put(mask&verbs.QPAttrQKey, &to.QKey, a.QKey)
	put(mask&verbs.QPAttrPathMTU, &to.PathMTU, a.PathMTU)
	put(mask&verbs.QPAttrRetryCnt, &to.RetryCnt, a.RetryCnt)
	put(mask&verbs.QPAttrRNRRetry, &to.RNRRetry, a.RNRRetry)
	put(mask&verbs.QPAttrRQPSN, &to.RQPSN, a.RQPSN)
	put(mask&verbs.QPAttrMaxQPRdAtomic, &to.MaxRdAtomic, a.MaxRdAtomic)
	put(mask&verbs.QPAttrMinRNRTimer, &to.MinRNRTimer, a.MinRNRTimer)
	put(mask&verbs.QPAttrSQPSN, &to.SQPSN, a.SQPSN)
	put(mask&verbs.QPAttrMaxDestRdAtomic, &to.MaxDestRdAtomic, a.MaxDestRdAtomic)
	put(mask&verbs.QPAttrDestQPN, &to.DestQPNum, a.DestQPNum)
}

// put sets *to if named is not empty.
func put[T any](named verbs.QPAttrMask, to *T, from T) {
	if named != 0 {
		*to = from
	}
}
