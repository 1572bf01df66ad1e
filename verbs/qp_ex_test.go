package verbs

import (
	"syscall"
	"testing"
)

func exInit(t *testing.T, pd *PD, typ QPType) *QPInitAttr {
	cq, _ := newCQ(t, pd.Context(), nil)
	return &QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 7}}
}

func TestV_QPX_01_V_QPX_03_FieldsReachTheDriver(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	init := exInit(t, pd, QPTypeUD)
	init.SendOpsFlags, init.CreateFlags, init.SourceQPN, init.MaxTSOHeader = QPExWithSend, QPCreateSourceQPN, 0xffffff, 99
	qp := must(pd.CreateQP(init))(t)
	drv := qp.drv.(*fakeQP)
	if d := drv.init; d.SendOpsFlags != QPExWithSend || d.CreateFlags != QPCreateSourceQPN || d.SourceQPN != 0xffffff ||
		d.MaxTSOHeader != 99 || d.Type != QPTypeUD {
		t.Errorf("%+v", d)
	}
	if init.Cap.MaxSendWR != 8 || qp.QPN() != drv.qpn {
		t.Errorf("actual sizes %+v", init.Cap)
	}
	ok(t, qp.Close())
	ok(t, pd.Close())
}

func TestV_QPX_04_V_QPX_08_Bits(t *testing.T) {
	checkBits(t, map[int]QPCreateFlags{
		1: QPCreateBlockSelfMcastLB, 8: QPCreateScatterFCS, 9: QPCreateCVLANStripping, 10: QPCreateSourceQPN,
		11: QPCreatePCIWriteEndPadding,
	})
	checkBits(t, map[int]SendOpsFlags{
		0: QPExWithRDMAWrite, 1: QPExWithRDMAWriteWithImm, 2: QPExWithSend, 3: QPExWithSendWithImm, 4: QPExWithRDMARead,
		5: QPExWithAtomicCmpAndSwp, 6: QPExWithAtomicFetchAndAdd, 7: QPExWithLocalInv, 8: QPExWithBindMW,
		9: QPExWithSendWithInv, 10: QPExWithTSO,
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

func TestV_QPX_09_X_QPX_01_ToQPEx(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	plain, _ := newQP(t, pd, QPTypeRC)
	_, err := plain.Ex()
	refused(t, err, EINVAL, "qp_to_qp_ex", "SendOpsFlags")
	_, err = must(pd.CreateQP(exInit(t, pd, QPTypeRC)))(t).Ex()
	refused(t, err, EINVAL)
	x, _ := newEx(t, pd, QPTypeRC)
	if again, err := x.QP().Ex(); again != x || err != nil {
		t.Error(again, err)
	}
}

func TestV_QPX_10_V_WR_01_UnsupportedSendOps(t *testing.T) { // operations by type as in V-SEND-07
	vctx, drv := openFake(t)
	pd := newPD(t, vctx)
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeXRCSend, QPTypeRawPacket} {
		for op := SendOpsFlags(1); op <= QPExWithAtomicWrite<<1; op <<= 1 {
			init := exInit(t, pd, typ)
			init.SendOpsFlags = op | QPExWithSend
			qp, err := pd.CreateQP(init)
			switch {
			case op > sendOpsAll:
				refused(t, err, EINVAL, "create_qp", "unknown operations 0x2000")
			case op.opcodes()&^opcodesOf[typ] != 0:
				refused(t, err, EOPNOTSUPP, "create_qp", op.String()+" is not possible on a QP of type "+typ.String())
			default:
				ok(t, err)
				ok(t, qp.Close())
			}
		}
	}
	// The device lacks one.
	init := exInit(t, pd, QPTypeRC)
	init.SendOpsFlags = QPExWithSend
	drv.fail["CreateQP"] = ErrNotSupported
	_, err := pd.CreateQP(init)
	refused(t, err, EOPNOTSUPP)
	delete(drv.fail, "CreateQP")
	init.SendOpsFlags = 0
	ok(t, must(pd.CreateQP(init))(t).Close())
	ok(t, pd.Close()) // nothing is left of what failed
}

func TestV_QPX_04_V_QPX_05_CreateFlagsByType(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	good := map[QPCreateFlags][]QPType{
		QPCreateBlockSelfMcastLB: {QPTypeUD}, QPCreateSourceQPN: {QPTypeUD},
		QPCreateScatterFCS: {QPTypeRawPacket}, QPCreateCVLANStripping: {QPTypeRawPacket},
		QPCreatePCIWriteEndPadding: {QPTypeRC, QPTypeUC, QPTypeUD, QPTypeRawPacket},
	}
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeRawPacket} {
		for f := QPCreateFlags(1); f != 0; f <<= 1 {
			init := exInit(t, pd, typ)
			init.CreateFlags = f
			qp, err := pd.CreateQP(init)
			fits := false
			for _, g := range good[f] {
				fits = fits || g == typ
			}
			if fits {
				ok(t, err)
				ok(t, qp.Close())
			} else {
				refused(t, err, EINVAL, "create_qp")
			}
		}
	}
	for _, change := range []func(*QPInitAttr){
		func(a *QPInitAttr) { a.SourceQPN = 1 }, // without its flag
		func(a *QPInitAttr) { a.CreateFlags, a.SourceQPN = QPCreateSourceQPN, 1<<24 },
		func(a *QPInitAttr) { a.Type, a.MaxTSOHeader = QPTypeRC, 1 },
		func(a *QPInitAttr) { a.Cap.MaxSendWR = 129 }, // what CreateQP refuses too
	} {
		init := exInit(t, pd, QPTypeUD)
		change(init)
		_, err := pd.CreateQP(init)
		refused(t, err, EINVAL, "create_qp")
	}
	_, err := pd.CreateQP(nil)
	refused(t, err, EINVAL, "create_qp")
	init := exInit(t, pd, QPTypeUD)
	init.Cap.MaxInlineData = 257 // the driver's limit
	_, err = pd.CreateQP(init)
	refused(t, err, syscall.EINVAL, "257")
	ok(t, pd.Close())
}
