//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"math/bits"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// qpObj is a QP with room for the requests of a post call.
type qpObj struct {
	*verbs.QP
	ctx  *contextObj
	ud   bool
	rc   bool // RC or XRC_SEND
	send sender
	list list
	recv receiver
}

func addQP(ctx *contextObj, qp *verbs.QP, out *unsafe.Pointer) {
	t := qp.Type()
	q := &qpObj{QP: qp, ctx: ctx, ud: t == verbs.QPTypeUD, rc: t == verbs.QPTypeRC || t == verbs.QPTypeXRCSend}
	*out = keep(ctx, kindQP, q, qp.Close)
}

//export vrb_create_qp
func vrb_create_qp(init *C.struct_vrb_qp_init, out *unsafe.Pointer) C.int {
	in := verbs.QPInitAttr{
		Context: init.context, Type: verbs.QPType(init._type), SigAll: init.sq_sig_all != 0,
		SendOpsFlags: verbs.SendOpsFlags(init.send_ops), CreateFlags: verbs.QPCreateFlags(init.create_flags),
		MaxTSOHeader: uint16(init.max_tso_header), SourceQPN: uint32(init.source_qpn),
	}
	cap := (*cCap)(unsafe.Pointer(&init.cap))
	in.Cap = cap.toGo()
	// On adapters inline data takes the place of the SGEs in a request, so that programs send some without asking.
	if in.Cap.MaxSendWR > 0 && in.Type != verbs.QPTypeRawPacket {
		in.Cap.MaxInlineData = max(in.Cap.MaxInlineData, 16*min(in.Cap.MaxSendSGE, 4))
	}
	in.Cap.MaxSendWR = depth(in.Cap.MaxSendWR)
	if init.send_cq != nil {
		in.SendCQ = (*cqObj)(init.send_cq).CQ
	}
	if init.recv_cq != nil {
		in.RecvCQ = (*cqObj)(init.recv_cq).CQ
	}
	if init.srq != nil {
		in.SRQ = (*srqObj)(init.srq).SRQ
	}
	if init.ind_tbl != nil {
		in.RWQIndTbl = (*tableObj)(init.ind_tbl).RWQIndTable
	}
	if init.hash_key == nil && init.hash_key_len > 0 {
		return C.int(syscall.EINVAL)
	}
	if init.hash_key != nil || init.hash_function != 0 {
		in.RxHashConf = &verbs.RxHashConf{Function: verbs.RxHashFunction(init.hash_function),
			Key:    C.GoBytes(unsafe.Pointer(init.hash_key), C.int(init.hash_key_len)),
			Fields: verbs.RxHashFields(init.hash_fields)}
	}
	var ctx *contextObj
	var qp *verbs.QP
	var err error
	switch {
	case init.pd != nil:
		ctx = (*pdObj)(init.pd).ctx
		qp, err = (*pdObj)(init.pd).CreateQP(&in)
	case init.xrcd != nil:
		ctx = (*xrcdObj)(init.xrcd).ctx
		qp, err = (*xrcdObj)(init.xrcd).CreateQP(&in)
	default:
		err = syscall.EINVAL
	}
	if err != nil {
		return errno(err)
	}
	if in.RWQIndTbl != nil {
		if err := ready(qp); err != nil {
			_ = qp.Close()
			return errno(err)
		}
	}
	*cap = capOf(in.Cap)
	init.qp_num = C.uint32_t(qp.QPN())
	addQP(ctx, qp, out)
	return 0
}

// depth returns the number of requests that a send queue takes. Adapters round it up, and programs such as perftest
// rely on that: with a depth of 1 they post a request before they poll the completion of the one before.
func depth(asked uint32) uint32 {
	const least = 16
	if asked == 0 || asked > 1<<31 {
		return asked
	}
	return 1 << bits.Len32(max(asked, least)-1)
}

// ready moves a QP that only distributes frames to RTR: on adapters it has no states, so that programs do not move it.
func ready(qp *verbs.QP) error {
	err := qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort)
	if err == nil {
		err = qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTR}, verbs.QPAttrState)
	}
	return err
}

func (c *cCap) toGo() verbs.QPCap {
	return verbs.QPCap{MaxSendWR: c.sendWR, MaxRecvWR: c.recvWR, MaxSendSGE: c.sendSGE, MaxRecvSGE: c.recvSGE,
		MaxInlineData: c.inline}
}

