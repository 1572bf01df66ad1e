package verbs

import (
	"syscall"
	"testing"
)

func exInit(t *testing.T, pd *PD, typ QPType) *QPInitAttrEx {
	cq, _ := newCQ(t, pd.Context(), nil)
	return &QPInitAttrEx{QPInitAttr: QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 7}}}
}

func TestV_QPX_01_V_QPX_03_FieldsReachTheDriver(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	init := exInit(t, pd, QPTypeUD)
	init.SendOpsFlags, init.CreateFlags, init.SourceQPN, init.MaxTSOHeader = QPExWithSend, QPCreateSourceQPN, 0xffffff, 99
	qp := must(pd.CreateQPEx(init))(t)
	drv := qp.Driver().(*fakeQP)
	if d := drv.init; d.SendOps != QPExWithSend || d.CreateFlags != QPCreateSourceQPN || d.SourceQPN != 0xffffff || d.MaxTSOHeader != 99 || d.Type != QPTypeUD {
		t.Errorf("%+v", d)
	}
	if init.Cap.MaxSendWR != 8 || qp.QPN() != drv.qpn {
		t.Errorf("actual sizes %+v", init.Cap)
	}
	ok(t, qp.Close())
	ok(t, pd.Close())
}

func TestV_QPX_02_V_QPX_04_V_QPX_08_Bits(t *testing.T) {
	checkBits(t, map[int]QPInitAttrMask{
		0: QPInitPD, 1: QPInitXRCD, 2: QPInitCreateFlags, 3: QPInitMaxTSOHeader, 4: QPInitIndTable, 5: QPInitRxHash,
		6: QPInitSendOpsFlags,
	})
	checkBits(t, map[int]QPCreateFlags{
		1: QPCreateBlockSelfMcastLB, 8: QPCreateScatterFCS, 9: QPCreateCVLANStripping, 10: QPCreateSourceQPN, 11: QPCreatePCIWriteEndPadding,
	})
	checkBits(t, map[int]SendOpsFlags{
		0: QPExWithRDMAWrite, 1: QPExWithRDMAWriteWithImm, 2: QPExWithSend, 3: QPExWithSendWithImm, 4: QPExWithRDMARead,
		5: QPExWithAtomicCmpAndSwp, 6: QPExWithAtomicFetchAndAdd, 7: QPExWithLocalInv, 8: QPExWithBindMW, 9: QPExWithSendWithInv, 10: QPExWithTSO,
		11: QPExWithFlush, 12: QPExWithAtomicWrite,
	})
	for op := WRRDMAWrite; op <= WRTSO; op++ { // which newQPEx relies on
		if got := SendOpsFlags(1 << op).String(); got != op.String() {
			t.Errorf("%v is the bit of %v", op, got)
		}
	}
	if s := (QPCreateSourceQPN | 1).String(); s != "SOURCE_QPN|0x1" {
		t.Error(s)
	}
}

func TestV_QPX_02_CompMask(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	init := exInit(t, pd, QPTypeUD)
	init.SendOpsFlags, init.CreateFlags, init.SourceQPN, init.MaxTSOHeader = 1<<20, 1, 1<<24, 9
	init.CompMask = QPInitPD // nothing else counts
	qp := must(pd.CreateQPEx(init))(t)
	if d := qp.Driver().(*fakeQP).init; d.SendOps != 0 || d.CreateFlags != 0 || d.SourceQPN != 0 || d.MaxTSOHeader != 0 {
		t.Errorf("%+v", d)
	}
	init.SendOpsFlags, init.CompMask = QPExWithSend, QPInitSendOpsFlags|QPInitMaxTSOHeader
	qp = must(pd.CreateQPEx(init))(t)
	if d := qp.Driver().(*fakeQP).init; d.SendOps != QPExWithSend || d.CreateFlags != 0 || d.SourceQPN != 0 || d.MaxTSOHeader != 9 {
		t.Errorf("%+v", d)
	}
	for mask, errno := range map[QPInitAttrMask]Errno{1 << 7: EINVAL, QPInitXRCD: EINVAL, QPInitIndTable: EINVAL, QPInitRxHash: EINVAL} {
		init.CompMask = mask
		_, err := pd.CreateQPEx(init)
		refused(t, err, errno, "create_qp_ex")
	}
}