func capOf(c verbs.QPCap) cCap {
	return cCap{c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInlineData}
}

//export vrb_open_qp
func vrb_open_qp(h, xrcd unsafe.Pointer, num, typ C.uint32_t, context unsafe.Pointer, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	qp, err := c.OpenQP(&verbs.QPOpenAttr{QPNum: uint32(num), XRCD: (*xrcdObj)(xrcd).XRCD, Context: context,
		Type: verbs.QPType(typ)})
	if err != nil {
		return errno(err)
	}
	addQP(c, qp, out)
	return 0
}

type xrcdObj struct {
	*verbs.XRCD
	ctx *contextObj
}

func (a *cAHAttr) toGo() verbs.AHAttr {
	return verbs.AHAttr{
		GRH: verbs.GlobalRoute{DGID: a.dgid, FlowLabel: a.flowLabel & 0xfffff, SGIDIndex: int(a.sgidIndex),
			HopLimit: a.hopLimit, TrafficClass: a.trafficClass},
		DLID: a.dlid, SL: a.sl & 15, SrcPathBits: a.srcPathBits & 127, StaticRate: verbs.StaticRate(a.staticRate),
		IsGlobal: a.isGlobal != 0, PortNum: a.portNum,
	}
}

func ahAttrOf(a *verbs.AHAttr) cAHAttr {
	c := cAHAttr{
		dgid: a.GRH.DGID, flowLabel: a.GRH.FlowLabel, sgidIndex: uint8(a.GRH.SGIDIndex), hopLimit: a.GRH.HopLimit,
		trafficClass: a.GRH.TrafficClass, dlid: a.DLID, sl: a.SL, srcPathBits: a.SrcPathBits,
		staticRate: uint8(a.StaticRate), portNum: a.PortNum,
	}
	if a.IsGlobal {
		c.isGlobal = 1
	}
	return c
}

//export vrb_modify_qp
func vrb_modify_qp(h, attr unsafe.Pointer, mask C.int) C.int {
	a, q := (*cQPAttr)(attr), (*qpObj)(h)
	in := verbs.QPAttr{
		QPState: verbs.QPState(a.state), CurQPState: verbs.QPState(a.cur), PathMTU: verbs.MTU(a.mtu),
		PathMigState: verbs.MigState(a.mig), QKey: a.qkey, RQPSN: a.rqPSN & 0xffffff, SQPSN: a.sqPSN & 0xffffff,
		DestQPNum: a.dest, QPAccessFlags: verbs.AccessFlags(a.access), Cap: a.cap.toGo(), AHAttr: a.ah.toGo(),
		AltAHAttr: a.alt.toGo(), PKeyIndex: a.pkey, AltPKeyIndex: a.altPKey, EnSQDAsyncNotify: a.enSQD != 0,
		MaxRdAtomic: a.maxRd, MaxDestRdAtomic: a.maxDestRd, MinRNRTimer: a.minRNR, PortNum: a.port, Timeout: a.timeout,
		RetryCnt: a.retry, RNRRetry: a.rnrRetry, AltPortNum: a.altPort, AltTimeout: a.altTimeout, RateLimit: a.rate,
	}
	err := q.Modify(&in, q.meant(verbs.QPAttrMask(mask)))
	if err == nil && mask&C.int(verbs.QPAttrCap) != 0 {
		a.cap = capOf(in.Cap)
	}
	return errno(err)
}

// meant drops the attributes of the other direction from the mask of an XRC QP, as Linux does: programs give those of
// RC, perftest for example.
func (q *qpObj) meant(mask verbs.QPAttrMask) verbs.QPAttrMask {
	switch q.Type() {
	case verbs.QPTypeXRCSend:
		return mask &^ (verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer)
	case verbs.QPTypeXRCRecv:
		return mask &^ (verbs.QPAttrMaxQPRdAtomic | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry)
	}
	return mask
}

const knownAttrs = verbs.QPAttrDestQPN<<1 - 1 | verbs.QPAttrRateLimit