func TestV_QPX_09_X_QPX_01_ToQPEx(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	plain, _ := newQP(t, pd, QPTypeRC)
	_, err := plain.Ex()
	refused(t, err, EINVAL, "qp_to_qp_ex", "SendOpsFlags")
	_, err = must(pd.CreateQPEx(exInit(t, pd, QPTypeRC)))(t).Ex()
	refused(t, err, EINVAL)
	x, _ := newEx(t, pd, QPTypeRC)
	if again, err := x.QP().Ex(); again != x || err != nil {
		t.Error(again, err)
	}
}

func TestV_QPX_10_V_WR_01_UnsupportedSendOps(t *testing.T) { // operations by type as in V-SEND-07
	ctx, drv := openFake(t)
	pd := newPD(t, ctx)
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeXRCSend, QPTypeRawPacket} {
		for op := SendOpsFlags(1); op <= QPExWithAtomicWrite<<1; op <<= 1 {
			init := exInit(t, pd, typ)
			init.SendOpsFlags = op | QPExWithSend
			qp, err := pd.CreateQPEx(init)
			switch {
			case op > sendOpsAll:
				refused(t, err, EINVAL, "create_qp_ex", "unknown operations 0x2000")
			case op.opcodes()&^opcodesOf[typ] != 0:
				refused(t, err, EOPNOTSUPP, "create_qp_ex", op.String()+" is not possible on a QP of type "+typ.String())
			default:
				ok(t, err)
				ok(t, qp.Close())
			}
		}
	}
	// The device lacks one; it cannot post lists as one.
	init := exInit(t, pd, QPTypeRC)
	init.SendOpsFlags = QPExWithSend
	drv.fail["CreateQP"] = ErrNotSupported
	_, err := pd.CreateQPEx(init)
	refused(t, err, EOPNOTSUPP)
	delete(drv.fail, "CreateQP")
	pd.drv = oldPD{pd.drv.(*fakePD)}
	_, err = pd.CreateQPEx(init)
	refused(t, err, EOPNOTSUPP, "SendOpsFlags")
	if !drv.called("DestroyQP") {
		t.Error("the driver's QP is left")
	}
	init.SendOpsFlags = 0
	ok(t, must(pd.CreateQPEx(init))(t).Close())
	ok(t, pd.Close()) // nothing is left of what failed
}

func TestV_QPX_04_V_QPX_05_CreateFlagsByType(t *testing.T) {
	ctx, _ := openFake(t)
	pd := newPD(t, ctx)
	good := map[QPCreateFlags][]QPType{
		QPCreateBlockSelfMcastLB: {QPTypeUD}, QPCreateSourceQPN: {QPTypeUD},
		QPCreateScatterFCS: {QPTypeRawPacket}, QPCreateCVLANStripping: {QPTypeRawPacket},
		QPCreatePCIWriteEndPadding: {QPTypeRC, QPTypeUC, QPTypeUD, QPTypeRawPacket},
	}
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeRawPacket} {
		for f := QPCreateFlags(1); f != 0; f <<= 1 {
			init := exInit(t, pd, typ)
			init.CreateFlags = f
			qp, err := pd.CreateQPEx(init)
			fits := false
			for _, g := range good[f] {
				fits = fits || g == typ
			}
			if fits {
				ok(t, err)
				ok(t, qp.Close())
			} else {
				refused(t, err, EINVAL, "create_qp_ex")
			}
		}
	}
	for _, change := range []func(*QPInitAttrEx){
		func(a *QPInitAttrEx) { a.SourceQPN = 1 }, // without its flag
		func(a *QPInitAttrEx) { a.CreateFlags, a.SourceQPN = QPCreateSourceQPN, 1<<24 },
		func(a *QPInitAttrEx) { a.Type, a.MaxTSOHeader = QPTypeRC, 1 },
		func(a *QPInitAttrEx) { a.Cap.MaxSendWR = 129 }, // what CreateQP refuses too
	} {
		init := exInit(t, pd, QPTypeUD)
		change(init)
		_, err := pd.CreateQPEx(init)
		refused(t, err, EINVAL, "create_qp_ex")
	}
	_, err := pd.CreateQPEx(nil)
	refused(t, err, EINVAL, "create_qp_ex")
	init := exInit(t, pd, QPTypeUD)
	init.Cap.MaxInlineData = 257 // the driver's limit
	_, err = pd.CreateQPEx(init)
	refused(t, err, syscall.EINVAL, "257")
	ok(t, pd.Close())
}