//export vrb_query_qp
func vrb_query_qp(h, attr unsafe.Pointer, mask C.int, init *C.struct_vrb_qp_init) C.int {
	// Adapters return all attributes and take the mask for a hint.
	t, in, err := (*qpObj)(h).Query(verbs.QPAttrMask(mask) & knownAttrs)
	if err != nil {
		return errno(err)
	}
	*(*cQPAttr)(attr) = qpAttrOf(&t)
	*(*cCap)(unsafe.Pointer(&init.cap)) = capOf(in.Cap)
	init.sq_sig_all = C.uint32_t(flag(in.SigAll))
	return 0
}

func qpAttrOf(t *verbs.QPAttr) cQPAttr {
	return cQPAttr{
		state: uint32(t.QPState), cur: uint32(t.CurQPState), mtu: uint32(t.PathMTU), mig: uint32(t.PathMigState),
		qkey: t.QKey, rqPSN: t.RQPSN, sqPSN: t.SQPSN, dest: t.DestQPNum, access: uint32(t.QPAccessFlags),
		cap: capOf(t.Cap), ah: ahAttrOf(&t.AHAttr), alt: ahAttrOf(&t.AltAHAttr), pkey: t.PKeyIndex,
		altPKey: t.AltPKeyIndex, enSQD: flag(t.EnSQDAsyncNotify), draining: flag(t.SQDraining), maxRd: t.MaxRdAtomic,
		maxDestRd: t.MaxDestRdAtomic, minRNR: t.MinRNRTimer, port: t.PortNum, timeout: t.Timeout, retry: t.RetryCnt,
		rnrRetry: t.RNRRetry, altPort: t.AltPortNum, altTimeout: t.AltTimeout, rate: t.RateLimit,
	}
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

//export vrb_modify_rate
func vrb_modify_rate(h unsafe.Pointer, rate, burst C.uint32_t, size C.uint16_t) C.int {
	return errno((*qpObj)(h).ModifyRateLimit(&verbs.QPRateLimitAttr{RateLimit: uint32(rate), MaxBurstSz: uint32(burst),
		TypicalPktSz: uint16(size)}))
}

//export vrb_query_ece
func vrb_query_ece(h unsafe.Pointer, out *C.uint32_t) C.int {
	e, err := (*qpObj)(h).QueryECE()
	to := unsafe.Slice(out, 2)
	to[0], to[1] = C.uint32_t(e.VendorID), C.uint32_t(e.Options)
	return errno(err)
}

//export vrb_set_ece
func vrb_set_ece(h unsafe.Pointer, vendor, options C.uint32_t) C.int {
	return errno((*qpObj)(h).SetECE(verbs.ECE{VendorID: uint32(vendor), Options: uint32(options)}))
}

//export vrb_mcast
func vrb_mcast(h, gid unsafe.Pointer, lid, attach C.int) C.int {
	g := *(*verbs.GID)(gid)
	if attach != 0 {
		return errno((*qpObj)(h).AttachMcast(g, uint16(lid)))
	}
	return errno((*qpObj)(h).DetachMcast(g, uint16(lid)))
}

type ahObj struct{ *verbs.AH }

//export vrb_create_ah
func vrb_create_ah(h, attr unsafe.Pointer, out *unsafe.Pointer) C.int {
	pd := (*pdObj)(h)
	a := (*cAHAttr)(attr).toGo()
	ah, err := pd.CreateAH(&a)
	if err != nil {
		return errno(err)
	}
	*out = keep(pd.ctx, kindAH, &ahObj{ah}, ah.Close)
	return 0
}

//export vrb_ah_from_wc
func vrb_ah_from_wc(h unsafe.Pointer, port C.int, wc, grh, attr unsafe.Pointer) C.int {
	if port < 0 || port > 255 {
		return C.int(syscall.EINVAL)
	}
	w := (*cWC)(wc)
	from := verbs.WC{WCFlags: verbs.WCFlags(w.flags), SrcQP: w.srcQP, SLID: w.slid, SL: w.sl & 15,
		DLIDPathBits: w.dlidPathBits, PKeyIndex: w.pkeyIndex}
	var header []byte
	if grh != nil {
		header = unsafe.Slice((*byte)(grh), 40)
	}
	a, err := (*contextObj)(h).InitAHFromWC(uint8(port), &from, header)
	if err == nil {
		*(*cAHAttr)(attr) = ahAttrOf(&a)
	}
	return errno(err)
}
